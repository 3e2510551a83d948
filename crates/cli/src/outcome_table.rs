//! The result of each policy as a table for a terminal.

use std::{fmt::Write as _, path::Path};

use knmstate_agent::{OrderOutcome, OrderSuccess};

/// One line of the table.
pub struct Row<'a> {
    pub policy: &'a str,
    pub file: Option<&'a Path>,
    pub result: Result<Option<OrderSuccess>, &'a str>,
}

impl<'a> Row<'a> {
    pub fn of(outcome: &'a OrderOutcome, file: Option<&'a Path>) -> Self {
        let result = outcome.result.as_ref().map(|success| Some(*success)).map_err(String::as_str);
        Self { policy: &outcome.policy, file, result }
    }

    /// A policy that selects other machines.
    pub fn not_selected(policy: &'a str) -> Self {
        Self { policy, file: None, result: Ok(None) }
    }
}

const WIDTH: usize = 80;
const INDENT: &str = "    ";

/// The table. What failed is explained below its line, folded to the width of a terminal.
pub fn table(rows: &[Row<'_>]) -> String {
    let width = rows.iter().map(|row| row.policy.len()).max().unwrap_or(0).max("POLICY".len());
    let mut text = format!("{:width$}  {:9}  TIME\n", "POLICY", "RESULT");
    for row in rows {
        let (result, time) = match row.result {
            Ok(Some(OrderSuccess::Changed { took })) => ("applied", format!("{:.1} s", took.as_secs_f64())),
            Ok(Some(OrderSuccess::Unchanged)) => ("unchanged", String::new()),
            Ok(None) => ("not selected", String::new()),
            Err(_) => ("failed", String::new()),
        };
        let line = format!("{:width$}  {result:9}  {time}", row.policy);
        let _ = writeln!(text, "{}", line.trim_end());
        if let Err(why) = row.result {
            let place = row.file.map(|file| format!("{}: ", file.display())).unwrap_or_default();
            for line in folded(&format!("{place}{why}"), WIDTH - INDENT.len()) {
                let _ = writeln!(text, "{INDENT}{line}");
            }
        }
    }
    text
}

/// Lines of at most `width` characters, broken between words; a longer word has a line of its own.
fn folded(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_result_has_its_line_and_a_failure_its_reason() {
        let rows = [
            Row {
                policy: "bridge",
                file: None,
                result: Ok(Some(OrderSuccess::Changed { took: Duration::from_millis(1849) })),
            },
            Row { policy: "name-servers", file: None, result: Ok(Some(OrderSuccess::Unchanged)) },
            Row::not_selected("gpu"),
            Row {
                policy: "cut-off",
                file: Some(Path::new("/etc/policies/30-cut-off.yaml")),
                result: Err(
                    "probe \"default-gateway\" failed 0.4 s after the change: no default route is left; rolled back",
                ),
            },
        ];
        let expected = "\
POLICY        RESULT     TIME
bridge        applied    1.8 s
name-servers  unchanged
gpu           not selected
cut-off       failed
    /etc/policies/30-cut-off.yaml: probe \"default-gateway\" failed 0.4 s after
    the change: no default route is left; rolled back
";
        assert_eq!(table(&rows), expected);
        assert!(expected.lines().all(|line| line.len() <= WIDTH));
    }
}
