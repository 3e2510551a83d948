//! One look at the kernel, or at whoever else has to know: what it should show.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use rig::{shell::Shell, wait};
use serde::Deserialize;
use serde_json::Value;

/// Addresses by DHCP and states of bonds and bridges come a little after everything else.
const SOON: Duration = Duration::from_secs(20);
const COMMAND_LIMIT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Check {
    /// A line of shell.
    run: String,
    /// What it prints as JSON has all of this in it.
    #[serde(default)]
    shows: Option<Value>,
    /// What it prints has these texts in it.
    #[serde(default)]
    says: Vec<String>,
    /// And not these.
    #[serde(default)]
    lacks: Vec<String>,
}

impl Check {
    /// Whether a text is as expected.
    pub(super) fn passes_with(&self, text: &str) -> Result<()> {
        for said in &self.says {
            ensure!(text.contains(said), "{}: {said:?} is not in: {text}", self.run);
        }
        for lacked in &self.lacks {
            ensure!(!text.contains(lacked), "{}: {lacked:?} is in: {text}", self.run);
        }
        Ok(())
    }

    async fn passes(&self, node: &impl Shell) -> Result<()> {
        ensure!(
            self.shows.is_some() || !(self.says.is_empty() && self.lacks.is_empty()),
            "{}: nothing is expected",
            self.run
        );
        let output = node.lines(&self.run, COMMAND_LIMIT).await?;
        // A card that is not there may be what is expected.
        let text = format!("{}{}", output.stdout(), output.stderr());
        self.passes_with(&text)?;
        if let Some(expected) = &self.shows {
            let found: Value = match serde_json::from_str(&output.stdout()) {
                Ok(found) => found,
                Err(error) => bail!("{}: {error}: {text}", self.run),
            };
            ensure!(has(&found, expected), "{}: {expected} is not in: {found}", self.run);
        }
        Ok(())
    }
}

/// Waits until all of them pass.
pub(super) async fn all_pass(checks: &[Check], node: &impl Shell) -> Result<()> {
    for check in checks {
        wait::until(SOON, "what is expected", async || check.passes(node).await).await?;
    }
    Ok(())
}

/// Whether not all of them pass, now.
pub(super) async fn some_fail(checks: &[Check], node: &impl Shell) -> bool {
    for check in checks {
        if check.passes(node).await.is_err() {
            return true;
        }
    }
    false
}

/// Whether everything that is expected is in what was found: keys in maps, entries in lists in any order.
fn has(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            expected.iter().all(|(key, expected)| found.get(key).is_some_and(|found| has(found, expected)))
        }
        (Value::Array(found), Value::Array(expected)) => {
            expected.iter().all(|expected| found.iter().any(|found| has(found, expected)))
        }
        _ => found == expected,
    }
}

#[test]
fn what_is_expected_may_be_less_than_what_is_there() {
    use serde_json::json;
    let found = json!([{ "name": "a", "flags": ["UP", "LOWER_UP"] }, { "name": "b", "mtu": 1400 }]);
    for (expected, is_there) in [
        (json!([{ "mtu": 1400 }]), true),
        (json!([{ "name": "b", "mtu": 1400 }, { "flags": ["LOWER_UP"] }]), true),
        (json!([{ "name": "a", "mtu": 1400 }]), false),
        (json!([{ "flags": ["DOWN"] }]), false),
        (json!({ "name": "a" }), false),
    ] {
        assert_eq!(has(&found, &expected), is_there, "{expected}");
    }
}
