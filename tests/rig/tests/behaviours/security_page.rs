//! The example in docs/security.md, on a real API server: what it accepts and what it refuses.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rig::{ApiServer, Lab, Settings, wait};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_mins(1);
const PAGE: &str = include_str!("../../../../docs/security.md");
const EDITOR: [&str; 2] = ["--as=erin", "--as-group=storage-network-editors"];

#[tokio::test]
async fn the_example_of_the_security_page_narrows_what_a_group_may_write() -> Result<()> {
    let lab = Lab::new().await?;
    let api = lab.api_server().start().await?;
    api.install_product_objects(&Settings::default()).await?;
    api.kubectl_with(example()?, ["apply", "--server-side", "-f", "-"]).await?.success()?;

    let good = json!({ "nodeSelector": { "example.org/storage": "" }, "maxUnavailable": 1, "desiredState": { "interfaces": [
        { "name": "storage0", "type": "ethernet", "state": "up", "mtu": 9000, "ipv4": { "enabled": true,
          "address": [{ "ip": "192.0.2.7", "prefix-length": 24 }] } },
    ] } });
    let with = |path: &str, value: Value| -> Result<Value> {
        let mut spec = good.clone();
        let (parent, key) = path.rsplit_once('/').context("a path")?;
        let parent = spec.pointer_mut(parent).and_then(Value::as_object_mut).context("a map")?;
        parent.insert(key.to_owned(), value);
        Ok(spec)
    };
    // New rules are in force after a delay. Until then the policy is accepted, so no other step uses its name.
    wait::until(LIMIT, "the example to be in force", async || {
        let refusal = policy(&api, &EDITOR, "probe", &good).await?;
        ensure!(refusal.contains("must begin with storage-"), "{refusal}");
        Ok(())
    })
    .await?;
    let interface = "/desiredState/interfaces/0";
    let cases = [
        (good.clone(), ""),
        (with("/nodeSelector", json!({ "kubernetes.io/os": "linux" }))?, "must have example.org/storage"),
        (with("/capture", json!({ "a": "interfaces.name==\"eth0\"" }))?, "only nodeSelector, maxUnavailable"),
        (with("/probes", json!([]))?, "only nodeSelector, maxUnavailable"),
        (with("/desiredState/routes", json!({ "config": [] }))?, "only interfaces may be configured"),
        (with(&format!("{interface}/name"), json!("eth0"))?, "only interfaces named storage0"),
        (with(&format!("{interface}/name"), json!("{{ values.nic }}"))?, "only interfaces named storage0"),
        (with(&format!("{interface}/identifier"), json!("mac-address"))?, "only name, type, state, mtu"),
        (with(&format!("{interface}/bridge"), json!({ "port": [] }))?, "only name, type, state, mtu"),
        (with(&format!("{interface}/ipv4/dhcp"), json!(true))?, "only static IPv4"),
        (with(&format!("{interface}/ipv4"), json!("{{ values.ipv4 }}"))?, "denied"),
        (with("/desiredState/interfaces", json!("{{ values.all }}"))?, "denied"),
    ];
    for (number, (spec, expected)) in cases.into_iter().enumerate() {
        let refusal = policy(&api, &EDITOR, &format!("storage-{number}"), &spec).await?;
        let as_expected = if expected.is_empty() { refusal.is_empty() } else { refusal.contains(expected) };
        ensure!(as_expected, "{spec}: {refusal}");
    }
    // Other clients are not affected; what they have written cannot be changed or deleted by the group.
    let anything = json!({ "maxUnavailable": 1, "desiredState": { "dns-resolver": { "config": {} } } });
    assert_eq!(policy(&api, &[], "other", &anything).await?, "");
    let delete = |name: &'static str| api.kubectl(["delete", "nncp", name].into_iter().chain(EDITOR));
    let refusal = delete("other").await?;
    ensure!(refusal.stderr().contains("must begin with storage-"), "{}", refusal.stderr());
    delete("storage-0").await?.success()?;
    let (states, nmstates) = ("nodenetworkstates.nmstate.io", "nmstates.nmstate.io");
    for resource in [states, nmstates] {
        let allowed = api.kubectl(["auth", "can-i", "patch", resource].into_iter().chain(EDITOR)).await?;
        assert_eq!(allowed.stdout().trim(), "no", "{resource}");
    }
    Ok(())
}

/// The YAML of the page.
fn example() -> Result<&'static str> {
    let (_, rest) = PAGE.split_once("```yaml\n").context("an example")?;
    let (example, rest) = rest.split_once("```").context("its end")?;
    ensure!(!rest.contains("```yaml"), "there is a second example, which is not tested");
    Ok(example)
}

/// Applies a policy as a client. Returns the refusal, or an empty string.
async fn policy(api: &ApiServer, client: &[&'static str], name: &str, spec: &Value) -> Result<String> {
    let manifest = json!({ "apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy",
        "metadata": { "name": name }, "spec": spec });
    let apply =
        ["apply", "--server-side", "--force-conflicts", "-f", "-"].into_iter().chain(client.iter().copied());
    let answer = api.kubectl_with(&manifest.to_string(), apply).await?;
    let refusal = answer.stderr().trim().to_owned();
    ensure!(answer.status.success() == refusal.is_empty(), "{refusal}");
    Ok(refusal)
}
