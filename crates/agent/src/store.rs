//! Where orders come from and results go to.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use knmstate_api::{
    NodeNetworkConfigurationEnactmentSpec, NodeNetworkConfigurationEnactmentStatus, NodeNetworkStateStatus,
    State, condition::whole_second, node_network_state::LinkState,
};
use knmstate_core::probes::ApiAccess;
use tokio::sync::watch;

/// One order of this node.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// What is to be done.
    pub spec: NodeNetworkConfigurationEnactmentSpec,
    /// What is already said of it where the order comes from. The node's own disk knows better, if it knows anything.
    pub status: Option<NodeNetworkConfigurationEnactmentStatus>,
}

/// All orders of this node, by policy.
pub type Orders = BTreeMap<String, Order>;

/// The network as it is shown to the world.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportedNetwork {
    /// Filtered, and within its budget of bytes.
    pub state: State,
    /// What had to be left out to keep the budget, for people. Empty when nothing was.
    pub omitted: Vec<String>,
    pub links: Vec<LinkState>,
    pub nmstate_version: String,
    /// Empty while NetworkManager does not run.
    pub network_manager_version: String,
}

impl ReportedNetwork {
    /// The status of the node state that shows this network. Its time moves only with the network.
    pub fn status(&self, shown: &NodeNetworkStateStatus, now: Timestamp) -> NodeNetworkStateStatus {
        let unchanged = shown.current_state.as_ref() == Some(&self.state);
        let since = shown.last_successful_update_time.clone().filter(|_| unchanged);
        NodeNetworkStateStatus {
            current_state: Some(self.state.clone()),
            last_successful_update_time: Some(since.unwrap_or_else(|| whole_second(now))),
            handler_nmstate_version: self.nmstate_version.clone(),
            host_network_manager_version: self.network_manager_version.clone(),
            omitted: self.omitted.clone(),
            links: self.links.clone(),
            ..NodeNetworkStateStatus::default()
        }
    }
}

/// The world outside of this node: a cluster, or a directory.
///
/// Nothing here waits for that world. What is told is kept, the newest for each thing, and delivered as soon as
/// possible, so that a node whose way to the API server is cut does its work all the same.
pub trait Store: Clone + Send + Sync + 'static {
    /// The orders, now and whenever they change; `None` until they are known for the first time.
    fn orders(&self) -> watch::Receiver<Option<Arc<Orders>>>;

    /// What the node says of one of its orders. What is said there already is not written again.
    fn tell(&self, policy: &str, status: NodeNetworkConfigurationEnactmentStatus);

    /// What the network of the node is. What is shown already is not written again.
    fn publish(&self, network: ReportedNetwork);

    /// Asked from outside to report anew, whether something changed or not. There is one listener.
    fn refresh_wanted(&self) -> impl Future<Output = ()> + Send;

    /// Whether there is an API server, and whether it answers at present. Of one that does not, nothing can be asked
    /// of a change.
    fn api_access(&self) -> ApiAccess;

    /// Waits until everything told so far has been delivered, no longer than `limit`; false if something is left.
    fn flush(&self, limit: Duration) -> impl Future<Output = bool> + Send;
}
