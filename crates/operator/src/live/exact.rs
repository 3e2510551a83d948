//! Whether an object has nothing more than what was applied.
//!
//! Server-side apply keeps additions of other clients, such as a match condition that disables a guard, or a peer that a
//! NetworkPolicy lets in. Objects that protect others must not have any.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::{Map, Value};

use crate::kinds::Kind;

/// Kinds that may not have additions of other clients.
const EXACT: [&str; 7] = [
    "ClusterRole",
    "ClusterRoleBinding",
    "NetworkPolicy",
    "Role",
    "RoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];

/// Whether objects of this kind may not have additions of other clients.
pub(crate) fn must_be_exact(kind: &Kind) -> bool {
    EXACT.contains(&kind.kind)
}

/// Whether another field manager than `manager` owns a field outside of metadata and status that `manager` does not own.
pub(crate) fn has_additions(fields: &[ManagedFieldsEntry], manager: &str) -> bool {
    let is_ours = |entry: &&ManagedFieldsEntry| entry.manager.as_deref() == Some(manager);
    let (ours, others): (Vec<_>, Vec<_>) = fields.iter().partition(is_ours);
    let ours: Vec<&Map<String, Value>> = ours.into_iter().filter_map(owned_fields).collect();
    let of_contents = |(key, _): &(&String, &Value)| !matches!(key.as_str(), "f:metadata" | "f:status");
    let mut theirs =
        others.into_iter().filter_map(owned_fields).flat_map(|fields| fields.iter().filter(of_contents));
    theirs.any(|(key, value)| is_more(key, value, &ours))
}

fn owned_fields(entry: &ManagedFieldsEntry) -> Option<&Map<String, Value>> {
    entry.fields_v1.as_ref().and_then(|fields| fields.0.as_object())
}

/// Whether there is a field at or below this key that we do not own.
fn is_more(key: &str, value: &Value, ours: &[&Map<String, Value>]) -> bool {
    // In managedFields, a dot is the item itself.
    if key == "." {
        return false;
    }
    let same: Vec<&Value> = ours.iter().filter_map(|fields| fields.get(key)).collect();
    if same.is_empty() {
        return true;
    }
    let below: Vec<&Map<String, Value>> = same.into_iter().filter_map(Value::as_object).collect();
    // An empty map means that we own the whole field.
    if below.iter().any(|fields| fields.is_empty()) {
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
