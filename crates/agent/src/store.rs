//! The interface between the agent and the place that its orders come from.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use knmstate_api::{
    NodeNetworkConfigurationEnactmentSpec, NodeNetworkConfigurationEnactmentStatus, NodeNetworkStateStatus,
    State,
    node_network_state::{LinkState, SetAsideChange},
    whole_second,
};
use knmstate_core::probes::ApiAccess;
use tokio::sync::watch;

/// One order of this node.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// What the node has to apply.
    pub spec: NodeNetworkConfigurationEnactmentSpec,
    /// The status that the store already has, if any. The status in the node's ledger takes precedence.
    pub status: Option<NodeNetworkConfigurationEnactmentStatus>,
}

/// All orders of this node, by policy.
pub type Orders = BTreeMap<String, Order>;

/// The network as the node state reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportedNetwork {
    /// Filtered, and cut to its budget of bytes.
    pub state: State,
    /// What was left out to keep the budget, in words. Empty when nothing was.
    pub omitted: Vec<String>,
    /// Links without a carrier, and the active ports of bonds.
    pub links: Vec<LinkState>,
    /// Changes that could not be rolled back and were given up.
    pub set_aside: Vec<SetAsideChange>,
    /// The version of nmstate that read the network.
    pub nmstate_version: String,
    /// Empty while NetworkManager does not run.
    pub network_manager_version: String,
}

impl ReportedNetwork {
    /// The status of the node state that reports this network. `published` is the status that it replaces: the time of
    /// the last update moves only when the network differs.
    pub fn status(&self, published: &NodeNetworkStateStatus, now: Timestamp) -> NodeNetworkStateStatus {
        let unchanged = published.current_state.as_ref() == Some(&self.state);
        let since = published.last_successful_update_time.clone().filter(|_| unchanged);
        NodeNetworkStateStatus {
            current_state: Some(self.state.clone()),
            last_successful_update_time: Some(since.unwrap_or_else(|| whole_second(now))),
            handler_nmstate_version: self.nmstate_version.clone(),
            host_network_manager_version: self.network_manager_version.clone(),
            omitted: self.omitted.clone(),
            links: self.links.clone(),
            set_aside: self.set_aside.clone(),
            ..NodeNetworkStateStatus::default()
        }
    }
}

/// The place that orders come from and results go to: a cluster, or a directory.
///
/// No method waits for the network. A store keeps the newest value of each result and delivers it as soon as it can, so
/// that a node that cannot reach its API server does its work all the same.
pub trait Store: Clone + Send + Sync + 'static {
    /// The orders, now and after each change; `None` until they are known for the first time.
    fn orders(&self) -> watch::Receiver<Option<Arc<Orders>>>;

    /// Whether this policy has an order that cannot be read. It is not among [`orders`](Self::orders), but was not
    /// removed either: the one before stays in force.
    fn is_unreadable(&self, _policy: &str) -> bool {
        false
    }

    /// Reports the status of one order. A status that the store already has is not written again.
    fn report_status(&self, policy: &str, status: NodeNetworkConfigurationEnactmentStatus);

    /// Reports the network of the node. A network that the store already has is not written again.
    fn publish(&self, network: ReportedNetwork);

    /// Waits until a client asks for a new report, whether the network changed or not. For one caller.
    fn refresh_requested(&self) -> impl Future<Output = ()> + Send;

    /// Whether there is an API server, and whether it responds now. While it does not, no probe of a change can need
    /// it.
    fn api_access(&self) -> ApiAccess;

    /// Waits until all reported results have been delivered, but not longer than `limit`; false if some are left.
    fn flush(&self, limit: Duration) -> impl Future<Output = bool> + Send;

    /// Waits until a part of the store has ended that should never end, and returns which.
    fn ended(&self) -> impl Future<Output = String> + Send {
        std::future::pending()
    }
}
