//! What a stolen token can do: the token of one node's handler, one without a node, the controller's and the operator's,
//! each with the verbs on objects that are not its own.

mod attempts;
mod cluster;
mod controller;
mod operator;
mod own_node;
mod targets;

use anyhow::{Result, ensure};
use rig::{BoundTo, Settings, request::Request};

use self::{
    attempts::AttemptLog,
    cluster::{GuardedCluster, state},
    targets::{not_for_handlers, ways_around, work_of_handler},
};

/// The node whose token is stolen.
const OWN: &str = "worker";
/// Their names begin like the first one's, and so do those of their enactments.
const OTHER: &str = "worker1";
const DOTTED: &str = "worker.1";

const STATES: &str = "/apis/nmstate.io/v1beta1/nodenetworkstates";
const ENACTMENTS: &str = "/apis/nmstate.io/v1beta1/nodenetworkconfigurationenactments";
const HANDLER: &str = "system:serviceaccount:nmstate:nmstate-handler";
const NO_NODE: &str = "the token does not name the node of its handler";

#[tokio::test]
async fn a_handlers_token_gives_access_to_the_objects_of_its_own_node_only() -> Result<()> {
    let cluster = GuardedCluster::start(&Settings::default()).await?;
    let handler = cluster.client_of("nmstate-handler", BoundTo::Pod("nmstate-handler-worker")).await?;
    let unbound = cluster.client_of("nmstate-handler", BoundTo::Nothing).await?;
    let targets = not_for_handlers();
    let before = cluster.versions(&targets).await?;

    let mut log = AttemptLog::default();
    for (who, client) in [("handler of worker", &handler), ("token without a node", &unbound)] {
        for target in &targets {
            for attempt in target.attempts(&cluster.admin).await? {
                log.must_be_refused(who, client, &attempt, "").await?;
            }
        }
        for attempt in ways_around() {
            log.must_be_refused(who, client, &attempt, "").await?;
        }
    }
    let after = cluster.versions(&targets).await?;

    let creation = Request::create(STATES, state(OWN));
    log.must_be_refused("token without a node", &unbound, &creation, NO_NODE).await?;
    for request in work_of_handler() {
        log.must_work("handler of worker", &handler, &request).await?;
    }
    // The same account without the claim may read, and no more.
    for request in work_of_handler() {
        if request.is_write() {
            log.must_be_refused("token without a node", &unbound, &request, NO_NODE).await?;
            let request = request.impersonating(HANDLER);
            log.must_be_refused("certificate without a node", &cluster.admin, &request, NO_NODE).await?;
        } else {
            log.must_work("token without a node", &unbound, &request).await?;
        }
    }
    log.conclusion()?;
    ensure!(after == before, "something was changed, created or deleted:\n{before:#?}\n{after:#?}");
    Ok(())
}
