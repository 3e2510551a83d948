//! From enactments to orders.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use knmstate_api::{NodeNetworkConfigurationEnactment, NodeNetworkConfigurationEnactmentStatus, names};
use knmstate_client::watch::Seen;
use kube::{ResourceExt as _, core::DeserializeGuard};
use tokio::sync::watch;

use super::{
    desk::Desk,
    enactments::{Enactments, There},
};
use crate::store::{Order, Orders};

/// Reads enactments as they come, gives their orders on, and notes what is said of them already.
#[derive(Debug)]
pub struct Reader {
    node: String,
    orders: watch::Sender<Option<Arc<Orders>>>,
    desk: Arc<Desk<Enactments>>,
    /// The enactments that a warning was given of.
    warned: BTreeSet<String>,
}

/// What an enactment is to this node.
#[derive(Debug)]
enum Reading {
    Order(Box<Order>),
    /// It is one, but not in words that this version knows.
    Unreadable,
    NoOrder,
}

impl Reader {
    pub fn new(
        node: String,
        orders: watch::Sender<Option<Arc<Orders>>>,
        desk: Arc<Desk<Enactments>>,
    ) -> Self {
        Self { node, orders, desk, warned: BTreeSet::new() }
    }

    pub fn see(&mut self, seen: Seen<NodeNetworkConfigurationEnactment>) {
        match seen {
            Seen::All(all) => self.see_all(all),
            Seen::Changed(enactment) => self.see_one(enactment),
            Seen::Gone(enactment) => {
                let name = enactment.name_any();
                self.warned.remove(&name);
                if let Some(policy) = names::policy_of_enactment(&name, &self.node) {
                    self.forget(policy);
                }
            }
        }
    }

    fn see_all(&mut self, all: Vec<DeserializeGuard<NodeNetworkConfigurationEnactment>>) {
        let known = self.known();
        let listed: BTreeSet<String> = all.iter().map(kube::ResourceExt::name_any).collect();
        self.warned.retain(|name| listed.contains(name));
        let mut orders = Orders::new();
        let mut there = BTreeMap::new();
        for enactment in all {
            let name = enactment.name_any();
            let version = enactment.resource_version().unwrap_or_default();
            let Some(policy) = names::policy_of_enactment(&name, &self.node).map(str::to_owned) else {
                self.warn(&name, "it is not called <node>.<policy>");
                continue;
            };
            let order = match self.read(enactment) {
                Reading::Order(order) => *order,
                Reading::Unreadable => match known.get(&policy) {
                    Some(order) => order.clone(),
                    None => continue,
                },
                Reading::NoOrder => continue,
            };
            there.insert(policy.clone(), There { status: order.status.clone().unwrap_or_default(), version });
            orders.insert(policy, order);
        }
        self.desk.change(|enactments| enactments.see_all(there));
        self.give(orders);
    }

    fn see_one(&mut self, enactment: DeserializeGuard<NodeNetworkConfigurationEnactment>) {
        let name = enactment.name_any();
        let version = enactment.resource_version().unwrap_or_default();
        let Some(policy) = names::policy_of_enactment(&name, &self.node).map(str::to_owned) else {
            return self.warn(&name, "it is not called <node>.<policy>");
        };
        match self.read(enactment) {
            Reading::Order(order) => {
                let status = order.status.clone().unwrap_or_default();
                self.desk.change(|enactments| enactments.see(&policy, There { status, version }));
                let known = self.known();
                // What was said of an order, mostly by ourselves, does not make it another one.
                if known.get(&policy).is_none_or(|known| known.spec != order.spec) {
                    let mut orders = Orders::clone(&known);
                    orders.insert(policy, *order);
                    self.give(orders);
                }
            }
            Reading::Unreadable => {}
            Reading::NoOrder => self.forget(&policy),
        }
    }

    fn forget(&mut self, policy: &str) {
        self.desk.change(|enactments| enactments.forget(policy));
        let known = self.known();
        if known.contains_key(policy) {
            let mut orders = Orders::clone(&known);
            orders.remove(policy);
            self.give(orders);
        }
    }

    fn read(&mut self, enactment: DeserializeGuard<NodeNetworkConfigurationEnactment>) -> Reading {
        let name = enactment.name_any();
        let enactment = match enactment.0 {
            Ok(enactment) => enactment,
            Err(unreadable) => {
                // Only where, as the error may quote what it stumbled over.
                tracing::debug!(enactment = name, bytes = unreadable.error.len(), "unreadable");
                self.warn(&name, "this version does not understand it; what it said before still counts");
                return Reading::Unreadable;
            }
        };
        // Made by kubernetes-nmstate, where each node is its own judge.
        let Some(spec) = enactment.spec else { return Reading::NoOrder };
        if spec.node_name != self.node || name != names::enactment_name(&spec.node_name, &spec.policy_name) {
            self.warn(&name, "its order is for another node or policy than its name says");
            return Reading::NoOrder;
        }
        let empty = NodeNetworkConfigurationEnactmentStatus::default();
        let status = (enactment.status != empty).then_some(enactment.status);
        Reading::Order(Box::new(Order { spec, status }))
    }

    fn known(&self) -> Arc<Orders> {
        self.orders.borrow().clone().unwrap_or_default()
    }

    /// Gives the orders on if they are the first ones or differ in what is to be done.
    fn give(&self, orders: Orders) {
        self.orders.send_if_modified(|given| {
            let same = given.as_ref().is_some_and(|given| {
                given.len() == orders.len()
                    && given.iter().zip(&orders).all(|((policy, order), (new_policy, new_order))| {
                        policy == new_policy && order.spec == new_order.spec
                    })
            });
            if !same {
                *given = Some(Arc::new(orders));
            }
            !same
        });
    }

    /// Once per enactment, for as long as it is there.
    fn warn(&mut self, enactment: &str, why: &str) {
        if self.warned.insert(enactment.to_owned()) {
            tracing::warn!(enactment, "an enactment is ignored: {why}");
        }
    }
}

#[cfg(test)]
mod tests;
