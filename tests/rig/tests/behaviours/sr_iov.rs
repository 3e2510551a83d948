//! Virtual functions of a NIC: they are reported, and restored when a change of them fails.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rig::{Lab, Output, UmlNode, binaries, process::Invocation};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_mins(4);

#[tokio::test]
async fn a_failed_change_restores_the_former_functions() -> Result<()> {
    let lab = Lab::new().await?;
    let node = lab.uml_node("node1").simulated_nics(1).start().await?;
    let settings = json!([
        { "id": 0, "mac-address": "02:98:00:00:00:A0", "vlan-id": 102, "qos": 5, "trust": true, "spoof-check": true,
          "min-tx-rate": 100, "max-tx-rate": 1000 },
        { "id": 1, "mac-address": "02:98:00:00:00:A1", "vlan-id": 0, "trust": false, "spoof-check": false },
    ]);
    let outcome = once(&node, &json!({ "desiredState": functions(2, &settings) })).await?;
    ensure!(outcome.stdout().contains("applied"), "{}{}", outcome.stdout(), outcome.stderr());
    let before = in_kernel(&node).await?;
    assert_eq!(before.as_array().map(Vec::len), Some(2), "{before:#}");
    reported(&node, 2, &settings).await?;

    // No host has this address, so the change is applied and its probe fails.
    let probes = json!([{ "name": "no-host", "timeout": "3s", "ping": { "host": "10.99.0.99" } }]);
    let other = json!([{ "id": 0, "mac-address": "02:98:00:00:00:B0", "vlan-id": 103, "trust": false }]);
    let outcome = once(&node, &json!({ "desiredState": functions(3, &other), "probes": probes })).await?;
    ensure!(
        outcome.stdout().contains("failed") && outcome.stdout().contains("rolled back"),
        "{}{}",
        outcome.stdout(),
        outcome.stderr()
    );
    assert_eq!(in_kernel(&node).await?, before);
    reported(&node, 2, &settings).await
}

fn functions(count: u32, settings: &Value) -> Value {
    json!({ "interfaces": [{ "name": "sim0", "type": "ethernet", "state": "up",
        "ethernet": { "sr-iov": { "total-vfs": count, "vfs": settings } } }] })
}

/// Applies a policy with this spec.
async fn once(node: &UmlNode, spec: &Value) -> Result<Output> {
    let policy = json!({ "apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy",
        "metadata": { "name": "functions" }, "spec": spec });
    let program = UmlNode::path_inside(&binaries::knmstate().await?)?;
    let script = format!(
        "mkdir -p /run/policies && cat >/run/policies/functions.json && \
         {program} standalone --once --policies=/run/policies --state-dir=/run/state"
    );
    let call = Invocation::new(["sh", "-c", &script]).stdin(policy.to_string()).env("RUST_BACKTRACE", "0");
    node.exec_with(call, LIMIT).await
}

/// The functions in the kernel.
async fn in_kernel(node: &UmlNode) -> Result<Value> {
    let links = node.exec(["ip", "-j", "link", "show", "sim0"]).await?.json()?;
    Ok(links[0]["vfinfo_list"].clone())
}

/// Checks that all of them are reported, with an interface each.
async fn reported(node: &UmlNode, count: u32, settings: &Value) -> Result<()> {
    let shown =
        node.run_binary(&binaries::knmstate().await?, ["node", "show", "--json"], "").await?.json()?;
    let interfaces = shown["interfaces"].as_array().context("a list of interfaces")?;
    let nic = interfaces.iter().find(|nic| nic["name"] == "sim0").context("sim0 is not reported")?;
    let found = &nic["ethernet"]["sr-iov"];
    ensure!(found["total-vfs"] == count, "{found:#}");
    for (index, expected) in settings.as_array().into_iter().flatten().enumerate() {
        let function = &found["vfs"][index];
        for (key, value) in expected.as_object().into_iter().flatten() {
            ensure!(function[key] == *value, "{key} is not {value}: {function:#}");
        }
        ensure!(function["iface-name"] == format!("sim0v{index}"), "{function:#}");
    }
    Ok(())
}
