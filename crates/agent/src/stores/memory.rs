//! A store in memory that records what it receives, for tests.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use knmstate_api::NodeNetworkConfigurationEnactmentStatus;
use knmstate_core::probes::ApiAccess;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use crate::store::{Order, Orders, ReportedNetwork, Store};

#[derive(Clone, Default)]
pub(crate) struct MemoryStore(Arc<Contents>);

#[derive(Default)]
struct Contents {
    orders: watch::Sender<Option<Arc<Orders>>>,
    statuses: Mutex<Vec<(String, NodeNetworkConfigurationEnactmentStatus)>>,
    published: Mutex<Vec<(Instant, ReportedNetwork)>>,
    refresh: Notify,
    ended: watch::Sender<Option<String>>,
    unreadable: Mutex<Vec<String>>,
}

impl MemoryStore {
    /// Has an order for this policy that cannot be read.
    pub(crate) fn add_unreadable(&self, policy: &str) {
        self.0.unreadable.lock().unwrap().push(policy.to_owned());
    }

    pub(crate) fn set_orders(&self, orders: impl IntoIterator<Item = Order>) {
        let orders = orders.into_iter().map(|order| (order.spec.policy_name.clone(), order)).collect();
        self.0.orders.send_replace(Some(Arc::new(orders)));
    }

    /// All statuses that were reported, oldest first.
    pub(crate) fn statuses(&self) -> Vec<(String, NodeNetworkConfigurationEnactmentStatus)> {
        self.0.statuses.lock().unwrap().clone()
    }

    pub(crate) fn published(&self) -> Vec<(Instant, ReportedNetwork)> {
        self.0.published.lock().unwrap().clone()
    }

    /// Lets a part of it end.
    pub(crate) fn end(&self, what: &str) {
        self.0.ended.send_replace(Some(what.to_owned()));
    }

    pub(crate) fn request_refresh(&self) {
        self.0.refresh.notify_one();
    }
}

impl Store for MemoryStore {
    fn orders(&self) -> watch::Receiver<Option<Arc<Orders>>> {
        self.0.orders.subscribe()
    }

    fn is_unreadable(&self, policy: &str) -> bool {
        self.0.unreadable.lock().unwrap().iter().any(|unreadable| unreadable == policy)
    }

    fn report_status(&self, policy: &str, status: NodeNetworkConfigurationEnactmentStatus) {
        self.0.statuses.lock().unwrap().push((policy.to_owned(), status));
    }

    fn publish(&self, network: ReportedNetwork) {
        self.0.published.lock().unwrap().push((Instant::now(), network));
    }

    async fn refresh_requested(&self) {
        self.0.refresh.notified().await;
    }

    fn api_access(&self) -> ApiAccess {
        ApiAccess::None
    }

    async fn flush(&self, _: Duration) -> bool {
        true
    }

    async fn ended(&self) -> String {
        let mut ended = self.0.ended.subscribe();
        ended.wait_for(Option::is_some).await.unwrap().clone().unwrap()
    }
}
