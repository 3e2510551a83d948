//! A change that cannot be rolled back, or a journal that cannot be read, does not block the node.

use std::{
    fs::{self, DirBuilder},
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use rig::wait;
use serde_json::{Value, json};

use super::standalone::{StandaloneFixture, shown, with_address};

const SHORT_LIMIT: Duration = Duration::from_secs(20);
const SECRET: &str = "canary-of-the-journal";

impl StandaloneFixture {
    /// Writes the journal, as an earlier process may have left it.
    fn plant(&self, journal: &str) -> Result<()> {
        let directory = self.state.join("journal");
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        Ok(fs::write(directory.join("open-change.json"), journal)?)
    }

    /// The files in the directory of the journal.
    fn journal(&self) -> Result<Vec<PathBuf>> {
        let files = fs::read_dir(self.state.join("journal"))?;
        Ok(files.map(|file| Ok(file?.path())).collect::<std::io::Result<_>>()?)
    }

    /// The one file that was set aside. Fails if there is anything else.
    fn set_aside(&self) -> Result<PathBuf> {
        let files = self.journal()?;
        ensure!(files.len() == 1, "{files:?}");
        let name = files[0].file_name().and_then(|name| name.to_str()).context("a name")?;
        ensure!(name.starts_with("set-aside-2"), "{name}");
        let mode = fs::metadata(&files[0])?.permissions().mode() & 0o777;
        ensure!(mode == 0o600, "{mode:o}");
        Ok(files[0].clone())
    }

    fn node_state(&self) -> Result<Value> {
        Ok(serde_saphyr::from_str(&fs::read_to_string(self.output.join("nns-node1.yaml"))?)?)
    }
}

/// An entry whose revert nmstate refuses, of a NetworkManager that does not run any more.
fn unrevertible() -> String {
    let nic = json!({ "name": "eth9", "type": "ethernet", "state": "up", "mtu": 1400,
        "802.1x": { "identity": "node", "eap-methods": ["md5"], "password": SECRET } });
    json!({
        "checkpoint": "/org/freedesktop/NetworkManager/Checkpoint/1",
        "service": "another bus :1.7",
        "notedAtMs": 5,
        "committing": false,
        "before": { "interfaces": [{ "name": "eth9", "state": "up" }] },
        "revert": { "interfaces": [nic] },
        "touched": ["eth9"],
        "profiles": [],
    })
    .to_string()
}

#[tokio::test]
async fn a_change_that_cannot_be_rolled_back_is_set_aside_and_a_fresh_policy_becomes_available() -> Result<()>
{
    let fixture = StandaloneFixture::new().await?;
    fixture.plant(&unrevertible())?;
    fixture.policy("p", &with_address())?;
    let agent = fixture.start(&[])?;
    let status = fixture.settled("p").await?;
    assert_eq!(shown(&status), "Available SuccessfullyConfigured", "{status}");
    fixture.until_present("10.98.0.77").await?;

    let file = fixture.set_aside()?;
    let kept: Value = serde_json::from_str(&fs::read_to_string(&file)?)?;
    assert_eq!(kept["revert"]["interfaces"][0]["802.1x"]["password"], SECRET);
    let attempts = kept["attempts"].as_array().context("attempts")?;
    ensure!(
        attempts.len() >= 3 && attempts.iter().all(|attempt| attempt["why"].as_str() > Some("")),
        "{attempts:?}"
    );

    fixture.until_file(&fixture.output.join("nns-node1.yaml"), "setAside").await?;
    let state = fixture.node_state()?;
    let aside = &state["status"]["setAside"][0];
    assert_eq!((&aside["interfaces"], &aside["file"]), (&json!(["eth9"]), &json!(file)), "{aside}");
    ensure!(aside["reason"].as_str().is_some_and(|reason| reason.contains("eth9")), "{aside}");
    fixture.until_file(&fixture.output.join("nns-node1.yaml"), "10.98.0.77").await?;

    let log = agent.log_tail(1000);
    ensure!(log.contains("ERROR") && log.contains(&file.display().to_string()), "{log}");
    ensure!(!log.contains(SECRET), "{log}");
    for written in fs::read_dir(&fixture.output)? {
        ensure!(!fs::read_to_string(written?.path())?.contains(SECRET), "a secret is in the output");
    }
    drop(agent);

    // It is shown until the admin has removed the file.
    let again = fixture.once_with(&[]).await?;
    ensure!(again.stdout().contains("unchanged"), "{}{}", again.stdout(), again.stderr());
    assert_eq!(fixture.node_state()?["status"]["setAside"], state["status"]["setAside"]);
    fs::remove_file(file)?;
    fixture.once_with(&[]).await?;
    assert_eq!(fixture.node_state()?["status"].get("setAside"), None);
    Ok(())
}

#[tokio::test]
async fn attempts_are_counted_over_restarts() -> Result<()> {
    let fixture = StandaloneFixture::new().await?;
    fixture.plant(&unrevertible())?;
    for attempt in 1.. {
        let agent = fixture.start(&[])?;
        // Ends as soon as an attempt has failed.
        let made = wait::until(SHORT_LIMIT, "an attempt", async || {
            let Ok(text) = fs::read_to_string(fixture.state.join("journal/open-change.json")) else {
                return Ok(None);
            };
            let attempts = serde_json::from_str::<Value>(&text)?["attempts"].as_array().map_or(0, Vec::len);
            ensure!(attempts >= attempt, "{attempts}");
            Ok(Some(attempts))
        })
        .await?;
        drop(agent);
        if made.is_none() {
            break;
        }
    }
    fixture.set_aside().map(drop)
}

#[tokio::test]
async fn a_journal_that_cannot_be_read_is_set_aside_at_once() -> Result<()> {
    let fixture = StandaloneFixture::new().await?;
    fixture.policy("p", &with_address())?;
    let torn = format!("{{\"checkpoint\": null, \"revert\": \"{SECRET}");
    let newer = json!({ "version": 9, "way-back": SECRET }).to_string();
    for (journal, expected) in [(torn, "applied"), (newer, "unchanged")] {
        fixture.plant(&journal)?;
        let output = fixture.once_with(&[]).await?;
        ensure!(output.status.success(), "{}{}", output.stdout(), output.stderr());
        ensure!(output.stdout().contains(expected), "{}", output.stdout());
        let file = fixture.set_aside()?;
        assert_eq!(fs::read_to_string(&file)?, journal);
        let log = output.stderr();
        ensure!(log.contains(&file.display().to_string()) && !log.contains(SECRET), "{log}");
        let state = fixture.node_state()?;
        ensure!(
            state["status"]["setAside"][0]["reason"].as_str().is_some_and(|why| why.contains("damaged")),
            "{state}"
        );
        fs::remove_file(file)?;
    }
    Ok(())
}
