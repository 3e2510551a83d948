//! A command on the node, and what its output must contain.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use rig::{shell::Shell, wait};
use serde::Deserialize;
use serde_json::Value;

/// DHCP leases and the states of bonds and bridges come a little after everything else.
const SHORT_LIMIT: Duration = Duration::from_secs(20);
const COMMAND_LIMIT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Check {
    /// A shell command.
    run: String,
    /// A subset of the JSON that it prints.
    #[serde(default)]
    shows: Option<Value>,
    /// Texts that its output contains.
    #[serde(default)]
    contains: Vec<String>,
    /// Texts that its output does not contain.
    #[serde(default)]
    lacks: Vec<String>,
}

impl Check {
    /// Checks the texts that an output must and must not contain.
    pub(super) fn passes_with(&self, text: &str) -> Result<()> {
        for expected in &self.contains {
            ensure!(text.contains(expected), "{}: {expected:?} is not in: {text}", self.run);
        }
        for unexpected in &self.lacks {
            ensure!(!text.contains(unexpected), "{}: {unexpected:?} is in: {text}", self.run);
        }
        Ok(())
    }

    async fn passes(&self, node: &impl Shell) -> Result<()> {
        ensure!(
            self.shows.is_some() || !(self.contains.is_empty() && self.lacks.is_empty()),
            "{}: nothing is expected",
            self.run
        );
        let output = node.run_script(&self.run, COMMAND_LIMIT).await?;
        // An error can be what is expected, such as that an interface does not exist.
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
        wait::until(SHORT_LIMIT, "the expected state", async || check.passes(node).await).await?;
    }
    Ok(())
}

/// Whether at least one of them fails now.
pub(super) async fn some_fail(checks: &[Check], node: &impl Shell) -> bool {
    for check in checks {
        if check.passes(node).await.is_err() {
            return true;
        }
    }
    false
}

/// Whether `expected` is a subset of `found`: the keys of maps, and the entries of lists in any order.
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
fn expected_values_can_be_a_subset() {
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
