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
    finalizer::let_go,
    surroundings,
    view::key,
};
use crate::{
    Config,
    catalogue::{DAEMON_SET, DEFINITION, DEPLOYMENT, KINDS, Kind, LEASE, NAMESPACE, SECRET},
    facts::Facts,
    operands::{MADE_HERE, managed_by},
};

/// How often it is looked whether something is gone.
const PAUSE: Duration = Duration::from_millis(500);
/// How long something may take to go: handlers end what they are at, and a namespace empties itself.
const PATIENCE: Duration = Duration::from_mins(2);

/// Why not everything is gone.
#[derive(Debug, thiserror::Error)]
pub enum RemovalError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("{0} is still there after {limit} s; look at its finalizers and events", limit = PATIENCE.as_secs())]
    StillThere(String),
}

/// Removes everything. What is asked for first is gone before the next is touched:
///
/// 1. what would ask a controller that is going away;
/// 2. controllers and handlers, which end what they are at or take it back;
/// 3. what they have made for themselves, and what they stood on; the guards go after the rights that they narrow;
/// 4. the namespace, if the operator has made it.
pub async fn remove_operands(client: &Client, config: &Config) -> Result<usize, RemovalError> {
    let surroundings = surroundings::look(client, config).await?;
    let facts = Facts { kinds: surroundings.kinds, ..Facts::default() };
    let settings = config.settings(false);
    let (label, value) = managed_by(&settings);
    let ours = ListParams::default().labels(&format!("{label}={value}"));
    let mut removed = 0;
    for kind in in_order().filter(|kind| facts.has(kind)) {
        if *kind == NAMESPACE {
            for key in made_by_controllers(config) {
                removed += usize::from(remove(client, &key, None).await?);
            }
        }
        let mut gone = Vec::new();
        let objects: Api<DynamicObject> = of_kind(client, kind, &config.namespace);
        for object in within_limit(objects.list(&ours)).await? {
            if *kind == NAMESPACE && !object.annotations().contains_key(MADE_HERE) {
                continue;
            }
            let key = key(kind, &object);
            remove(client, &key, object.uid()).await?;
            gone.push(key);
        }
        for key in &gone {
            until_gone(client, key).await?;
            tracing::info!("removed {}", key.words());
        }
        removed += gone.len();
    }
    Ok(removed)
}

/// Removes everything, NMStates included. They are gone when everything else is.
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
        let_go(client, &nmstate).await?;
        tracing::info!("removed NMState {}", nmstate.name_any());
    }
    Ok(removed)
}

async fn list_nmstates(nmstates: &Api<NMState>) -> Result<Vec<NMState>, CallError> {
    match within_limit(nmstates.list(&ListParams::default())).await {
        Ok(all) => Ok(all.items),
        // Without the definition there are none.
        Err(error) if error.code() == Some(404) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Ends the operator itself, so that it does not make anew what is being removed.
async fn remove_operator(client: &Client, config: &Config) -> Result<(), RemovalError> {
    let name = config.settings(false).operator();
    let key = Key { kind: DEPLOYMENT, namespace: Some(config.operator_namespace.clone()), name };
    if remove(client, &key, None).await? {
        until_gone(client, &key).await?;
        tracing::info!("removed {}", key.words());
    }
    Ok(())
}

/// The kinds in the order in which they go. Definitions stay, and with them what users have written.
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

fn made_by_controllers(config: &Config) -> [Key; 3] {
    let settings = config.settings(false);
    let at_home = |kind, name| Key { kind, namespace: Some(config.namespace.clone()), name };
    [
        at_home(SECRET, settings.certificate_secret()),
        at_home(SECRET, settings.authority_secret()),
        at_home(LEASE, settings.leader_lease()),
    ]
}

/// Whether it was there. With a uid, another object of the same name is left alone.
pub async fn remove(client: &Client, key: &Key, uid: Option<String>) -> Result<bool, CallError> {
    let parameters = DeleteParams {
        // A workload is gone when its pods are.
        propagation_policy: Some(PropagationPolicy::Foreground),
        preconditions: uid.map(|uid| Preconditions { uid: Some(uid), resource_version: None }),
        ..DeleteParams::default()
    };
    match within_limit(key.api(client).delete(&key.name, &parameters)).await {
        Ok(_) => Ok(true),
        // Somebody else was quicker.
        Err(error) if matches!(error.code(), Some(404 | 409)) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn until_gone(client: &Client, key: &Key) -> Result<(), RemovalError> {
    let api: Api<DynamicObject> = key.api(client);
    let gone = async {
        while within_limit(api.get_metadata_opt(&key.name)).await?.is_some() {
            sleep(PAUSE).await;
        }
        Ok(())
    };
    timeout(PATIENCE, gone).await.unwrap_or_else(|_| Err(RemovalError::StillThere(key.words())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_on_something_goes_before_it() {
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
