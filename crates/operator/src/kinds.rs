//! The kinds of objects that the operator creates, in the order in which it does. It removes them in the opposite order,
//! except for workloads, which go before everything that they use.

/// A kind and its API path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// Such as `apps/v1`.
    pub api_version: &'static str,
    /// Such as `DaemonSet`.
    pub kind: &'static str,
    /// Such as `daemonsets`.
    pub plural: &'static str,
    /// Whether its objects are in a namespace.
    pub namespaced: bool,
    /// Whether every cluster has the kind.
    pub built_in: bool,
}

impl Kind {
    /// The group, which is empty for the core.
    pub fn group(&self) -> &'static str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Whether all objects of the kind are in the namespace of the operands. Roles are in other namespaces, too.
    pub fn only_in_operand_namespace(&self) -> bool {
        self.namespaced && !matches!(self.kind, "Role" | "RoleBinding")
    }

    /// The version, such as `v1`.
    pub fn version(&self) -> &'static str {
        self.api_version.split_once('/').map_or(self.api_version, |(_, version)| version)
    }
}

const fn of_cluster(api_version: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind { api_version, kind, plural, namespaced: false, built_in: true }
}

const fn of_namespace(api_version: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind { api_version, kind, plural, namespaced: true, built_in: true }
}

const fn of_some(api_version: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind { api_version, kind, plural, namespaced: true, built_in: false }
}

const ADMISSION: &str = "admissionregistration.k8s.io/v1";
const RBAC: &str = "rbac.authorization.k8s.io/v1";
const MONITORING: &str = "monitoring.coreos.com/v1";

/// Where the Prometheus operator finds the metrics.
pub(crate) const SERVICE_MONITOR: Kind = of_some(MONITORING, "ServiceMonitor", "servicemonitors");
/// The alerts for the Prometheus operator.
pub(crate) const PROMETHEUS_RULE: Kind = of_some(MONITORING, "PrometheusRule", "prometheusrules");

/// One of them has the CA bundle that the controllers publish.
pub(crate) const CONFIG_MAP: Kind = of_namespace("v1", "ConfigMap", "configmaps");
/// The workload of the controller.
pub(crate) const DEPLOYMENT: Kind = of_namespace("apps/v1", "Deployment", "deployments");
/// The workload of the handlers.
pub(crate) const DAEMON_SET: Kind = of_namespace("apps/v1", "DaemonSet", "daemonsets");
/// The namespace of the operands.
pub(crate) const NAMESPACE: Kind = of_cluster("v1", "Namespace", "namespaces");
/// The definitions of our own kinds.
pub const DEFINITION: Kind =
    of_cluster("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions");

/// Created by the controllers, and removed after them.
pub(crate) const SECRET: Kind = of_namespace("v1", "Secret", "secrets");
/// The same.
pub(crate) const LEASE: Kind = of_namespace("coordination.k8s.io/v1", "Lease", "leases");

/// Every kind that the operator creates.
pub const KINDS: [Kind; 19] = [
    DEFINITION,
    NAMESPACE,
    of_cluster(ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
    of_cluster(ADMISSION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    of_namespace("v1", "ServiceAccount", "serviceaccounts"),
    of_cluster(RBAC, "ClusterRole", "clusterroles"),
    of_cluster(RBAC, "ClusterRoleBinding", "clusterrolebindings"),
    of_namespace(RBAC, "Role", "roles"),
    of_namespace(RBAC, "RoleBinding", "rolebindings"),
    of_namespace("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
    CONFIG_MAP,
    of_namespace("v1", "Service", "services"),
    of_namespace("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    SERVICE_MONITOR,
    PROMETHEUS_RULE,
    of_cluster(ADMISSION, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    of_cluster(ADMISSION, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    DEPLOYMENT,
    DAEMON_SET,
];

/// The kind of an object.
pub(crate) fn kind_of(api_version: &str, kind: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|known| known.api_version == api_version && known.kind == kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_and_version_are_parsed() {
        assert_eq!((NAMESPACE.group(), NAMESPACE.version()), ("", "v1"));
        assert_eq!((DAEMON_SET.group(), DAEMON_SET.version()), ("apps", "v1"));
    }
}
