//! The node guard: a handler writes what belongs to its own node, and nothing else, whoever holds its token.
//!
//! All handlers are one account, so rights alone cannot tell them apart. The token can: the API server itself puts the
//! node of the pod that it is bound to into it, and nobody but the API server can make one. A token that names no node is
//! refused altogether.
//!
//! Of a write to a status the API server takes nothing but the status; so the rest of the object, by which the guard
//! knows whose it is, cannot be changed that way.

use knmstate_api::names::NODE_LABEL;

use crate::{
    Object, Settings,
    admission::{Check, Message, Reason, Rules, has_metadata, text},
};

const ALL_VERSIONS: &[&str] = &["*"];
const WRITES: &[&str] = &["CREATE", "UPDATE", "DELETE"];

pub fn node_guard(settings: &Settings) -> Vec<Object> {
    [node_states(settings).objects(settings), enactments(settings).objects(settings)].concat()
}

fn node_states(settings: &Settings) -> Rules {
    let unless_deleted = |expression: &str| format!("request.operation == 'DELETE' || ({expression})");
    Rules {
        name: "nmstate-node-guard-states",
        versions: ALL_VERSIONS,
        resources: &["nodenetworkstates", "nodenetworkstates/*"],
        operations: WRITES,
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
                    "a handler deletes no NodeNetworkState: it goes with its Node, or an admin deletes it"
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
                    "a handler reports what the network of its node is; what it should be (spec.managed, \
                    spec.desiredState) is for an admin to write"
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
            // One that nobody removes would hold up the deletion of the Node.
            refuse_unless(
                &unless_deleted("variables.finalizers == variables.finalizersBefore"),
                Message::Text("a handler sets and removes no finalizers".to_owned()),
            ),
        ],
    }
}

fn enactments(settings: &Settings) -> Rules {
    let (label, labelled) = (text(NODE_LABEL), has_metadata("oldObject", "labels"));
    Rules {
        name: "nmstate-node-guard-enactments",
        versions: ALL_VERSIONS,
        resources: &["nodenetworkconfigurationenactments", "nodenetworkconfigurationenactments/*"],
        operations: WRITES,
        only_for: Some(handler(settings)),
        variables: vec![node()],
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
            // The name alone could be that of node `a` with policy `b.c` or of node `a.b` with policy `c`.
            refuse_unless(
                &format!(
                    "oldObject == null || (oldObject.metadata.name.startsWith(variables.node + '.') && \
                    {labelled} && {label} in oldObject.metadata.labels && \
                    oldObject.metadata.labels[{label}] == variables.node && \
                    (!has(oldObject.spec) || oldObject.spec.nodeName == variables.node))"
                ),
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
    format!("system:serviceaccount:{}:{}", settings.namespace, settings.handler_account())
}

/// The node that the token names; empty if it names none.
fn node() -> (&'static str, String) {
    let claim = "request.userInfo.?extra[?'authentication.kubernetes.io/node-name'][?0].orValue('')";
    ("node", claim.to_owned())
}

fn names_its_node() -> Check {
    refuse_unless(
        "variables.node != ''",
        Message::Text(
            "the token does not say which node its handler runs on, so nothing can be written with it. Use the token \
            that the kubelet mounts into the pod of the handler; one that is made by hand has to be bound to such a \
            pod (kubectl create token --bound-object-kind Pod --bound-object-name POD)"
                .to_owned(),
        ),
    )
}

fn managed(object: &str) -> String {
    format!("{object} != null && has({object}.spec) && has({object}.spec.managed) && {object}.spec.managed")
}

/// A list in the metadata, empty if there is none.
fn entries(object: &str, field: &str) -> String {
    let present = has_metadata(object, field);
    format!("{object} != null && {present} ? {object}.metadata.{field} : []")
}

fn refuse_unless(expression: &str, message: Message) -> Check {
    Check { expression: expression.to_owned(), message, reason: Reason::Forbidden }
}
