//! What the controller may do. It gives orders and reads what becomes of them; it reports for no node.

use k8s_openapi::api::rbac::v1::PolicyRule;

use super::{CORE, Holder, NMSTATE, READ, allow, allow_named};
use crate::{Object, Settings};

pub fn controller(settings: &Settings) -> Vec<Object> {
    let holder = Holder { settings, account: "nmstate-controller" };
    let everywhere = holder.everywhere(vec![
        allow(NMSTATE, &["nodenetworkconfigurationpolicies"], &READ),
        allow(NMSTATE, &["nodenetworkconfigurationpolicies/status"], &["patch"]),
        allow(
            NMSTATE,
            &["nodenetworkconfigurationenactments"],
            &["get", "list", "watch", "create", "patch", "delete"],
        ),
        allow(NMSTATE, &["nodenetworkstates", "nmstates"], &READ),
        allow(CORE, &["nodes"], &READ),
        // For policies that are rolled out through them, on OpenShift.
        allow("machineconfiguration.openshift.io", &["machineconfigpools"], &READ),
        // Where it puts the certificate authority of the webhook.
        allow_named(
            "admissionregistration.k8s.io",
            &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
            vec![settings.webhook_configuration()],
            &["get", "list", "watch", "update", "patch"],
        ),
    ]);
    let at_home = holder.in_namespace(
        &settings.namespace,
        "nmstate-controller",
        [
            // Which nodes run a handler.
            vec![allow(CORE, &["pods"], &READ)],
            kept(
                "coordination.k8s.io",
                "leases",
                vec![settings.leader_lease()],
                &["get", "list", "watch", "update"],
            ),
            kept(
                CORE,
                "secrets",
                vec![settings.authority_secret(), settings.certificate_secret()],
                &["get", "list", "watch", "update", "patch"],
            ),
            events(),
        ]
        .concat(),
    );
    // Events of policies, which are in no namespace, go to this one.
    let events = holder.in_namespace("default", "nmstate-controller-events", events());
    [vec![holder.account()], everywhere.into(), at_home.into(), events.into()].concat()
}

/// Objects that it makes and keeps. The name of one that is yet to be made is not known to who decides about rights.
fn kept(group: &str, resource: &str, names: Vec<String>, verbs: &[&str]) -> Vec<PolicyRule> {
    vec![allow(group, &[resource], &["create"]), allow_named(group, &[resource], names, verbs)]
}

fn events() -> Vec<PolicyRule> {
    [CORE, "events.k8s.io"].map(|group| allow(group, &["events"], &["create", "patch"])).into()
}
