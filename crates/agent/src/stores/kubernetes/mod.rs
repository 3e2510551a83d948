//! Orders and results by way of the Kubernetes API.
//!
//! ```text
//!   watch of the node's enactments ──► orders::Reader ──► orders
//!                                            │ what is said of them already
//!   tell ─────────────────────► Desk<Enactments> ──► enactments::Writer ──► status of an enactment
//!   publish ──────────────────► Desk<NodeState>  ──► node_state::Writer ──► NodeNetworkState
//!                                            │ what is shown already, and whether a report is asked for
//!   watch of the own node state ─────────────┘
//! ```
//!
//! Both desks compare what was said with what the server has, and write only the difference: after a restart with
//! nothing changed, nothing at all; after an outage, the newest of each.
//!
//! Whoever carries out orders should tell the status of each one whenever the orders change: an enactment that was
//! deleted and made anew has none, and what is there already costs nothing.

mod desk;
mod enactments;
mod node_state;
mod orders;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use knmstate_api::{NodeNetworkConfigurationEnactmentStatus, names};
use knmstate_client::watch::{self, Selection};
use knmstate_core::probes::ApiAccess;
use kube::{Api, Client, Config};
use tokio::{
    sync::{Notify, watch as channel},
    task::JoinSet,
};

use self::{desk::Desk, enactments::Enactments, node_state::NodeState};
use crate::store::{Orders, ReportedNetwork, Store};

/// Where the API is, and who speaks to it.
#[derive(Clone, Debug)]
pub struct Options {
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
    connected: channel::Receiver<bool>,
    refresh: Arc<Notify>,
    enactments: Arc<Desk<Enactments>>,
    node_state: Arc<Desk<NodeState>>,
    _tasks: Arc<JoinSet<()>>,
}

impl KubernetesStore {
    /// Starts watching and writing. It succeeds whether the API server is there or not; only a configuration that
    /// cannot be used is an error.
    pub fn start(options: Options) -> kube::Result<Self> {
        let Options { mut config, node, relationship_labels: labels, now } = options;
        config.connect_timeout = Some(Duration::from_secs(10));
        // Who asks knows best when to ask again.
        config.default_retry = false;
        let client = Client::try_from(config)?;

        let (orders_sender, orders) = channel::channel(None);
        let (connected_sender, connected) = channel::channel(false);
        let refresh = Arc::new(Notify::new());
        let enactments = Arc::new(Desk::new(Enactments::default()));
        let node_state = Arc::new(Desk::new(NodeState::new(node.clone(), labels.clone(), now)));
        let mut tasks = JoinSet::new();

        let mut reader = orders::Reader::new(node.clone(), orders_sender, enactments.clone());
        tasks.spawn(watch::follow(
            Api::all(client.clone()),
            Selection::Label(format!("{}={node}", names::NODE_LABEL)),
            "watch the orders of this node",
            move |answers| {
                connected_sender.send_if_modified(|known| std::mem::replace(known, answers) != answers);
            },
            move |seen| reader.see(seen),
        ));
        let (desk, bell) = (node_state.clone(), refresh.clone());
        tasks.spawn(watch::follow(
            Api::all(client.clone()),
            Selection::Name(node.clone()),
            "watch the state of this node",
            |_| {},
            move |seen| {
                if desk.change(|state| state.see(seen)) {
                    bell.notify_one();
                }
            },
        ));

        let (desk, up) = (enactments.clone(), connected.clone());
        let writer = enactments::Writer { client: client.clone(), node: node.clone() };
        tasks.spawn(async move { desk.serve(writer, up, "tell what became of an order").await });
        let (desk, up) = (node_state.clone(), connected.clone());
        let writer = node_state::Writer { client, node, labels };
        tasks.spawn(async move { desk.serve(writer, up, "show the network of this node").await });

        Ok(Self { orders, connected, refresh, enactments, node_state, _tasks: Arc::new(tasks) })
    }
}

impl Store for KubernetesStore {
    fn orders(&self) -> channel::Receiver<Option<Arc<Orders>>> {
        self.orders.clone()
    }

    fn tell(&self, policy: &str, status: NodeNetworkConfigurationEnactmentStatus) {
        self.enactments.change(|enactments| enactments.tell(policy, status));
    }

    fn publish(&self, network: ReportedNetwork) {
        self.node_state.change(|state| state.publish(network));
    }

    async fn refresh_wanted(&self) {
        self.refresh.notified().await;
    }

    fn api_access(&self) -> ApiAccess {
        if *self.connected.borrow() { ApiAccess::Connected } else { ApiAccess::Unreachable }
    }

    async fn flush(&self, limit: Duration) -> bool {
        let both = async {
            self.enactments.delivered().await;
            self.node_state.delivered().await;
        };
        tokio::time::timeout(limit, both).await.is_ok()
    }
}
