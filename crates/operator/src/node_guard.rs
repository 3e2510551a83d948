//! The node guard: with a handler's token, only objects of that handler's node can be written.
//!
//! All handlers share one account, so RBAC cannot distinguish them. Their tokens can: the API server puts the node of the
//! pod into a token that is bound to a pod, and only the API server can sign tokens. Tokens without a node are refused.
//!
//! A write to the status subresource changes nothing but the status, so it cannot change the fields by which the guard
//! finds the node of an object.

use knmstate_api::names::{GROUP, MAX_LABEL_LENGTH, NODE_LABEL};

use crate::{
    Object, Settings,
    admission::{Check, Message, Rules, entries, has_metadata, refuse_unless, text, user},
};

const ALL_VERSIONS: &[&str] = &["*"];
const WRITES: &[&str] = &["CREATE", "UPDATE", "DELETE"];

pub(crate) fn node_guard(settings: &Settings) -> Vec<Object> {
    [node_states(settings).objects(settings), enactments(settings).objects(settings)].concat()
}

fn node_states(settings: &Settings) -> Rules {
    let unless_deleted = |expression: &str| format!("request.operation == 'DELETE' || ({expression})");
    Rules {
        name: "nmstate-node-guard-states",
        group: GROUP,
        versions: ALL_VERSIONS,
        resources: &["nodenetworkstates", "nodenetworkstates/*"],
        operations: WRITES,
        namespace: None,
        only_for: Some(handler(settings)),
        variables: vec![
            node(),
            ("desires", "object != null && has(object.spec) && has(object.spec.desiredState)".to_owned()),
            (
                "desired",
                "oldObject != null && has(oldObject.spec) && has(oldObject.spec.desiredState)".to_owned(),
            ),
            ("manages", managed("object")),
            ("managed", managed("oldObject")),
            ("owners", entries("object", "ownerReferences")),
            ("ownersBefore", entries("oldObject", "ownerReferences")),
            ("finalizers", entries("object", "finalizers")),
            ("finalizersBefore", entries("oldObject", "finalizers")),
        ],
        checks: vec![
            names_its_node(),
            refuse_unless(
                "request.operation != 'DELETE'",
                Message::Text(
                    "a handler cannot delete a NodeNetworkState: it is deleted with its Node, or by an admin"
                        .to_owned(),
                ),
            ),
            refuse_unless(
                &unless_deleted("has(object.metadata.name) && object.metadata.name == variables.node"),
                Message::Expression(
                    "'the handler of node ' + variables.node + \
                    ' may write the NodeNetworkState of its own node only, not ' + object.metadata.name"
                        .to_owned(),
                ),
            ),
            refuse_unless(
                &unless_deleted(
                    "variables.manages == variables.managed && variables.desires == variables.desired && \
                    (!variables.desires || object.spec.desiredState == oldObject.spec.desiredState)",
                ),
                Message::Text(
                    "a handler writes the status of a NodeNetworkState only; spec.managed and spec.desiredState are \
                    for an admin to write"
                        .to_owned(),
                ),
            ),
            refuse_unless(
                &unless_deleted(
                    "variables.owners.all(owner, \
                    (owner.apiVersion == 'v1' && owner.kind == 'Node' && owner.name == variables.node) || \
                    variables.ownersBefore.exists(before, before == owner))",
                ),
                Message::Expression(
                    "'the handler of node ' + variables.node + ' may name the Node ' + variables.node + \
                    ' as owner of its NodeNetworkState, and no other'"
                        .to_owned(),
                ),
            ),
            // A finalizer that is never removed would block the deletion of the Node.
            refuse_unless(
                &unless_deleted("variables.finalizers == variables.finalizersBefore"),
                Message::Text("a handler cannot set or remove finalizers".to_owned()),
            ),
        ],
    }
}

fn enactments(settings: &Settings) -> Rules {
    let (label, labelled) = (text(NODE_LABEL), has_metadata("oldObject", "labels"));
    Rules {
        name: "nmstate-node-guard-enactments",
        group: GROUP,
        versions: ALL_VERSIONS,
        resources: &["nodenetworkconfigurationenactments", "nodenetworkconfigurationenactments/*"],
        operations: WRITES,
        namespace: None,
        only_for: Some(handler(settings)),
        variables: vec![
            node(),
            // The name alone is ambiguous: node `a` with policy `b.c`, or node `a.b` with policy `c`.
            (
                "named",
                format!(
                    "oldObject != null && oldObject.metadata.name.startsWith(variables.node + '.') && \
                    {labelled} && {label} in oldObject.metadata.labels && \
                    oldObject.metadata.labels[{label}] == variables.node && \
                    (!has(oldObject.spec) || oldObject.spec.nodeName == variables.node)"
                ),
            ),
            ("owners", entries("oldObject", "ownerReferences")),
            // Of a longer name, label and name of the enactment have only the beginning.
            (
                "ordered",
                format!(
                    "oldObject != null && variables.node.size() > {MAX_LABEL_LENGTH} && has(oldObject.spec) && \
                    oldObject.spec.nodeName == variables.node && variables.owners.exists(owner, \
                    owner.apiVersion == 'v1' && owner.kind == 'Node' && owner.name == variables.node)"
                ),
            ),
        ],
        checks: vec![
            names_its_node(),
            refuse_unless(
                "request.operation == 'UPDATE' && has(request.subResource) && request.subResource == 'status'",
                Message::Text(
                    "a handler writes the status of an enactment only; the controller makes, changes and deletes \
                    enactments"
                        .to_owned(),
                ),
            ),
            refuse_unless(
                "oldObject == null || variables.named || variables.ordered",
                Message::Expression(
                    "'the handler of node ' + variables.node + \
                    ' may write the enactments of its own node only, not ' + oldObject.metadata.name"
                        .to_owned(),
                ),
            ),
        ],
    }
}

fn handler(settings: &Settings) -> String {
    user(settings, &settings.handler_account())
}

/// The node in the token; empty if there is none.
fn node() -> (&'static str, String) {
    let claim = "request.userInfo.?extra[?'authentication.kubernetes.io/node-name'][?0].orValue('')";
    ("node", claim.to_owned())
}

fn names_its_node() -> Check {
    refuse_unless(
        "variables.node != ''",
        Message::Text(
            "the token does not name the node of its handler, so nothing can be written with it. Use the token \
            that the kubelet mounts into the pod of the handler; one that is created by hand has to be bound to such a \
            pod (kubectl create token --bound-object-kind Pod --bound-object-name POD)"
                .to_owned(),
        ),
    )
}

fn managed(object: &str) -> String {
    format!("{object} != null && has({object}.spec) && has({object}.spec.managed) && {object}.spec.managed")
}
