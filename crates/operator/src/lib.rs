//! The objects that knmstate consists of in a cluster, and the operator that applies and removes them.
//!
//! The objects are pure functions of [`Settings`] (what a cluster needs without processes, [`groups`]), of [`Config`] (the
//! operator itself, [`installation`]) and of the NMState (everything that the operator makes, `operands`).
//! `knmstate manifests` prints them, tests apply them, Helm chart and OLM bundle are generated from them. The definitions
//! of the kinds are in `knmstate_api::crds`.

#![warn(unreachable_pub)]

mod admission;
mod auto_create;
mod ca_bundle;
mod cluster;
mod config;
mod controller_guard;
mod dispatch_rules;
mod disruption;
pub mod installation;
mod kinds;
mod live;
mod monitor;
mod monitoring;
mod namespace;
mod network_policies;
mod node_guard;
mod node_state_rules;
mod object;
mod operands;
mod policy_rules;
mod readers;
mod rights;
mod services;
mod settings;
mod status;
mod webhooks;
mod workloads;

pub use auto_create::{AutoCreate, AutoCreateMode};
pub use config::Config;
pub use kinds::{DEFINITION, KINDS, Kind};
pub use live::{OperatorError, OperatorOptions, RemovalError, client, remove_all, run};
pub use monitoring::{ALERTS, Alert, AlertSeverity, DASHBOARD, prometheus_rule};
pub use object::{ForeignObject, Object};
pub use settings::Settings;

/// Objects that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Usable as the name of a file, such as `node-guard`.
    pub name: &'static str,
    /// In the order to apply them in.
    pub objects: Vec<Object>,
}

/// What a cluster needs for controllers and handlers that are started by other means than the operator: namespace, rights,
/// admission rules and webhook configurations. In the order to apply them in: the guards come before the rights that they
/// narrow.
pub fn groups(settings: &Settings) -> Vec<Group> {
    let group = |name, objects| Group { name, objects };
    let mut groups = vec![
        group("namespace", vec![namespace::namespace(settings).into()]),
        group("node-guard", node_guard::node_guard(settings)),
        group("controller-guard", controller_guard::controller_guard(settings)),
        group("policy-rules", policy_rules::policy_rules(settings)),
        group("node-state-rules", node_state_rules::node_state_rules(settings)),
        group("dispatch-rules", dispatch_rules::dispatch_rules(settings)),
        group("handler-rights", rights::handler::handler(settings)),
        group("controller-rights", rights::controller::controller(settings)),
        group("ca-bundle", ca_bundle::ca_bundle(settings)),
        group("webhooks", webhooks::webhooks(settings)),
    ];
    groups.retain(|group| !group.objects.is_empty());
    groups
}

/// The objects of all [`groups`], in the same order.
pub fn cluster_objects(settings: &Settings) -> Vec<Object> {
    groups(settings).into_iter().flat_map(|group| group.objects).collect()
}

#[cfg(test)]
mod tests;
