//! Refuses dispatch scripts in desired states, unless the NMState allows them.
//!
//! Only what is written in the object is visible here. A script that comes from a capture or a value is refused by the
//! node, which refuses all of them again.

use knmstate_api::names::GROUP;

use crate::{
    Object, Settings,
    admission::{Check, Message, Reason, Rules},
};

/// Empty where they are allowed. An object that already has scripts keeps them, and its other parts can change.
pub(crate) fn dispatch_rules(settings: &Settings) -> Vec<Object> {
    if settings.allow_dispatch_scripts {
        return Vec::new();
    }
    let rules = Rules {
        name: "dispatch-validation-policy",
        group: GROUP,
        versions: &["*"],
        resources: &["nodenetworkconfigurationpolicies", "nodenetworkstates"],
        operations: &["CREATE", "UPDATE"],
        namespace: None,
        only_for: None,
        variables: vec![("interfaces", interfaces("object")), ("before", interfaces("oldObject"))],
        checks: vec![Check {
            // An empty script only removes one.
            expression: "variables.interfaces == variables.before || variables.interfaces.all(interface, \
                type(interface) != map || !('dispatch' in interface) || interface.dispatch == null || \
                (type(interface.dispatch) == map && interface.dispatch.all(key, \
                interface.dispatch[key] == null || interface.dispatch[key] == '')))"
                .to_owned(),
            message: Message::Text(
                "spec.desiredState.interfaces[].dispatch cannot be set: its scripts would run as root on the nodes. \
                To allow that, set NMState.spec.allowDispatchScripts to true first"
                    .to_owned(),
            ),
            reason: Reason::Forbidden,
        }],
    };
    rules.objects(settings)
}

/// The list of interfaces; empty where there is none.
fn interfaces(object: &str) -> String {
    let desired = format!("dyn({object}.spec.desiredState)");
    format!(
        "{object} != null && has({object}.spec) && has({object}.spec.desiredState) && \
        type({desired}) == map && 'interfaces' in {desired} && type({desired}.interfaces) == list ? \
        {desired}.interfaces : []"
    )
}
