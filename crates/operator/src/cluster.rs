//! The properties of the cluster that the operands depend on.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    ByteString,
    api::core::v1::{Taint, Toleration},
};

use crate::kinds::Kind;

/// The properties of the cluster that the operands depend on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClusterInfo {
    /// Whether the cluster has the security of OpenShift.
    pub openshift: bool,
    /// Kinds of this cluster that not every cluster has, by `apiVersion` and `kind`.
    pub kinds: BTreeSet<(String, String)>,
    /// The ports of the API server behind its Service.
    pub api_ports: BTreeSet<u16>,
    pub nodes: BTreeMap<String, NodeInfo>,
    /// Whether there is a ClusterRole `cluster-reader`, which aggregates rights to read.
    pub cluster_reader: bool,
    /// Whether the operator has created the namespace of the operands, or will create it.
    pub own_namespace: bool,
    /// The TLS profile of the cluster as a file for the controller, if it has one.
    pub tls_profile: Option<String>,
    /// The CA bundle that the controllers have published.
    pub ca_bundle: Option<ByteString>,
}

impl ClusterInfo {
    /// Whether the cluster has a kind.
    pub(crate) fn has(&self, kind: &Kind) -> bool {
        kind.built_in || self.kinds.contains(&(kind.api_version.to_owned(), kind.kind.to_owned()))
    }

    /// How many nodes could run a pod with this selector and these tolerations.
    pub(crate) fn room_for(&self, selector: &BTreeMap<String, String>, tolerations: &[Toleration]) -> usize {
        self.nodes.values().filter(|node| node.takes(selector, tolerations)).count()
    }
}

/// The fields of a node that decide whether a pod can run on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeInfo {
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
}

impl NodeInfo {
    fn takes(&self, selector: &BTreeMap<String, String>, tolerations: &[Toleration]) -> bool {
        let selected = selector.iter().all(|(key, value)| self.labels.get(key) == Some(value));
        let keeps_away = |taint: &&Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
        // Taints of nodes that are cordoned, not ready or under pressure are temporary.
        let lasts = |taint: &&Taint| !taint.key.starts_with("node.kubernetes.io/");
        let mut taints = self.taints.iter().filter(keeps_away).filter(lasts);
        selected && taints.all(|taint| tolerations.iter().any(|toleration| tolerates(toleration, taint)))
    }
}

/// The rule of the Kubernetes scheduler.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    let any_value = toleration.operator.as_deref() == Some("Exists");
    (effect.is_empty() || effect == taint.effect)
        && (key == taint.key || key.is_empty() && any_value)
        && (any_value
            || toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(text: &str) -> Taint {
        let (rest, effect) = text.split_once(':').unwrap();
        let (key, value) =
            rest.split_once('=').map_or((rest, None), |(key, value)| (key, Some(value.to_owned())));
        Taint { key: key.to_owned(), value, effect: effect.to_owned(), time_added: None }
    }

    fn toleration(key: &str, operator: &str, value: &str, effect: &str) -> Toleration {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Toleration {
            key: given(key),
            operator: given(operator),
            value: given(value),
            effect: given(effect),
            toleration_seconds: None,
        }
    }

    #[test]
    fn tolerations_are_read_as_the_scheduler_reads_them() {
        let exists = toleration("role", "Exists", "", "NoSchedule");
        let everything = toleration("", "Exists", "", "");
        let equal = toleration("role", "", "db", "");
        for (toleration, text, expected) in [
            (&exists, "role=x:NoSchedule", true),
            (&exists, "role:NoSchedule", true),
            (&exists, "role:NoExecute", false),
            (&exists, "other:NoSchedule", false),
            (&everything, "other=x:NoExecute", true),
            (&equal, "role=db:NoSchedule", true),
            (&equal, "role=web:NoSchedule", false),
        ] {
            assert_eq!(tolerates(toleration, &taint(text)), expected, "{toleration:?} and {text}");
        }
    }

    #[test]
    fn only_nodes_that_can_take_a_pod_count() {
        let node = |labels: &[(&str, &str)], taints: &[&str]| NodeInfo {
            labels: labels.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect(),
            taints: taints.iter().map(|text| taint(text)).collect(),
        };
        let linux = [("os", "linux")];
        let nodes = [
            ("control", node(&linux, &["control-plane:NoSchedule"])),
            ("worker", node(&linux, &[])),
            ("reserved", node(&linux, &["gpu:NoSchedule"])),
            ("shy", node(&linux, &["gpu:PreferNoSchedule"])),
            ("rebooting", node(&linux, &["node.kubernetes.io/unreachable:NoExecute"])),
            ("windows", node(&[("os", "windows")], &[])),
        ];
        let cluster = ClusterInfo {
            nodes: nodes.map(|(name, node)| (name.to_owned(), node)).into(),
            ..ClusterInfo::default()
        };
        let selector = [("os".to_owned(), "linux".to_owned())].into();
        let control = [toleration("control-plane", "Exists", "", "NoSchedule")];
        assert_eq!(cluster.room_for(&selector, &control), 4);
        assert_eq!(cluster.room_for(&selector, &[]), 3);
        assert_eq!(cluster.room_for(&BTreeMap::new(), &[toleration("", "Exists", "", "")]), 6);
    }
}
