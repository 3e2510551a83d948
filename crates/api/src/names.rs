//! Names, labels and annotations that users, tools and the parts of knmstate rely on.

/// The API group of all four kinds.
pub const GROUP: &str = "nmstate.io";

/// Label of an enactment: the node it is for.
pub const NODE_LABEL: &str = "nmstate.io/node";
/// Label of an enactment: the policy it comes from.
pub const POLICY_LABEL: &str = "nmstate.io/policy";
/// Label of a node state: a new value asks its node to report at once.
pub const FORCE_REFRESH_LABEL: &str = "nmstate.io/force-nns-refresh";

/// Annotation of a policy: when admission last saw it change, in nanoseconds since 1970.
pub const MUTATION_TIMESTAMP_ANNOTATION: &str = "nmstate.io/webhook-mutating-timestamp";
/// Annotation of a policy: `"true"` lets its spec be changed while it is still being rolled out.
pub const ALLOW_UPDATE_IN_PROGRESS_ANNOTATION: &str = "nmstate.io/allow-update-in-progress";

/// Label of every object that the operator makes, with [`APP`] as value.
pub const APP_LABEL: &str = "app";
/// Value of [`APP_LABEL`].
pub const APP: &str = "kubernetes-nmstate";
/// Label of the pods of a role.
pub const COMPONENT_LABEL: &str = "component";
/// Value of [`COMPONENT_LABEL`] on the pods of the handler: a node takes part in policies when it runs one.
pub const HANDLER_COMPONENT: &str = "kubernetes-nmstate-handler";

/// Field manager of everything the operator applies.
pub const OPERATOR_FIELD_MANAGER: &str = "nmstate-operator";
/// Field manager of everything the controller applies.
pub const CONTROLLER_FIELD_MANAGER: &str = "nmstate-controller";
/// Field manager of everything a handler applies.
pub const HANDLER_FIELD_MANAGER: &str = "nmstate-handler";

/// Relationship labels, copied from the pod's own labels to the objects it makes when it has them.
pub mod relationship {
    /// Which component of the product the object belongs to.
    pub const COMPONENT: &str = "app.kubernetes.io/component";
    /// The product the object is part of.
    pub const PART_OF: &str = "app.kubernetes.io/part-of";
    /// The product's version.
    pub const VERSION: &str = "app.kubernetes.io/version";
    /// The tool that manages the product.
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
}

/// The policy label, and the last part of the name, of the enactment of what an admin writes into the spec of a node's
/// NodeNetworkState. No policy may be called so.
pub const NODE_STATE_POLICY: &str = "node-network-state";

/// A policy's name becomes the value of [`POLICY_LABEL`], and label values have at most this many characters.
pub const MAX_POLICY_NAME_LENGTH: usize = 63;

/// The name of the enactment of a policy on a node. Tools build it themselves, so it is never shortened or hashed.
pub fn enactment_name(node: &str, policy: &str) -> String {
    format!("{node}.{policy}")
}

/// The policy in the name of an enactment of a node; `None` if it is not an enactment of that node.
///
/// The node must be known: names of nodes and of policies may both contain dots, so the name alone does not tell
/// where one ends and the other begins.
pub fn policy_of_enactment<'a>(enactment: &'a str, node: &str) -> Option<&'a str> {
    let policy = enactment.strip_prefix(node)?.strip_prefix('.')?;
    (!policy.is_empty()).then_some(policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_enactment_is_named_after_node_and_policy() {
        for (node, policy, name) in [
            ("worker-1", "bond0", "worker-1.bond0"),
            ("worker-1.example.com", "bond0", "worker-1.example.com.bond0"),
            ("w", "a.b", "w.a.b"),
        ] {
            assert_eq!(enactment_name(node, policy), name);
            assert_eq!(policy_of_enactment(name, node), Some(policy));
        }
    }

    #[test]
    fn the_enactment_of_another_node_has_no_policy_here() {
        for (name, node) in
            [("worker-10.bond0", "worker-1"), ("worker-1", "worker-1"), ("worker-1.", "worker-1"), ("", "w")]
        {
            assert_eq!(policy_of_enactment(name, node), None, "{name} is no enactment of {node}");
        }
    }
}
