//! The differences between two documents, value by value.

use std::collections::BTreeSet;

use serde_json::Value;

/// A line for each value that only one of them has.
pub fn difference(before: &Value, after: &Value) -> Vec<String> {
    let (before, after) = (leaves(before), leaves(after));
    let gone = before.difference(&after).map(|leaf| format!("- {leaf}"));
    gone.chain(after.difference(&before).map(|leaf| format!("+ {leaf}"))).collect()
}

fn leaves(document: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut left = vec![(String::new(), document)];
    while let Some((path, value)) = left.pop() {
        match value {
            Value::Object(entries) if !entries.is_empty() => {
                left.extend(entries.iter().map(|(key, value)| (format!("{path}.{key}"), value)));
            }
            Value::Array(entries) if !entries.is_empty() => {
                left.extend(
                    entries.iter().enumerate().map(|(index, value)| (format!("{path}[{index}]"), value)),
                );
            }
            leaf => {
                found.insert(format!("{path}: {leaf}"));
            }
        }
    }
    found
}
