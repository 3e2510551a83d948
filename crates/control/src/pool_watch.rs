//! The watch of MachineConfigPools: only where they exist, and only while a policy is to be rolled out through them.

use std::time::Duration;

use knmstate_client::{
    call::{CallError, Trouble},
    discovery::kinds_of,
    watch::{Selection, follow},
};
use kube::{Api, Client};
use tokio::time::sleep;

use crate::{
    sources::LiveWorld,
    world::pools::{Known, POOL_KIND, POOLS_API},
};

/// How often it is asked whether this cluster has pools, while it matters.
const LOOK: Duration = Duration::from_secs(15);

/// Keeps the pools of a world up to date, for ever.
pub async fn keep(client: Client, world: LiveWorld) {
    let mut needed = world.needs_pools();
    let mut trouble = Trouble::new("ask whether there are MachineConfigPools");
    while needed.wait_for(|needed| *needed).await.is_ok() {
        match exist(&client).await {
            Ok(true) => {
                trouble.over();
                let see = |seen| world.change(|known| known.see_pools(seen));
                let watch =
                    follow(Api::all(client.clone()), Selection::All, "watch MachineConfigPools", |_| {}, see);
                tokio::select! {
                    () = watch => {}
                    () = vanish(&client) => {}
                    _ = needed.wait_for(|needed| !needed) => {}
                }
                world.change(|known| known.set_pools(Known::Nothing));
            }
            Ok(false) => {
                trouble.over();
                world.change(|known| known.set_pools(Known::NoSuchKind));
                sleep(LOOK).await;
            }
            Err(error) => {
                trouble.failed(&error);
                sleep(LOOK).await;
            }
        }
    }
}

/// Ends when there is no such kind any more.
async fn vanish(client: &Client) {
    loop {
        sleep(LOOK).await;
        if let Ok(false) = exist(client).await {
            return;
        }
    }
}

/// Whether the API server knows pools.
async fn exist(client: &Client) -> Result<bool, CallError> {
    Ok(kinds_of(client, POOLS_API).await?.contains(POOL_KIND))
}
