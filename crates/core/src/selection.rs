//! Which nodes a policy selects.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use knmstate_api::NodeNetworkConfigurationPolicySpec;

/// Whether a policy selects a node with these labels. A policy without selectors selects every node.
pub fn selects(policy: &NodeNetworkConfigurationPolicySpec, labels: &BTreeMap<String, String>) -> bool {
    has_all(&policy.node_selector, labels)
        && policy.node_label_selector.as_ref().is_none_or(|selector| meets(selector, labels))
}

fn has_all(wanted: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

pub(crate) fn meets(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    selector.match_labels.as_ref().is_none_or(|wanted| has_all(wanted, labels))
        && selector.match_expressions.iter().flatten().all(|requirement| meets_one(requirement, labels))
}

/// An unknown operator selects nothing; the API server refuses it.
fn meets_one(requirement: &LabelSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let value = labels.get(&requirement.key);
    let is_listed = || value.is_some_and(|value| requirement.values.iter().flatten().any(|one| one == value));
    match requirement.operator.as_str() {
        "In" => is_listed(),
        "NotIn" => !is_listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn labels_decide() {
        let labels =
            BTreeMap::from([("role".to_owned(), "worker".to_owned()), ("ssd".to_owned(), String::new())]);
        let by_expression = |key: &str, operator: &str, values: &[&str]| {
            let expression = json!({ "key": key, "operator": operator, "values": values });
            json!({ "nodeLabelSelector": { "matchExpressions": [expression] } })
        };
        let table: [(Value, bool); 15] = [
            (json!({}), true),
            (json!({ "nodeSelector": { "role": "worker" } }), true),
            (json!({ "nodeSelector": { "role": "worker", "ssd": "" } }), true),
            (json!({ "nodeSelector": { "role": "master" } }), false),
            (json!({ "nodeSelector": { "gpu": "" } }), false),
            (json!({ "nodeLabelSelector": { "matchLabels": { "role": "worker" } } }), true),
            (json!({ "nodeLabelSelector": { "matchLabels": { "role": "master" } } }), false),
            (
                json!({ "nodeSelector": { "role": "worker" }, "nodeLabelSelector": { "matchLabels": { "gpu": "" } } }),
                false,
            ),
            (by_expression("role", "In", &["worker", "infra"]), true),
            (by_expression("role", "In", &["infra"]), false),
            (by_expression("role", "NotIn", &["infra"]), true),
            (by_expression("gpu", "NotIn", &["infra"]), true),
            (by_expression("ssd", "Exists", &[]), true),
            (by_expression("ssd", "DoesNotExist", &[]), false),
            (by_expression("ssd", "Like", &[]), false),
        ];
        for (spec, expected) in table {
            let policy = serde_json::from_value(spec.clone()).unwrap();
            assert_eq!(selects(&policy, &labels), expected, "{spec}");
        }
    }
}
