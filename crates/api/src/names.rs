//! Names, labels and annotations that users, tools and the components of knmstate rely on.

use std::borrow::Cow;

use sha2::{Digest as _, Sha256};

/// The API group of all four kinds.
pub const GROUP: &str = "nmstate.io";

/// Label of an enactment: its node, as [`node_label`] writes it.
pub const NODE_LABEL: &str = "nmstate.io/node";
/// Label of an enactment: its policy.
pub const POLICY_LABEL: &str = "nmstate.io/policy";
/// Label of a node state: a new value makes the handler of that node report at once.
pub const FORCE_REFRESH_LABEL: &str = "nmstate.io/force-nns-refresh";

/// Annotation of a policy: when admission last saw a change of it, in nanoseconds since 1970.
pub const MUTATION_TIMESTAMP_ANNOTATION: &str = "nmstate.io/webhook-mutating-timestamp";
/// Annotation of a policy: `"true"` allows changes of its spec while it is still being rolled out.
pub const ALLOW_UPDATE_IN_PROGRESS_ANNOTATION: &str = "nmstate.io/allow-update-in-progress";

/// The key of the CA bundle of the webhooks, in the ConfigMap in which the controllers publish it.
pub const CA_BUNDLE_KEY: &str = "ca-bundle.crt";

/// Label of every object that the operator creates, with [`APP`] as value.
pub const APP_LABEL: &str = "app";
/// Value of [`APP_LABEL`].
pub const APP: &str = "kubernetes-nmstate";
/// Label of the pods of a role.
pub const COMPONENT_LABEL: &str = "component";
/// Value of [`COMPONENT_LABEL`] on the pods of the handler. Policies apply to the nodes that run one.
pub const HANDLER_COMPONENT: &str = "kubernetes-nmstate-handler";

/// Field manager of the operator.
pub const OPERATOR_FIELD_MANAGER: &str = "nmstate-operator";
/// Field manager of the controller.
pub const CONTROLLER_FIELD_MANAGER: &str = "nmstate-controller";
/// Field manager of the handlers.
pub const HANDLER_FIELD_MANAGER: &str = "nmstate-handler";

/// Relationship labels: the operator copies those of its own pod to the objects that it creates.
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

/// In place of a policy's name: the label value, and the last part of the name, of the enactment for the desired state
/// in the spec of a NodeNetworkState. No policy can have this name.
pub const NODE_STATE_POLICY: &str = "node-network-state";

/// The maximum length of a policy's name, which becomes the value of [`POLICY_LABEL`]: that of label values.
pub const MAX_POLICY_NAME_LENGTH: usize = MAX_LABEL_LENGTH;

/// The maximum length of the value of a label.
pub const MAX_LABEL_LENGTH: usize = 63;
/// The maximum length of the name of an object.
const MAX_NAME_LENGTH: usize = 253;
/// How many hexadecimal digits of the hash stand for what was cut off.
const HASH_LENGTH: usize = 16;

/// The value of [`NODE_LABEL`] for a node: its name, if that can be the value of a label. Names of nodes can be longer.
pub fn node_label(node: &str) -> Cow<'_, str> {
    shortened(node, MAX_LABEL_LENGTH)
}

/// The name of the enactment of a policy on a node. Tools compose it themselves, so it is only shortened where the whole
/// cannot be the name of an object.
pub fn enactment_name(node: &str, policy: &str) -> String {
    let whole = format!("{node}.{policy}");
    match shortened(&whole, MAX_NAME_LENGTH) {
        Cow::Borrowed(_) => whole,
        Cow::Owned(shortened) => shortened,
    }
}

/// The text itself if it is short enough, else its beginning and a hash of all of it.
fn shortened(text: &str, length: usize) -> Cow<'_, str> {
    if text.len() <= length {
        return Cow::Borrowed(text);
    }
    let beginning: String = text.chars().take(length - HASH_LENGTH - 1).collect();
    // In the name of an object, no part may begin with a dash.
    let beginning = beginning.trim_end_matches(['.', '-']);
    let hash = Sha256::digest(text.as_bytes());
    let digits = hash.iter().take(HASH_LENGTH / 2).map(|byte| format!("{byte:02x}"));
    Cow::Owned(format!("{beginning}-{}", digits.collect::<String>()))
}

/// The policy in the name of an enactment of a node; `None` if it is not an enactment of that node, or if the name is
/// shortened.
///
/// The node is an argument because names of nodes and of policies may both contain dots, so the name alone is
/// ambiguous.
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
    fn only_names_that_are_too_long_are_shortened_and_they_stay_distinct() {
        let node = |length: usize| "n123456789".repeat(26)[..length].to_owned();
        assert_eq!(node_label(&node(63)), node(63));
        // Stored objects have these values, so they never change.
        assert_eq!(node_label(&node(64)), "n123456789n123456789n123456789n123456789n12345-b472f4b4b9934ab7");
        assert_eq!(enactment_name(&node(189), &"p".repeat(63)), format!("{}.{}", node(189), "p".repeat(63)));
        let shortened = enactment_name(&node(190), &"p".repeat(63));
        assert_eq!(shortened, format!("{}.{}-3879507e0bf942ea", node(190), "p".repeat(45)));
        assert_eq!(shortened.len(), 253);

        assert_ne!(node_label(&node(64)), node_label(&node(65)));
        assert_ne!(enactment_name(&node(253), "a"), enactment_name(&node(253), "b"));
        // Dots and dashes where it is cut off.
        let dotted = format!("{}.-.{}", node(235), "x".repeat(15));
        assert_eq!(&enactment_name(&dotted, "p")[230..236], "n1234-");
        for long in [node(253), dotted] {
            assert!(node_label(&long).len() <= 63 && enactment_name(&long, "p").len() <= 253);
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
