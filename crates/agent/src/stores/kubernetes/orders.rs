//! The orders of this node, out of its enactments.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knmstate_api::{
    NodeNetworkConfigurationEnactment, NodeNetworkConfigurationEnactmentSpec,
    NodeNetworkConfigurationEnactmentStatus, names,
};
use knmstate_client::{
    outbox::SharedOutbox,
    raw::{Part, metadata},
    reads_like,
    store::Store,
    watch::ObjectEvent,
};
use knmstate_core::{budget::size, status_budget::budget_beside};
use kube::ResourceExt as _;
use serde::Deserialize;
use tokio::sync::watch;

use super::statuses::{EnactmentStatuses, StoredStatus};
use crate::store::{Order, Orders};

/// An enactment of this node. Its order is there even if its status cannot be read, which is then written again.
#[derive(Clone, Debug, Deserialize)]
pub struct OwnEnactment {
    #[serde(deserialize_with = "metadata")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Option<NodeNetworkConfigurationEnactmentSpec>,
    #[serde(default)]
    status: Part<NodeNetworkConfigurationEnactmentStatus>,
}

reads_like!(OwnEnactment, NodeNetworkConfigurationEnactment);

/// Follows the enactments of this node: publishes their orders, and records their statuses at the server.
#[derive(Debug)]
pub struct Reader {
    node: String,
    /// By the name of the enactment.
    enactments: Store<Order>,
    orders: watch::Sender<Option<Arc<Orders>>>,
    /// The policies of orders that cannot be read, and have not been read before.
    unreadable: watch::Sender<BTreeSet<String>>,
    statuses: Arc<SharedOutbox<EnactmentStatuses>>,
    /// The enactments that a warning was logged for.
    warned: BTreeSet<String>,
}

impl Reader {
    pub fn new(
        node: String,
        orders: watch::Sender<Option<Arc<Orders>>>,
        statuses: Arc<SharedOutbox<EnactmentStatuses>>,
    ) -> Self {
        let unreadable = watch::Sender::default();
        Self { node, enactments: Store::default(), orders, unreadable, statuses, warned: BTreeSet::new() }
    }

    /// The policies of orders that cannot be read, and have not been read before.
    pub fn unreadable(&self) -> watch::Receiver<BTreeSet<String>> {
        self.unreadable.subscribe()
    }

    pub fn handle(&mut self, event: ObjectEvent<OwnEnactment>) {
        match &event {
            ObjectEvent::All(all) => {
                let listed: BTreeSet<String> = all.iter().map(kube::ResourceExt::name_any).collect();
                self.warned.retain(|name| listed.contains(name));
            }
            ObjectEvent::Changed(_) => {}
            ObjectEvent::Gone(enactment) => {
                self.warned.remove(&enactment.name_any());
            }
        }
        let (node, warned) = (&self.node, &mut self.warned);
        let changes = self.enactments.apply(event, |enactment, _| read(enactment, node, warned));
        for name in &changes.unreadable {
            warn(warned, name, "this version does not understand it; the order before stays in force");
        }
        if changes.listed {
            let stored = self.enactments.iter().map(|(name, order)| {
                (order.spec.policy_name.clone(), stored_status(order, self.enactments.version(name)))
            });
            let stored = stored.collect();
            self.statuses.change(|statuses| statuses.listed(stored));
        } else {
            for (name, before) in &changes.changed {
                match (self.enactments.get(name), before) {
                    (Some(order), _) => {
                        let stored = stored_status(order, self.enactments.version(name));
                        self.statuses.change(|statuses| statuses.changed(&order.spec.policy_name, stored));
                    }
                    (None, Some(before)) => {
                        self.statuses.change(|statuses| statuses.deleted(&before.spec.policy_name));
                    }
                    (None, None) => {}
                }
            }
        }
        let names = self.enactments.unreadable().filter(|name| !self.enactments.contains_key(*name));
        let unreadable: BTreeSet<String> = names
            .filter_map(|name| names::policy_of_enactment(name, &self.node))
            .map(str::to_owned)
            .collect();
        let is_new = self
            .unreadable
            .send_if_modified(|known| std::mem::replace(known, unreadable.clone()) != unreadable);
        if is_new || !changes.is_empty() {
            self.publish(is_new);
        }
    }

    /// Publishes the orders if they are the first ones, their specs differ, or others cannot be read than before. A
    /// status, mostly written by this node, does not make an order another one.
    fn publish(&self, is_new: bool) {
        let orders = self.enactments.values().map(|order| (order.spec.policy_name.clone(), order.clone()));
        let orders: Orders = orders.collect();
        self.orders.send_if_modified(|published| {
            let is_same = !is_new
                && published.as_ref().is_some_and(|published| {
                    published.len() == orders.len()
                        && published.iter().zip(&orders).all(|((policy, order), (new_policy, new_order))| {
                            policy == new_policy && order.spec == new_order.spec
                        })
                });
            if !is_same {
                *published = Some(Arc::new(orders));
            }
            !is_same
        });
    }
}

/// The order of an enactment; `None` if it is none for this node.
fn read(enactment: OwnEnactment, node: &str, warned: &mut BTreeSet<String>) -> Option<Order> {
    let name = enactment.name_any();
    // One without a spec was made by kubernetes-nmstate, where each node decides for itself.
    let Some(spec) = enactment.spec else {
        if names::policy_of_enactment(&name, node).is_none() {
            warn(warned, &name, "it is not called <node>.<policy>");
        }
        return None;
    };
    if spec.node_name != node || name != names::enactment_name(&spec.node_name, &spec.policy_name) {
        warn(warned, &name, "its order is for another node or policy than its name says");
        return None;
    }
    let empty = NodeNetworkConfigurationEnactmentStatus::default();
    let status = enactment.status.0.ok().filter(|status| *status != empty);
    Some(Order { spec, status })
}

fn stored_status(order: &Order, version: &str) -> StoredStatus {
    StoredStatus {
        status: order.status.clone().unwrap_or_default(),
        version: version.to_owned(),
        budget: budget_beside(size(&order.spec)),
    }
}

/// Once per enactment, for as long as it exists.
fn warn(warned: &mut BTreeSet<String>, enactment: &str, why: &str) {
    if warned.insert(enactment.to_owned()) {
        tracing::warn!(enactment, "an enactment is ignored: {why}");
    }
}

#[cfg(test)]
mod tests;
