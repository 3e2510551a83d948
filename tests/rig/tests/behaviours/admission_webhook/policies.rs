//! Mutation and validation of policies.

use super::*;

#[tokio::test]
async fn the_mutation_timestamp_is_set_and_grows() -> Result<()> {
    let fixture = WebhookFixture::new(RotationIntervals::default()).await?;
    fixture.apply("p", &mtu(1400)).await?.success()?;
    let first = timestamp(&fixture.policy("p").await?)?;
    fixture.apply("p", &mtu(1500)).await?.success()?;
    let second = timestamp(&fixture.policy("p").await?)?;
    ensure!(second > first, "{second} is not after {first}");

    // A status without conditions gets all four.
    let arguments = [
        "patch",
        "nncp",
        "p",
        "--subresource=status",
        "--type=merge",
        "-p",
        r#"{"status":{"conditions":[]}}"#,
    ];
    fixture.api.kubectl(arguments).await?.success()?;
    let policy = fixture.policy("p").await?;
    let conditions =
        policy.pointer("/status/conditions").and_then(Value::as_array).context("no conditions")?;
    let shown: Vec<_> =
        conditions.iter().map(|condition| (&condition["type"], &condition["status"])).collect();
    let expected =
        ["Available", "Degraded", "Progressing", "Ignored"].map(|name| (json!(name), json!("Unknown")));
    ensure!(shown == expected.each_ref().map(|(name, status)| (name, status)), "{shown:?}");
    Ok(())
}

#[tokio::test]
async fn a_policy_that_cannot_work_is_refused_with_the_reason() -> Result<()> {
    let fixture = WebhookFixture::new(RotationIntervals::default()).await?;
    let misspelt =
        json!({ "desiredState": { "interfaces": [{ "name": "eth1", "type": "ethernet", "mtuu": 1400 }] } });
    refused_with(
        &fixture.apply("bad", &misspelt).await?,
        &[
            "denied the request",
            "desiredState: interfaces[eth1].mtuu: unknown key \"mtuu\"; did you mean \"mtu\"?",
        ],
    )?;
    let dangling =
        json!({ "desiredState": { "interfaces": [{ "name": "{{ capture.gw.interfaces.0.name }}" }] } });
    refused_with(
        &fixture.apply("bad", &dangling).await?,
        &["desiredState.interfaces[0].name: there is no capture \"gw\"; there are no captures"],
    )?;
    ensure!(!fixture.api.kubectl(["get", "nncp", "bad"]).await?.status.success(), "it is stored");

    // While the other policies are not known, a policy is accepted with a warning.
    let answer = fixture.apply("b", &mtu(1500)).await?;
    ensure!(answer.stderr().contains("was not compared with the others"), "{}", answer.stderr());
    answer.success()?;
    fixture.refresh_policy_index(&["worker-1", "worker-2"]).await?;
    refused_with(
        &fixture.apply("a", &mtu(9000)).await?,
        &[
            "conflicts with policy \"b\" on node \"worker-1\" (and 1 more): interfaces[eth1].mtu is 9000 here and 1500 there",
            "change one of them, or select different nodes",
        ],
    )?;
    fixture.apply("a", &mtu(1500)).await?.success()?;
    // A policy does not conflict with itself, and it can be labelled and deleted.
    fixture.api.kubectl(["delete", "nncp", "a"]).await?.success()?;
    fixture.apply("b", &mtu(9000)).await?.success()?;
    fixture.api.kubectl(["label", "nncp", "b", "a=b"]).await?.success()?;
    fixture.api.kubectl(["delete", "nncp", "b"]).await?.success()?;
    Ok(())
}
