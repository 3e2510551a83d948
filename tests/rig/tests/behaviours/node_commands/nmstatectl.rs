//! The same program, called as `nmstatectl`.

use super::*;

#[tokio::test]
async fn called_as_nmstatectl_it_accepts_the_arguments_of_nmstatectl() -> Result<()> {
    let fixture = CommandFixture::new().await?;
    let before = fixture.node.snapshot().await?;
    std::os::unix::fs::symlink(&fixture.program, fixture.lab.directory().join("nmstatectl"))?;
    let version = fixture.nmstatectl(&["--version"], "").await?.success()?;
    ensure!(version.starts_with("nmstatectl 2.2."), "{version}");
    // What the liveness probe of kubernetes-nmstate calls.
    for words in [&["show", "lo"][..], &["show", "lo", "-vv"]] {
        let shown = fixture.nmstatectl(words, "").await?.success()?;
        ensure!(shown.starts_with("---\n") && shown.contains("name: lo"), "{shown}");
    }
    ensure!(fixture.nmstatectl(&["show", "--json"], "").await?.json()?["interfaces"].is_array());

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
        let output = fixture.nmstatectl(words, &state).await?;
        ensure!(output.status.code() == Some(code), "{words:?}: {}{}", output.stdout(), output.stderr());
        if words == ["rollback"] && code == 0 {
            fixture.node.wait_until_restored(&before, SHORT_LIMIT).await?;
        }
    }
    fixture.until_present(ADDRESS).await?;
    let statistic = fixture.nmstatectl(&["st", "-"], &state).await?.success()?;
    ensure!(statistic.contains("features:"), "{statistic}");
    let policy = json!({ "capture": { "gw": "routes.running.destination==\"0.0.0.0/0\"" },
        "desiredState": { "interfaces": [{ "name": "{{ capture.gw.routes.running.0.next-hop-interface }}", "mtu": 1420 }] } });
    let resolved = fixture.nmstatectl(&["policy", "--json", "-"], &policy.to_string()).await?.json()?;
    assert_eq!(resolved["interfaces"][0]["name"], "eth0", "{resolved}");
    Ok(())
}
