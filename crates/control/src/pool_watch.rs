//! The watch of MachineConfigPools: only where they exist, and only while a policy is to be rolled out through them.

use std::time::Duration;

use knmstate_client::{
    call::{CallError, FailureLog},
    discovery::kinds_of,
    watch::{Selection, follow},
};
use kube::{Api, Client};
use tokio::time::sleep;

use crate::{
    cluster_state::pools::{KnownPools, POOL_KIND, POOLS_API},
    sources::SharedClusterState,
};

/// How often to check whether this cluster has pools, while a policy needs them.
const CHECK_INTERVAL: Duration = Duration::from_secs(15);

/// Keeps the pools in the cluster state up to date, for ever.
pub(crate) async fn keep(client: Client, cluster: SharedClusterState) {
    let mut needed = cluster.needs_pools();
    let mut failures = FailureLog::new("check whether there are MachineConfigPools");
    while needed.wait_for(|needed| *needed).await.is_ok() {
        match exist(&client).await {
            Ok(true) => {
                failures.succeeded();
                let see = |seen| cluster.change(|known| known.observe_pools(seen));
                let watch =
                    follow(Api::all(client.clone()), Selection::All, "watch MachineConfigPools", |_| {}, see);
                tokio::select! {
                    () = watch => {}
                    () = until_removed(&client) => {}
                    _ = needed.wait_for(|needed| !needed) => {}
                }
                cluster.change(|known| known.set_pools(KnownPools::NotRead));
            }
            Ok(false) => {
                failures.succeeded();
                cluster.change(|known| known.set_pools(KnownPools::NoSuchKind));
                sleep(CHECK_INTERVAL).await;
            }
            Err(error) => {
                failures.failed(&error);
                sleep(CHECK_INTERVAL).await;
            }
        }
    }
}

/// Returns when the API server does not have the kind any more.
async fn until_removed(client: &Client) {
    loop {
        sleep(CHECK_INTERVAL).await;
        if let Ok(false) = exist(client).await {
            return;
        }
    }
}

/// Whether the API server has the kind.
async fn exist(client: &Client) -> Result<bool, CallError> {
    Ok(kinds_of(client, POOLS_API).await?.contains(POOL_KIND))
}
