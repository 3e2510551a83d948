//! What people are told about policies, as events of the cluster.

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
use kube::Resource;

use crate::world::{Happening, What};

/// Where events of objects without a namespace are kept.
const NAMESPACE: &str = "default";
/// Who tells about a policy as a whole.
const CONTROLLER: &str = "nmstate-controller";

/// What happened on a node, as kubernetes-nmstate tells it: in the name of that node's handler.
/// Of success it tells by policy, not by node.
pub fn of_node(happening: &Happening, policy_uid: &str, now: Timestamp) -> Option<Event> {
    let Happening { policy, node, what, .. } = happening;
    let enactment = enactment_name(node, policy);
    let message = match what {
        What::Failed { attempts } => {
            format!("reconciliation of enactment \"{enactment}\" has failed after {attempts} retries")
        }
        What::Available | What::RolledBack => return None,
        What::Aborted => format!("reconciliation of enactment \"{enactment}\" has aborted"),
    };
    let source = format!("{node}.nmstate-handler");
    Some(event(policy, policy_uid, "Warning", "ReconcileFailed", message, source, now))
}

/// That a policy has become available; `None` if it was, or is not.
pub fn of_success(
    policy: &str,
    policy_uid: &str,
    before: &NodeNetworkConfigurationPolicyStatus,
    after: &NodeNetworkConfigurationPolicyStatus,
    now: Timestamp,
) -> Option<Event> {
    if before.conditions.is_true(AVAILABLE) || !after.conditions.is_true(AVAILABLE) {
        return None;
    }
    let message = after.conditions.get(AVAILABLE)?.message.clone();
    Some(event(policy, policy_uid, "Normal", SUCCESSFULLY_CONFIGURED, message, CONTROLLER.to_owned(), now))
}

fn event(
    policy: &str,
    uid: &str,
    type_: &str,
    reason: &str,
    message: String,
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
        message: Some(message),
        source: Some(EventSource { component: Some(component), host: None }),
        first_timestamp: time.clone(),
        last_timestamp: time,
        count: Some(1),
        ..Event::default()
    }
}
