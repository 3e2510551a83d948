//! The controller guard: with the controller's token, only the objects that the controller needs can be created.
//!
//! RBAC cannot restrict requests to create by name or by content. Without the guard, a thief of the token could create a
//! Secret with a token of any account in the namespace, or a Lease that keeps the operator from leading.

use knmstate_api::names::{CA_BUNDLE_KEY, GROUP};

use crate::{
    Object, Settings,
    admission::{Check, Message, Rules, entries, has_metadata, refuse_unless, text, user},
};

const CORE: &str = "";
/// The namespace of Events about cluster-scoped objects.
const EVENTS_NAMESPACE: &str = "default";

pub(crate) fn controller_guard(settings: &Settings) -> Vec<Object> {
    let rules = [secrets(settings), ca_bundle(settings), leases(settings), events(settings)];
    rules.map(|rules| rules.objects(settings)).concat()
}

fn secrets(settings: &Settings) -> Rules {
    let (authority, certificate) = (settings.authority_secret(), settings.certificate_secret());
    let annotations = has_metadata("object", "annotations");
    let checks = vec![
        named(&[&authority, &certificate], "Secrets"),
        refuse_unless(
            "object.type in ['Opaque', 'kubernetes.io/tls']",
            Message::Text(
                "the controller writes Secrets of type Opaque and kubernetes.io/tls only, and none with the token of \
                an account"
                    .to_owned(),
            ),
        ),
        refuse_unless(
            &format!(
                "!{annotations} || \
                object.metadata.annotations.all(key, !key.startsWith('kubernetes.io/service-account'))"
            ),
            Message::Text("the Secrets of the controller belong to no account".to_owned()),
        ),
        leaves_deletion_alone(),
    ];
    rules(settings, "nmstate-controller-guard-secrets", &settings.namespace, CORE, &["secrets"], checks)
}

fn ca_bundle(settings: &Settings) -> Rules {
    let key = text(CA_BUNDLE_KEY);
    let checks = vec![
        named(&[&settings.ca_bundle_config_map()], "ConfigMap"),
        // One that is immutable could never be corrected.
        refuse_unless(
            &format!(
                "(!has(object.data) || object.data.all(key, key == {key})) && \
                (!has(object.binaryData) || object.binaryData.size() == 0) && !has(object.immutable)"
            ),
            Message::Text(format!("the controller writes the key {CA_BUNDLE_KEY} of its ConfigMap only")),
        ),
        leaves_deletion_alone(),
    ];
    rules(settings, "nmstate-controller-guard-configmaps", &settings.namespace, CORE, &["configmaps"], checks)
}

fn leases(settings: &Settings) -> Rules {
    let checks = vec![named(&[&settings.leader_lease()], "Lease"), leaves_deletion_alone()];
    rules(
        settings,
        "nmstate-controller-guard-leases",
        &settings.namespace,
        "coordination.k8s.io",
        &["leases"],
        checks,
    )
}

fn events(settings: &Settings) -> Rules {
    let checks = vec![refuse_unless(
        &format!("object.involvedObject.apiVersion.startsWith('{GROUP}/')"),
        Message::Text("the controller creates Events about policies only".to_owned()),
    )];
    rules(settings, "nmstate-controller-guard-events", EVENTS_NAMESPACE, CORE, &["events"], checks)
}

fn rules(
    settings: &Settings,
    name: &'static str,
    namespace: &str,
    group: &'static str,
    resources: &'static [&'static str],
    checks: Vec<Check>,
) -> Rules {
    Rules {
        name,
        group,
        versions: &["*"],
        resources,
        operations: &["CREATE", "UPDATE"],
        // RBAC lets it write in these namespaces only, and the rules cost nothing in others.
        namespace: Some(namespace.to_owned()),
        only_for: Some(user(settings, &settings.controller_account())),
        variables: Vec::new(),
        checks,
    }
}

fn named(names: &[&str], kind: &str) -> Check {
    let list = names.iter().map(|name| text(name)).collect::<Vec<_>>().join(", ");
    let message = format!("the controller may write the {kind} {} only", names.join(" and "));
    refuse_unless(&format!("object.metadata.name in [{list}]"), Message::Text(message))
}

/// A finalizer that is never removed would block the removal of the installation.
fn leaves_deletion_alone() -> Check {
    let same = |field| format!("({}) == ({})", entries("object", field), entries("oldObject", field));
    refuse_unless(
        &format!("{} && {}", same("finalizers"), same("ownerReferences")),
        Message::Text("the controller cannot set or remove finalizers and owners".to_owned()),
    )
}
