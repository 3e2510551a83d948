//! What becomes of policies that are written.

use super::*;

#[tokio::test]
async fn the_time_of_writing_is_noted_and_grows() -> Result<()> {
    let trial = Trial::new(Intervals::default()).await?;
    trial.apply("p", &mtu(1400)).await?.success()?;
    let first = timestamp(&trial.policy("p").await?)?;
    trial.apply("p", &mtu(1500)).await?.success()?;
    let second = timestamp(&trial.policy("p").await?)?;
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
    trial.api.kubectl(arguments).await?.success()?;
    let policy = trial.policy("p").await?;
    let conditions =
        policy.pointer("/status/conditions").and_then(Value::as_array).context("no conditions")?;
    let told: Vec<_> =
        conditions.iter().map(|condition| (&condition["type"], &condition["status"])).collect();
    let expected =
        ["Available", "Degraded", "Progressing", "Ignored"].map(|name| (json!(name), json!("Unknown")));
    ensure!(told == expected.each_ref().map(|(name, status)| (name, status)), "{told:?}");
    Ok(())
}

#[tokio::test]
async fn a_policy_that_cannot_work_is_refused_and_says_why() -> Result<()> {
    let trial = Trial::new(Intervals::default()).await?;
    let misspelt =
        json!({ "desiredState": { "interfaces": [{ "name": "eth1", "type": "ethernet", "mtuu": 1400 }] } });
    says(
        &trial.apply("bad", &misspelt).await?,
        &[
            "denied the request",
            "desiredState: interfaces[eth1].mtuu: unknown key \"mtuu\"; did you mean \"mtu\"?",
        ],
    )?;
    let dangling =
        json!({ "desiredState": { "interfaces": [{ "name": "{{ capture.gw.interfaces.0.name }}" }] } });
    says(
        &trial.apply("bad", &dangling).await?,
        &["desiredState.interfaces[0].name: there is no capture \"gw\"; there are no captures"],
    )?;
    ensure!(!trial.api.kubectl(["get", "nncp", "bad"]).await?.status.success(), "it is stored");

    // Before the others are known, a policy is let in and that is said.
    let answer = trial.apply("b", &mtu(1500)).await?;
    ensure!(answer.stderr().contains("was not compared with the others"), "{}", answer.stderr());
    answer.success()?;
    trial.refresh_catalogue(&["worker-1", "worker-2"]).await?;
    says(
        &trial.apply("a", &mtu(9000)).await?,
        &[
            "conflicts with policy \"b\" on node \"worker-1\" (and 1 more): interfaces[eth1].mtu is 9000 here and 1500 there",
            "change one of them, or select different nodes",
        ],
    )?;
    trial.apply("a", &mtu(1500)).await?.success()?;
    // It may change itself, be labelled and be deleted.
    trial.api.kubectl(["delete", "nncp", "a"]).await?.success()?;
    trial.apply("b", &mtu(9000)).await?.success()?;
    trial.api.kubectl(["label", "nncp", "b", "a=b"]).await?.success()?;
    trial.api.kubectl(["delete", "nncp", "b"]).await?.success()?;
    Ok(())
}
