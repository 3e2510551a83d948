//! Refuses desired states in NodeNetworkStates, unless the NMState allows them.

use knmstate_api::names::GROUP;

use crate::{
    Object, Settings,
    admission::{Check, Message, Reason, Rules},
};

/// Empty where they are allowed. An object that already has a desired state keeps it, and its other fields can change.
pub(crate) fn node_state_rules(settings: &Settings) -> Vec<Object> {
    if settings.allow_node_state_configuration {
        return Vec::new();
    }
    let rules = Rules {
        name: "nns-validation-policy",
        group: GROUP,
        versions: &["*"],
        resources: &["nodenetworkstates"],
        operations: &["CREATE", "UPDATE"],
        namespace: None,
        only_for: None,
        variables: Vec::new(),
        checks: vec![
            refuse_unless(
                "!has(object.spec) || !has(object.spec.managed) || !object.spec.managed || \
                (oldObject != null && has(oldObject.spec) && has(oldObject.spec.managed) && oldObject.spec.managed)",
                "spec.managed cannot be set to true",
            ),
            refuse_unless(
                "!has(object.spec) || !has(object.spec.desiredState) || \
                (oldObject != null && has(oldObject.spec) && has(oldObject.spec.desiredState) && \
                object.spec.desiredState == oldObject.spec.desiredState)",
                "spec.desiredState cannot be set",
            ),
        ],
    };
    rules.objects(settings)
}

fn refuse_unless(expression: &str, what: &str) -> Check {
    Check {
        expression: expression.to_owned(),
        message: Message::Text(format!(
            "{what}: nodes of this cluster are configured by NodeNetworkConfigurationPolicies. To configure a single \
            node in its NodeNetworkState, set NMState.spec.allowNodeStateConfiguration to true first"
        )),
        reason: Reason::Forbidden,
    }
}
