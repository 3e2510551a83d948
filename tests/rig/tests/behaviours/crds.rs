//! The CRDs on a real API server: what it accepts, what it refuses with which message, and what kubectl shows.

use anyhow::{Result, ensure};
use rig::{ApiServer, Lab};
use serde::Deserialize;
use serde_json::json;

/// A row of `crds_cases.yaml`.
#[derive(Deserialize)]
struct Case {
    what: String,
    manifest: serde_json::Value,
    refusal: Option<String>,
}

async fn with_crds(lab: &Lab) -> Result<ApiServer> {
    let api = lab.api_server().start().await?;
    api.install_crds().await?;
    Ok(api)
}

#[tokio::test]
async fn manifests_are_accepted_or_refused_with_the_reason() -> Result<()> {
    let lab = Lab::new().await?;
    let api = with_crds(&lab).await?;
    let mut wrong = Vec::new();
    let cases: Vec<Case> = serde_saphyr::from_str(include_str!("crds_cases.yaml"))?;
    for Case { what, manifest, refusal } in cases {
        let answer =
            api.kubectl_with(&manifest.to_string(), ["create", "--dry-run=server", "-f", "-"]).await?;
        let message = message_of(&answer.stderr());
        if answer.status.success() != refusal.is_none() || message != refusal.unwrap_or_default() {
            wrong.push(format!("{what}:\n{}{message}", answer.stdout()));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    Ok(())
}

/// What kubectl prints, without warnings, the name of the object, and the remark that more may be wrong.
fn message_of(stderr: &str) -> String {
    let remark = "* <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; \
                  correct the existing errors to complete validation";
    let lines = stderr.lines().filter(|line| !line.starts_with("Warning:") && *line != remark);
    let message = lines.collect::<Vec<_>>().join("\n");
    let message = message.split_once("\" is invalid: ").map_or(message.as_str(), |(_, message)| message);
    message.trim_start().trim_start_matches("* ").to_owned()
}

#[tokio::test]
async fn captures_cannot_be_changed_and_other_fields_can() -> Result<()> {
    let lab = Lab::new().await?;
    let api = with_crds(&lab).await?;
    let apply = async |spec: &str| {
        let manifest = format!(
            "{{apiVersion: nmstate.io/v1, kind: NodeNetworkConfigurationPolicy, metadata: {{name: p}}, spec: {spec}}}"
        );
        let answer = api.kubectl_with(&manifest, ["apply", "--server-side", "-f", "-"]).await?;
        Ok::<_, anyhow::Error>(message_of(&answer.stderr()))
    };
    let fixed = "spec.capture: Invalid value: invalid policy operation: capture field cannot be modified";
    assert_eq!(apply("{capture: {a: 'interfaces.name==\"eth1\"'}}").await?, "");
    assert_eq!(apply("{capture: {a: 'interfaces.name==\"eth2\"'}}").await?, fixed, "changed");
    assert_eq!(apply("{capture: {a: 'interfaces.name==\"eth1\"', b: 'x'}}").await?, fixed, "extended");
    assert_eq!(apply("{maxUnavailable: 1}").await?, fixed, "removed");
    assert_eq!(
        apply("{capture: {a: 'interfaces.name==\"eth1\"'}, maxUnavailable: 1}").await?,
        "",
        "the rest"
    );
    api.kubectl(["delete", "nncp", "p"]).await?.success()?;
    assert_eq!(apply("{}").await?, "");
    assert_eq!(apply("{capture: {a: 'interfaces.name==\"eth1\"'}}").await?, fixed, "added");
    Ok(())
}

#[tokio::test]
async fn kubectl_prints_the_known_columns() -> Result<()> {
    let lab = Lab::new().await?;
    let api = with_crds(&lab).await?;
    let objects = [
        ("NMState", "nmstate", "nmstates"),
        ("NodeNetworkConfigurationPolicy", "p", "nncp"),
        ("NodeNetworkConfigurationEnactment", "node1.p", "nnce"),
        ("NodeNetworkState", "node1", "nns"),
    ];
    let condition = |type_: &str, status: &str, reason: &str| json!({"type": type_, "status": status, "reason": reason, "lastTransitionTime": "2020-01-01T00:00:00Z"});
    let status = json!({"status": {"conditions": [
        condition("Available", "False", "FailedToConfigure"),
        condition("Degraded", "True", "FailedToConfigure"),
    ]}})
    .to_string();
    for (kind, name, _) in objects {
        let manifest = format!("{{apiVersion: nmstate.io/v1, kind: {kind}, metadata: {{name: {name}}}}}");
        api.kubectl_with(&manifest, ["create", "-f", "-"]).await?.success()?;
        let patch = ["patch", kind, name, "--subresource=status", "--type=merge", "-p", &status];
        api.kubectl(patch).await?.success()?;
    }
    let mut shown = Vec::new();
    for (_, _, short) in objects {
        let table = api.kubectl(["get", short]).await?.success()?;
        shown.extend(
            table.lines().map(|line| line.split_whitespace().map(mask_age).collect::<Vec<_>>().join(" ")),
        );
    }
    assert_eq!(
        shown,
        [
            "NAME STATUS REASON",
            "nmstate Degraded FailedToConfigure",
            "NAME STATUS REASON",
            "p Degraded FailedToConfigure",
            "NAME STATUS STATUS AGE REASON",
            "node1.p Degraded <age> FailedToConfigure",
            "NAME AGE",
            "node1 <age>",
        ]
    );
    Ok(())
}

/// Replaces ages such as `12s` and `6y318d`, which depend on the day.
fn mask_age(word: &str) -> &str {
    let is_age = word.starts_with(|c: char| c.is_ascii_digit()) && word.ends_with(['s', 'm', 'h', 'd', 'y']);
    if is_age { "<age>" } else { word }
}

#[tokio::test]
async fn kubectl_explains_the_additions() -> Result<()> {
    let lab = Lab::new().await?;
    let api = with_crds(&lab).await?;
    let text = api.kubectl(["explain", "nncp.spec.rollout"]).await?.success()?;
    for field in ["canary", "maxFailures", "onFailure", "paused", "progressDeadline"] {
        ensure!(text.contains(&format!("  {field}\t<")), "{field} is not explained:\n{text}");
    }
    ensure!(text.contains("How the policy is rolled out"), "no description:\n{text}");
    Ok(())
}

#[tokio::test]
async fn defaults_are_those_of_kubernetes_nmstate() -> Result<()> {
    let lab = Lab::new().await?;
    let api = with_crds(&lab).await?;
    for version in ["v1", "v1beta1"] {
        let manifest =
            format!("{{apiVersion: nmstate.io/{version}, kind: NMState, metadata: {{name: {version}}}}}");
        let created = api.kubectl_with(&manifest, ["create", "-o", "json", "-f", "-"]).await?.json()?;
        let spec = &created["spec"];
        assert_eq!(spec["logLevel"], "info", "{version}");
        assert_eq!(spec["probeConfiguration"]["dns"]["host"], "root-servers.net", "{version}");
        // v1beta1 declares no default for this one, but objects are stored as v1, which does.
        assert_eq!(spec["metricsConfiguration"]["bindAddress"], ":8089", "{version}");
    }
    Ok(())
}

#[tokio::test]
async fn both_versions_show_one_object() -> Result<()> {
    let lab = Lab::new().await?;
    let api = with_crds(&lab).await?;
    let manifest = "{apiVersion: nmstate.io/v1beta1, kind: NodeNetworkState, metadata: {name: node1}}";
    api.kubectl_with(manifest, ["create", "-f", "-"]).await?.success()?;
    for version in ["v1", "v1beta1"] {
        let path = format!("nodenetworkstates.{version}.nmstate.io/node1");
        let seen = api.kubectl(["get", &path, "-o", "json"]).await?.json()?;
        assert_eq!(seen["apiVersion"], format!("nmstate.io/{version}"));
    }
    Ok(())
}
