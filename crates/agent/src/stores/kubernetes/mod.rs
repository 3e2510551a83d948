//! Orders from the Kubernetes API, and results to it.
//!
//! ```text
//!   watch of the node's enactments ──► orders::Reader ──► orders
//!                                            │ their statuses at the server
//!   report_status ───────► SharedOutbox<EnactmentStatuses> ──► StatusWriter ──► status of an enactment
//!   publish ─────────────► SharedOutbox<NodeState> ──► NodeStateWriter ──► NodeNetworkState
//!                                            │ the object at the server, and whether a report is asked for
//!   watch of the own node state ─────────────┘
//! ```
//!
//! Both outboxes compare what was reported with what the server has, and write only the difference: after a restart
//! with nothing changed, nothing; after an outage, the newest of each.
//!
//! The engine should report the status of every order whenever the orders change: an enactment that was deleted and
//! created again has none, and a status that the server has already costs nothing.

mod node_state;
mod orders;
mod statuses;
mod tasks;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::FutureExt as _;
use jiff::Timestamp;
use knmstate_api::{NodeNetworkConfigurationEnactmentStatus, names};
use knmstate_client::{
    connection::connect,
    outbox::SharedOutbox,
    watch::{self, Selection},
};
use knmstate_core::probes::ApiAccess;
use kube::{Api, Config};
use tokio::sync::{Notify, watch as channel};

use self::{
    node_state::{NodeState, NodeStateWriter},
    statuses::{EnactmentStatuses, StatusWriter},
    tasks::Tasks,
};
use crate::store::{Orders, ReportedNetwork, Store};

/// Which API server, and for which node.
#[derive(Clone, Debug)]
pub struct KubernetesStoreOptions {
    pub config: Config,
    /// The node's own name.
    pub node: String,
    /// Labels of the node state; see [`knmstate_api::names::relationship`].
    pub relationship_labels: BTreeMap<String, String>,
    /// The clock, for when the network last changed.
    pub now: fn() -> Timestamp,
}

/// The store of a node in a cluster. Clones share it; it stops when the last one is gone.
#[derive(Clone, Debug)]
pub struct KubernetesStore {
    orders: channel::Receiver<Option<Arc<Orders>>>,
    unreadable: channel::Receiver<BTreeSet<String>>,
    connected: channel::Receiver<bool>,
    refresh: Arc<Notify>,
    statuses: Arc<SharedOutbox<EnactmentStatuses>>,
    node_state: Arc<SharedOutbox<NodeState>>,
    tasks: Tasks,
}

impl KubernetesStore {
    /// Starts watching and writing. It succeeds whether the API server is there or not; only a configuration that
    /// cannot be used is an error.
    pub fn start(options: KubernetesStoreOptions) -> kube::Result<Self> {
        let KubernetesStoreOptions { config, node, relationship_labels: labels, now } = options;
        let client = connect(config, Duration::from_secs(10))?;

        let (orders_sender, orders) = channel::channel(None);
        let (connected_sender, connected) = channel::channel(false);
        let refresh = Arc::new(Notify::new());
        let statuses = Arc::new(SharedOutbox::new(EnactmentStatuses::default()));
        let node_state = Arc::new(SharedOutbox::new(NodeState::new(node.clone(), labels.clone(), now)));

        let mut reader = orders::Reader::new(node.clone(), orders_sender, statuses.clone());
        let unreadable = reader.unreadable();
        let watch_orders = watch::follow(
            Api::all(client.clone()),
            Selection::Label(format!("{}={}", names::NODE_LABEL, names::node_label(&node))),
            "watch the orders of this node",
            move |answers| {
                connected_sender.send_if_modified(|known| std::mem::replace(known, answers) != answers);
            },
            move |event| reader.handle(event),
        );
        let (outbox, refresh_wanted) = (node_state.clone(), refresh.clone());
        let watch_state = watch::follow(
            Api::all(client.clone()),
            Selection::Name(node.clone()),
            "watch the state of this node",
            |_| {},
            move |event| {
                if outbox.change(|state| state.handle(event)) {
                    refresh_wanted.notify_one();
                }
            },
        );

        let (outbox, up) = (statuses.clone(), connected.clone());
        let writer = StatusWriter { client: client.clone(), node: node.clone() };
        let write_statuses = async move { outbox.run(writer, up, "write the status of an order").await };
        let (outbox, up) = (node_state.clone(), connected.clone());
        let writer = NodeStateWriter { client, node, labels };
        let write_state = async move { outbox.run(writer, up, "report the network of this node").await };

        let tasks = Tasks::start([
            ("the watch of the orders", watch_orders.boxed()),
            ("the watch of the node state", watch_state.boxed()),
            ("the writer of the results", write_statuses.boxed()),
            ("the writer of the node state", write_state.boxed()),
        ]);
        Ok(Self { orders, unreadable, connected, refresh, statuses, node_state, tasks })
    }
}

impl Store for KubernetesStore {
    fn orders(&self) -> channel::Receiver<Option<Arc<Orders>>> {
        self.orders.clone()
    }

    fn is_unreadable(&self, policy: &str) -> bool {
        self.unreadable.borrow().contains(policy)
    }

    fn report_status(&self, policy: &str, status: NodeNetworkConfigurationEnactmentStatus) {
        self.statuses.change(|statuses| statuses.report(policy, status));
    }

    fn publish(&self, network: ReportedNetwork) {
        self.node_state.change(|state| state.publish(network));
    }

    async fn refresh_requested(&self) {
        self.refresh.notified().await;
    }

    fn api_access(&self) -> ApiAccess {
        if *self.connected.borrow() { ApiAccess::Connected } else { ApiAccess::Unreachable }
    }

    async fn flush(&self, limit: Duration) -> bool {
        let both = async {
            self.statuses.delivered().await;
            self.node_state.delivered().await;
        };
        tokio::time::timeout(limit, both).await.is_ok()
    }

    async fn ended(&self) -> String {
        self.tasks.ended().await
    }
}
