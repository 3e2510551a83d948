//! Whether an object is what was applied and nothing more.
//!
//! Applying leaves alone what others have added: a condition that makes a guard look away, a peer that a network policy
//! lets in. For what others' safety hangs on that is not good enough.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::{Map, Value};

use crate::catalogue::Kind;

/// Kinds that must be exactly as they are said to be.
const EXACT: [&str; 7] = [
    "ClusterRole",
    "ClusterRoleBinding",
    "NetworkPolicy",
    "Role",
    "RoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];

/// Whether objects of this kind must be exactly as they are said to be.
pub fn must_be_exact(kind: &Kind) -> bool {
    EXACT.contains(&kind.kind)
}

/// Whether somebody else than `manager` has added something, besides labels and the like.
pub fn has_additions(fields: &[ManagedFieldsEntry], manager: &str) -> bool {
    let is_ours = |entry: &&ManagedFieldsEntry| entry.manager.as_deref() == Some(manager);
    let (ours, others): (Vec<_>, Vec<_>) = fields.iter().partition(is_ours);
    let ours: Vec<&Map<String, Value>> = ours.into_iter().filter_map(said).collect();
    let of_contents = |(key, _): &(&String, &Value)| !matches!(key.as_str(), "f:metadata" | "f:status");
    let mut theirs = others.into_iter().filter_map(said).flat_map(|said| said.iter().filter(of_contents));
    theirs.any(|(key, value)| is_more(key, value, &ours))
}

fn said(entry: &ManagedFieldsEntry) -> Option<&Map<String, Value>> {
    entry.fields_v1.as_ref().and_then(|fields| fields.0.as_object())
}

/// Whether there is anything at or below this key that none of us has said.
fn is_more(key: &str, value: &Value, ours: &[&Map<String, Value>]) -> bool {
    // A dot stands for the item itself.
    if key == "." {
        return false;
    }
    let same: Vec<&Value> = ours.iter().filter_map(|said| said.get(key)).collect();
    if same.is_empty() {
        return true;
    }
    let below: Vec<&Map<String, Value>> = same.into_iter().filter_map(Value::as_object).collect();
    // What we have said as a whole is ours as a whole.
    if below.iter().any(|said| said.is_empty()) {
        return false;
    }
    value.as_object().into_iter().flatten().any(|(key, value)| is_more(key, value, &below))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::FieldsV1;
    use serde_json::json;

    use super::*;

    fn entry(manager: &str, fields: Value) -> ManagedFieldsEntry {
        ManagedFieldsEntry {
            manager: Some(manager.to_owned()),
            fields_v1: Some(FieldsV1(fields)),
            ..ManagedFieldsEntry::default()
        }
    }

    #[test]
    fn only_what_others_have_added_counts() {
        let ours = || {
            entry(
                "us",
                json!({"f:spec": {"f:policyName": {}, "f:validationActions": {".": {}, "v:\"Deny\"": {}}}}),
            )
        };
        for (theirs, expected) in [
            (json!({"f:metadata": {"f:labels": {"f:x": {}}}}), false),
            (json!({"f:status": {"f:x": {}}}), false),
            (json!({"f:spec": {"f:policyName": {}}}), false),
            (json!({"f:spec": {"f:validationActions": {".": {}, "v:\"Deny\"": {}}}}), false),
            (json!({"f:spec": {"f:validationActions": {"v:\"Warn\"": {}}}}), true),
            (json!({"f:spec": {"f:matchResources": {"f:namespaceSelector": {}}}}), true),
            (json!({"f:rules": {}}), true),
        ] {
            assert_eq!(has_additions(&[ours(), entry("them", theirs.clone())], "us"), expected, "{theirs}");
        }
        assert!(!has_additions(&[ours(), ours()], "us"));
        let whole = entry("us", json!({"f:rules": {}}));
        assert!(!has_additions(&[whole, entry("them", json!({"f:rules": {}}))], "us"));
    }
}
