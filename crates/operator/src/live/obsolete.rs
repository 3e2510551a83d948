//! Removes objects of a kubernetes-nmstate operator that this operator does not have.

use knmstate_client::call::{CallError, within_limit};
use kube::{Client, ResourceExt as _};

use super::{addresses::Key, removal::remove};
use crate::{Config, kinds::KINDS};

/// Their names by kind. Objects of the same name as ours are taken over by applying ours.
const OBSOLETE: [(&str, &[&str]); 4] = [
    ("Deployment", &["nmstate-cert-manager", "nmstate-metrics"]),
    (
        "NetworkPolicy",
        &[
            "allow-webhook-ingress-443",
            "allow-webhook-egress-api-6443",
            "allow-webhook-egress-dns",
            "allow-metrics-ingress-8443",
            "allow-metrics-ingress-443",
            "allow-metrics-egress-api-6443",
            "allow-metrics-egress-dns",
            "allow-cert-manager-egress-api-6443",
        ],
    ),
    ("RoleBinding", &["nmstate-handler", "nmstate-monitor", "nmstate-handler-events"]),
    ("Role", &["nmstate-handler", "nmstate-monitor", "nmstate-handler-events"]),
];

/// Removes them, in the order of the table: processes first.
pub(crate) async fn remove_obsolete(client: &Client, config: &Config) -> Result<(), CallError> {
    let settings = config.settings(false);
    for (kind, names) in OBSOLETE {
        let Some(kind) = KINDS.iter().find(|known| known.kind == kind) else { continue };
        for name in names {
            // Events about cluster-scoped objects are in this namespace.
            let namespace = if name.ends_with("-events") { "default" } else { &config.namespace };
            let names = [settings.named(name), (*name).to_owned()];
            // Not all names had the prefix.
            let distinct = if names[0] == names[1] { &names[..1] } else { &names };
            for name in distinct {
                let key = Key { kind: *kind, namespace: Some(namespace.to_owned()), name: name.clone() };
                remove_if_theirs(client, &key).await?;
            }
        }
    }
    Ok(())
}

/// Objects of kubernetes-nmstate have the NMState as their owner; ours do not.
async fn remove_if_theirs(client: &Client, key: &Key) -> Result<(), CallError> {
    let Some(object) = within_limit(key.api(client).get_metadata_opt(&key.name)).await? else {
        return Ok(());
    };
    if object.owner_references().iter().any(|owner| owner.kind == "NMState")
        && remove(client, key, object.uid()).await?
    {
        tracing::info!("removed {}, which kubernetes-nmstate had created", key.description());
    }
    Ok(())
}
