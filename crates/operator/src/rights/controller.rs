//! The rights of the controller. It writes orders and reads their results. The controller guard narrows what it may create.

use k8s_openapi::api::rbac::v1::PolicyRule;

use super::{AccountObjects, CORE, NMSTATE, READ, allow, allow_named};
use crate::{Object, Settings};

const READ_AND_PATCH: [&str; 4] = ["get", "list", "watch", "patch"];

pub(crate) fn controller(settings: &Settings) -> Vec<Object> {
    let account = AccountObjects { settings, account: "nmstate-controller" };
    let cluster_wide = account.cluster_wide(vec![
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
        // To see when its webhooks have the CA bundle.
        allow_named(
            "admissionregistration.k8s.io",
            &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
            vec![settings.webhook_configuration()],
            if settings.controller_injects_ca_bundle { &READ_AND_PATCH } else { &READ },
        ),
    ]);
    let in_own_namespace = account.in_namespace(
        &settings.namespace,
        "nmstate-controller",
        [
            // To know which nodes run a handler.
            vec![allow(CORE, &["pods"], &READ)],
            managed(
                "coordination.k8s.io",
                "leases",
                vec![settings.leader_lease()],
                &["get", "list", "watch", "update"],
            ),
            managed(
                CORE,
                "secrets",
                vec![settings.authority_secret(), settings.certificate_secret()],
                &READ_AND_PATCH,
            ),
            vec![allow_named(CORE, &["configmaps"], vec![settings.ca_bundle_config_map()], &READ_AND_PATCH)],
        ]
        .concat(),
    );
    // Events about policies, which are cluster-scoped, go to this namespace.
    let events = account.in_namespace(
        "default",
        "nmstate-controller-events",
        vec![allow(CORE, &["events"], &["create"])],
    );
    [vec![account.account()], cluster_wide.into(), in_own_namespace.into(), events.into()].concat()
}

/// Objects that it creates and updates. Rights cannot restrict requests to create by name; the controller guard does.
fn managed(group: &str, resource: &str, names: Vec<String>, verbs: &[&str]) -> Vec<PolicyRule> {
    vec![allow(group, &[resource], &["create"]), allow_named(group, &[resource], names, verbs)]
}
