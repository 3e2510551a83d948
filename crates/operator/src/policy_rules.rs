//! Rules for policies beyond their schema.
//!
//! The names, messages and reasons are those of kubernetes-nmstate. Most of the rules are also in our
//! CustomResourceDefinition, which is evaluated first; these hold where a cluster still has the older one.

use knmstate_api::names::{
    ALLOW_UPDATE_IN_PROGRESS_ANNOTATION, GROUP, MAX_POLICY_NAME_LENGTH, NODE_STATE_POLICY,
};

use crate::{
    Object, Settings,
    admission::{Check, Message, Reason, Rules, has_metadata, text},
};

pub(crate) fn policy_rules(settings: &Settings) -> Vec<Object> {
    let rules = Rules {
        name: "nncp-validation-policy",
        group: GROUP,
        versions: &["v1", "v1beta1"],
        resources: &["nodenetworkconfigurationpolicies"],
        operations: &["CREATE", "UPDATE"],
        namespace: None,
        only_for: None,
        variables: vec![
            (
                "specChanges",
                "request.operation == 'UPDATE' && (has(object.spec) != has(oldObject.spec) || \
                (has(object.spec) && object.spec != oldObject.spec))"
                    .to_owned(),
            ),
            ("captures", captures("object")),
            ("captured", captures("oldObject")),
        ],
        checks: vec![
            name_is_a_label_value(),
            name_is_not_reserved(),
            is_not_in_progress(),
            capture_stays(),
            selector_has_label_values(),
        ],
    };
    rules.objects(settings)
}

/// Each enactment has it as a label. With `generateName` there is no name yet.
fn name_is_a_label_value() -> Check {
    Check {
        expression: format!(
            "request.operation != 'CREATE' || !has(object.metadata.name) || object.metadata.name == '' || \
            (size(object.metadata.name) <= {MAX_POLICY_NAME_LENGTH} && \
            object.metadata.name.matches('^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$'))"
        ),
        message: Message::Expression(format!(
            "'invalid policy name: \"' + object.metadata.name + \
            '\": must be no more than {MAX_POLICY_NAME_LENGTH} characters or match label value format'"
        )),
        reason: Reason::Invalid,
    }
}

fn name_is_not_reserved() -> Check {
    let reserved = text(NODE_STATE_POLICY);
    Check {
        expression: format!(
            "request.operation != 'CREATE' || !has(object.metadata.name) || object.metadata.name != {reserved}"
        ),
        message: Message::Text(format!(
            "invalid policy name: \"{NODE_STATE_POLICY}\": is reserved for what the NodeNetworkState of a node asks \
            for; choose another name"
        )),
        reason: Reason::Invalid,
    }
}

/// A policy without a status counts as in progress.
fn is_not_in_progress() -> Check {
    let annotation = text(ALLOW_UPDATE_IN_PROGRESS_ANNOTATION);
    let annotated = has_metadata("object", "annotations");
    Check {
        expression: format!(
            "!variables.specChanges || ({annotated} && \
            {annotation} in object.metadata.annotations && \
            object.metadata.annotations[{annotation}] == 'true') || \
            (has(oldObject.status) && has(oldObject.status.conditions) && \
            oldObject.status.conditions.exists(condition, condition.type == 'Available' && \
            has(condition.reason) && condition.reason != '' && condition.reason != 'ConfigurationProgressing'))"
        ),
        message: Message::Expression("'policy ' + object.metadata.name + ' is still in progress'".to_owned()),
        reason: Reason::Forbidden,
    }
}

fn capture_stays() -> Check {
    Check {
        expression: "!variables.specChanges || (variables.captures == variables.captured && \
            (!variables.captures || object.spec.capture == oldObject.spec.capture))"
            .to_owned(),
        message: Message::Text("invalid policy operation: capture field cannot be modified".to_owned()),
        reason: Reason::Invalid,
    }
}

fn selector_has_label_values() -> Check {
    Check {
        expression:
            "!has(object.spec) || !has(object.spec.nodeSelector) || object.spec.nodeSelector.all(key, \
            !format.labelValue().validate(object.spec.nodeSelector[key]).hasValue())"
                .to_owned(),
        message: Message::Text("nodeSelector values must be valid label values".to_owned()),
        reason: Reason::Invalid,
    }
}

fn captures(object: &str) -> String {
    format!("{object} != null && has({object}.spec) && has({object}.spec.capture)")
}
