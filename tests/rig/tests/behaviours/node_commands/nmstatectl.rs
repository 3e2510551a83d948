//! The same program under another name.

use super::*;

#[tokio::test]
async fn under_the_name_nmstatectl_it_takes_its_words() -> Result<()> {
    let trial = Trial::new().await?;
    let before = trial.node.snapshot().await?;
    std::os::unix::fs::symlink(&trial.program, trial.lab.folder().join("nmstatectl"))?;
    let version = trial.nmstatectl(&["--version"], "").await?.success()?;
    ensure!(version.starts_with("nmstatectl 2.2."), "{version}");
    // What the liveness probe of kubernetes-nmstate calls.
    for words in [&["show", "lo"][..], &["show", "lo", "-vv"]] {
        let shown = trial.nmstatectl(words, "").await?.success()?;
        ensure!(shown.starts_with("---\n") && shown.contains("name: lo"), "{shown}");
    }
    ensure!(trial.nmstatectl(&["show", "--json"], "").await?.json()?["interfaces"].is_array());

    let state = with_address().to_string();
    for (words, code) in [
        (&["set", "--no-commit", "--timeout", "60", "-"][..], 0),
        (&["apply", "-"], 1),
        (&["rollback"], 0),
        (&["rollback"], 1),
        (&["apply", "--no-commit"], 0),
        (&["commit"], 0),
        (&["apply", "-v", "-"], 0),
    ] {
        let output = trial.nmstatectl(words, &state).await?;
        ensure!(output.status.code() == Some(code), "{words:?}: {}{}", output.stdout(), output.stderr());
        if words == ["rollback"] && code == 0 {
            trial.node.is_again(&before, SOON).await?;
        }
    }
    trial.has(ADDRESS).await?;
    let statistic = trial.nmstatectl(&["st", "-"], &state).await?.success()?;
    ensure!(statistic.contains("features:"), "{statistic}");
    let policy = json!({ "capture": { "gw": "routes.running.destination==\"0.0.0.0/0\"" },
        "desiredState": { "interfaces": [{ "name": "{{ capture.gw.routes.running.0.next-hop-interface }}", "mtu": 1420 }] } });
    let meant = trial.nmstatectl(&["policy", "--json", "-"], &policy.to_string()).await?.json()?;
    assert_eq!(meant["interfaces"][0]["name"], "eth0", "{meant}");
    Ok(())
}
