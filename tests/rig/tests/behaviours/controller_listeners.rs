//! The admission webhook and the metrics of a controller: a process with its own token and the product's own webhook
//! configurations.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use knmstate_api::{NodeNetworkConfigurationPolicy as Policy, names};
use knmstate_operator::Settings;
use kube::{Api, ResourceExt as _};
use rig::{ApiServer, Lab, Output, binaries, process::Invocation, role::RoleSetup, wait};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(45);

/// The Service, with an address of the lab as its endpoint.
pub const SERVICE: &str = r"
apiVersion: v1
kind: Service
metadata: {name: nmstate-webhook, namespace: nmstate}
spec:
  ports: [{name: webhook, port: 443, targetPort: 9443}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: nmstate-webhook-lab
  namespace: nmstate
  labels: {kubernetes.io/service-name: nmstate-webhook}
addressType: IPv4
endpoints: [{addresses: [10.99.0.1], conditions: {ready: true}}]
ports: [{name: webhook, port: 9443, protocol: TCP}]
";

async fn apply(api: &ApiServer, name: &str, mtu: u32) -> Result<Output> {
    let desired = json!({"interfaces": [{"name": "eth1", "type": "ethernet", "state": "up", "mtu": mtu}]});
    apply_state(api, name, &desired).await
}

async fn apply_state(api: &ApiServer, name: &str, desired: &Value) -> Result<Output> {
    let policy = json!({
        "apiVersion": "nmstate.io/v1",
        "kind": "NodeNetworkConfigurationPolicy",
        "metadata": {"name": name, "annotations": {names::ALLOW_UPDATE_IN_PROGRESS_ANNOTATION: "true"}},
        "spec": {"desiredState": desired},
    });
    api.kubectl_with(&policy.to_string(), ["apply", "-f", "-"]).await
}

/// Gets the metrics with these options of curl.
async fn curl(lab: &Lab, options: &[&str]) -> Result<Output> {
    let get = ["curl", "--silent", "--show-error", "--insecure", "https://10.99.0.1:8443/metrics"];
    lab.network().enter(Invocation::new([&get[..], options].concat())).run(LIMIT).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_reports_conflicts_at_admission_and_in_the_status() -> Result<()> {
    let program = binaries::knmstate().await?;
    let lab = Lab::new().await?;
    let api = lab.api_server().start().await?;
    // No operator injects the CA bundle.
    let settings = Settings { controller_injects_ca_bundle: true, ..Settings::default() };
    api.install_product_objects(&settings).await?;
    api.kubectl_with(SERVICE, ["apply", "-f", "-"]).await?.success()?;
    api.add_ready_node("node1").await?;
    api.add_handler_pod("node1").await?;
    let policies: Api<Policy> = Api::all(api.client());

    // Without a controller the policies are accepted.
    apply(&api, "small", 1400).await?.success()?;
    apply(&api, "big", 9000).await?.success()?;
    let profile = lab.directory().join("profile.json");
    std::fs::write(&profile, json!({"minTLSVersion": "VersionTLS13"}).to_string())?;
    let setup = RoleSetup::controller(&lab, &api, program)
        .await?
        .arg("--webhook-address=10.99.0.1:9443")
        .arg("--inject-ca-bundle")
        .arg("--metrics-address=10.99.0.1:8443")
        .arg(&format!("--tls-profile={}", profile.display()));
    let _controller = setup.start("a")?;
    let degraded = wait::until(LIMIT, "the controller to find the conflict", async || {
        let both = [policies.get("big").await?, policies.get("small").await?];
        let degraded = both.iter().find(|policy| policy.status.conditions.is_true("Degraded"));
        let degraded = degraded.with_context(|| format!("no policy is degraded\n{}", setup.logs(10)))?;
        Ok((
            degraded.name_any(),
            degraded.status.conditions.first_true().context("it has no condition")?.message.clone(),
        ))
    })
    .await?;
    let (refused, message) = degraded;
    let other = if refused == "big" { "small" } else { "big" };
    ensure!(message.contains(other) && message.contains("interfaces[eth1].mtu"), "{message}");

    // From now on the API server calls the webhook and trusts its certificate.
    wait::until(LIMIT, "the webhook to be called", async || {
        api.kubectl(["delete", "--ignore-not-found", "nncp", "third"]).await?.success()?;
        let answer = apply(&api, "third", 1600).await?;
        let refusal = answer.success().err().with_context(|| setup.logs(10))?.to_string();
        ensure!(refusal.contains("interfaces[eth1].mtu is 1600 here"), "{refusal}");
        Ok(())
    })
    .await?;
    let fine = json!({"interfaces": [{"name": "eth2", "type": "ethernet", "state": "up"}]});
    apply_state(&api, "fine", &fine).await?.success()?;
    let fine = api.kubectl(["get", "nncp", "fine", "-o", "json"]).await?.json()?;
    let stamp = &fine["metadata"]["annotations"][names::MUTATION_TIMESTAMP_ANNOTATION];
    ensure!(stamp.as_str().is_some_and(|stamp| stamp.parse::<u64>().is_ok()), "{fine}");
    let misspelt = json!({"interfaces": [{"name": "eth2", "type": "ethernet", "mtuu": 1}]});
    let refusal =
        apply_state(&api, "misspelt", &misspelt).await?.success().err().context("it was accepted")?;
    ensure!(refusal.to_string().contains("did you mean \"mtu\""), "{refusal}");

    let metrics = curl(&lab, &["--tlsv1.3"]).await?.success()?;
    for line in ["kubernetes_nmstate_policies_status{status=\"Degraded\"} 1", "knmstate_leader 1"] {
        ensure!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
    }
    for which in ["serving", "authority"] {
        let start = format!("knmstate_certificate_expiry_timestamp_seconds{{certificate=\"{which}\"}} ");
        ensure!(metrics.lines().any(|found| found.starts_with(&start)), "{start} is not in\n{metrics}");
    }

    // The TLS profile of the cluster is used, and a change of it needs no restart.
    ensure!(
        curl(&lab, &["--tls-max", "1.2"]).await?.success().is_err(),
        "TLS 1.2 is accepted below the minimum"
    );
    std::fs::write(&profile, json!({"minTLSVersion": "VersionTLS12"}).to_string())?;
    wait::until(LIMIT, "TLS 1.2 to be accepted", async || curl(&lab, &["--tls-max", "1.2"]).await?.success())
        .await?;
    Ok(())
}
