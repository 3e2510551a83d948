//! Removing everything that was made: the nodes' networks, the policies and the definitions of the kinds stay.

use std::time::Duration;

use knmstate_api::NMState;
use knmstate_client::call::{CallError, within_limit};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, Preconditions, PropagationPolicy},
};
use tokio::time::{sleep, timeout};

use super::{
    addresses::{Key, of_kind},
    finalizer::remove_finalizer,
    surroundings,
};
use crate::{
    Config,
    cluster::ClusterInfo,
    kinds::{DAEMON_SET, DEFINITION, DEPLOYMENT, KINDS, Kind, LEASE, NAMESPACE, SECRET},
    operands::{CREATED_BY_OPERATOR, managed_by},
};

/// How often to check whether an object has been deleted.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How long a deletion may take: handlers finish or roll back their change, and a namespace deletes its objects.
const REMOVAL_TIMEOUT: Duration = Duration::from_mins(2);

/// Why a removal failed.
#[derive(Debug, thiserror::Error)]
pub enum RemovalError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("{0} is still there after {limit} s; look at its finalizers and events", limit = REMOVAL_TIMEOUT.as_secs())]
    StillThere(String),
}

/// Removes the operands, and returns their number. Each group is gone before the next one is deleted:
///
/// 1. webhook configurations, which would call a controller that is gone;
/// 2. controllers and handlers, which finish their change or roll it back;
/// 3. the objects that they created or used; the guards go after the rights that they narrow;
/// 4. the namespace, if the operator has created it.
///
/// Fails if the API server cannot be reached, or if an object still exists after two minutes.
pub(crate) async fn remove_operands(client: &Client, config: &Config) -> Result<usize, RemovalError> {
    let surroundings = surroundings::inspect(client, config).await?;
    let cluster = ClusterInfo { kinds: surroundings.kinds, ..ClusterInfo::default() };
    let settings = config.settings(false);
    let (label, value) = managed_by(&settings);
    let ours = ListParams::default().labels(&format!("{label}={value}"));
    let mut removed = 0;
    for kind in in_order().filter(|kind| cluster.has(kind)) {
        if *kind == NAMESPACE {
            for key in created_by_controllers(config) {
                removed += usize::from(remove(client, &key, None).await?);
            }
        }
        let mut gone = Vec::new();
        let objects: Api<DynamicObject> = of_kind(client, kind, &config.namespace);
        for object in within_limit(objects.list(&ours)).await? {
            if *kind == NAMESPACE && !object.annotations().contains_key(CREATED_BY_OPERATOR) {
                continue;
            }
            let key = Key { kind: *kind, namespace: object.namespace(), name: object.name_any() };
            remove(client, &key, object.uid()).await?;
            gone.push(key);
        }
        for key in &gone {
            until_gone(client, key).await?;
            tracing::info!("removed {}", key.description());
        }
        removed += gone.len();
    }
    Ok(removed)
}

/// Removes the operator, its operands and the NMStates, and returns the number of operands. An NMState goes last.
pub async fn remove_all(client: &Client, config: &Config) -> Result<usize, RemovalError> {
    remove_operator(client, config).await?;
    let nmstates: Api<NMState> = Api::all(client.clone());
    for nmstate in list_nmstates(&nmstates).await? {
        match within_limit(nmstates.delete(&nmstate.name_any(), &DeleteParams::default())).await {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
    }
    let removed = remove_operands(client, config).await?;
    for nmstate in list_nmstates(&nmstates).await? {
        remove_finalizer(client, &nmstate).await?;
        tracing::info!("removed NMState {}", nmstate.name_any());
    }
    Ok(removed)
}

async fn list_nmstates(nmstates: &Api<NMState>) -> Result<Vec<NMState>, CallError> {
    match within_limit(nmstates.list(&ListParams::default())).await {
        Ok(all) => Ok(all.items),
        // The kind does not exist.
        Err(error) if error.code() == Some(404) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Deletes the operator itself, so that it does not create again what is being removed.
async fn remove_operator(client: &Client, config: &Config) -> Result<(), RemovalError> {
    let name = config.settings(false).operator();
    let key = Key { kind: DEPLOYMENT, namespace: Some(config.operator_namespace.clone()), name };
    if remove(client, &key, None).await? {
        until_gone(client, &key).await?;
        tracing::info!("removed {}", key.description());
    }
    Ok(())
}

/// The kinds in the order of removal. CustomResourceDefinitions stay, because all policies would go with them.
fn in_order() -> impl Iterator<Item = &'static Kind> {
    let rank = |kind: &Kind| match kind {
        kind if kind.kind.ends_with("WebhookConfiguration") => 0,
        kind if *kind == DAEMON_SET || *kind == DEPLOYMENT => 1,
        kind if *kind == NAMESPACE => 3,
        _ => 2,
    };
    let mut kinds: Vec<&Kind> = KINDS.iter().rev().filter(|kind| **kind != DEFINITION).collect();
    kinds.sort_by_key(|kind| rank(kind));
    kinds.into_iter()
}

fn created_by_controllers(config: &Config) -> [Key; 3] {
    let settings = config.settings(false);
    let in_namespace = |kind, name| Key { kind, namespace: Some(config.namespace.clone()), name };
    [
        in_namespace(SECRET, settings.certificate_secret()),
        in_namespace(SECRET, settings.authority_secret()),
        in_namespace(LEASE, settings.leader_lease()),
    ]
}

/// Deletes an object and returns whether it existed. With a uid, another object of the same name is left alone.
pub(crate) async fn remove(client: &Client, key: &Key, uid: Option<String>) -> Result<bool, CallError> {
    let parameters = DeleteParams {
        // A workload is deleted after its pods.
        propagation_policy: Some(PropagationPolicy::Foreground),
        preconditions: uid.map(|uid| Preconditions { uid: Some(uid), resource_version: None }),
        ..DeleteParams::default()
    };
    match within_limit(key.api(client).delete(&key.name, &parameters)).await {
        Ok(_) => Ok(true),
        // Another client was faster.
        Err(error) if matches!(error.code(), Some(404 | 409)) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn until_gone(client: &Client, key: &Key) -> Result<(), RemovalError> {
    let api: Api<DynamicObject> = key.api(client);
    let gone = async {
        while within_limit(api.get_metadata_opt(&key.name)).await?.is_some() {
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    };
    timeout(REMOVAL_TIMEOUT, gone).await.unwrap_or_else(|_| Err(RemovalError::StillThere(key.description())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_removed_before_those_that_they_use() {
        let order: Vec<&str> = in_order().map(|kind| kind.kind).collect();
        let place = |kind: &str| order.iter().position(|known| *known == kind).unwrap();
        for (first, then) in [
            ("MutatingWebhookConfiguration", "Deployment"),
            ("ValidatingWebhookConfiguration", "DaemonSet"),
            ("DaemonSet", "ClusterRoleBinding"),
            ("Deployment", "Service"),
            ("ClusterRoleBinding", "ValidatingAdmissionPolicyBinding"),
            ("ClusterRole", "ValidatingAdmissionPolicy"),
            ("ServiceAccount", "Namespace"),
        ] {
            assert!(place(first) < place(then), "{first} goes after {then}: {order:?}");
        }
        assert_eq!(order.last(), Some(&"Namespace"));
        assert!(!order.contains(&"CustomResourceDefinition"));
        assert_eq!(order.len(), KINDS.len() - 1);
    }
}
