//! A store in memory that remembers what it was given, for tests.

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
pub(crate) struct Shelf(Arc<Inner>);

#[derive(Default)]
struct Inner {
    orders: watch::Sender<Option<Arc<Orders>>>,
    told: Mutex<Vec<(String, NodeNetworkConfigurationEnactmentStatus)>>,
    published: Mutex<Vec<(Instant, ReportedNetwork)>>,
    refresh: Notify,
}

impl Shelf {
    pub(crate) fn give(&self, orders: impl IntoIterator<Item = Order>) {
        let orders = orders.into_iter().map(|order| (order.spec.policy_name.clone(), order)).collect();
        self.0.orders.send_replace(Some(Arc::new(orders)));
    }

    /// Everything that was told, in order.
    pub(crate) fn told(&self) -> Vec<(String, NodeNetworkConfigurationEnactmentStatus)> {
        self.0.told.lock().unwrap().clone()
    }

    pub(crate) fn published(&self) -> Vec<(Instant, ReportedNetwork)> {
        self.0.published.lock().unwrap().clone()
    }

    pub(crate) fn ask_for_refresh(&self) {
        self.0.refresh.notify_one();
    }
}

impl Store for Shelf {
    fn orders(&self) -> watch::Receiver<Option<Arc<Orders>>> {
        self.0.orders.subscribe()
    }

    fn tell(&self, policy: &str, status: NodeNetworkConfigurationEnactmentStatus) {
        self.0.told.lock().unwrap().push((policy.to_owned(), status));
    }

    fn publish(&self, network: ReportedNetwork) {
        self.0.published.lock().unwrap().push((Instant::now(), network));
    }

    async fn refresh_wanted(&self) {
        self.0.refresh.notified().await;
    }

    fn api_access(&self) -> ApiAccess {
        ApiAccess::None
    }

    async fn flush(&self, _: Duration) -> bool {
        true
    }
}
