//! Kubernetes Events about policies.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use knmstate_api::{
    NodeNetworkConfigurationPolicy, NodeNetworkConfigurationPolicyStatus,
    names::enactment_name,
    reasons::policy::{AVAILABLE, SUCCESSFULLY_CONFIGURED},
};
use knmstate_core::shorten;
use kube::Resource;

use crate::cluster_state::{EnactmentEvent, EnactmentOutcome};

/// The namespace for Events about cluster-scoped objects.
const NAMESPACE: &str = "default";
/// The length of a longest message in bytes, which is the limit of newer versions of the Event API.
const MAX_MESSAGE: usize = 1024;
/// The source of Events about a policy as a whole.
const CONTROLLER: &str = "nmstate-controller";

/// The Event for a result on one node; `None` for a success, which has an Event per policy instead. As in
/// kubernetes-nmstate, its source is the handler of the node.
pub(crate) fn of_node(event: &EnactmentEvent, policy_uid: &str, now: Timestamp) -> Option<Event> {
    let EnactmentEvent { policy, node, outcome, .. } = event;
    let enactment = enactment_name(node, policy);
    let message = match outcome {
        EnactmentOutcome::Failed { attempts } => {
            format!("reconciliation of enactment \"{enactment}\" has failed after {attempts} retries")
        }
        EnactmentOutcome::Available | EnactmentOutcome::RolledBack => return None,
        EnactmentOutcome::Aborted => format!("reconciliation of enactment \"{enactment}\" has aborted"),
    };
    let source = format!("{node}.nmstate-handler");
    Some(event_of(policy, policy_uid, "Warning", "ReconcileFailed", &message, source, now))
}

/// The Event for a policy that has become available; `None` unless it just did.
pub(crate) fn of_success(
    policy: &str,
    policy_uid: &str,
    before: &NodeNetworkConfigurationPolicyStatus,
    after: &NodeNetworkConfigurationPolicyStatus,
    now: Timestamp,
) -> Option<Event> {
    if before.conditions.is_true(AVAILABLE) || !after.conditions.is_true(AVAILABLE) {
        return None;
    }
    let message = &after.conditions.get(AVAILABLE)?.message;
    Some(event_of(policy, policy_uid, "Normal", SUCCESSFULLY_CONFIGURED, message, CONTROLLER.to_owned(), now))
}

fn event_of(
    policy: &str,
    uid: &str,
    type_: &str,
    reason: &str,
    message: &str,
    component: String,
    now: Timestamp,
) -> Event {
    let time = Some(Time(now));
    Event {
        metadata: ObjectMeta {
            generate_name: Some(format!("{policy}.")),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some(NodeNetworkConfigurationPolicy::api_version(&()).into_owned()),
            kind: Some(NodeNetworkConfigurationPolicy::kind(&()).into_owned()),
            name: Some(policy.to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        },
        type_: Some(type_.to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(shorten(message, MAX_MESSAGE).into_owned()),
        source: Some(EventSource { component: Some(component), host: None }),
        first_timestamp: time.clone(),
        last_timestamp: time,
        count: Some(1),
        ..Event::default()
    }
}
