//! What a cluster needs for knmstate, as objects to be applied: who may do what, and what is refused to whom.
//!
//! Made in one place and used by everybody: `knmstate manifests` prints them, tests install them, and so do Helm and the
//! operator. Pure functions of [`Settings`]; the definitions of the kinds themselves are in `knmstate_api::crds`.

mod admission;
pub mod catalogue;
mod config;
mod disruption;
pub mod facts;
pub mod installation;
pub mod live;
mod monitor;
pub mod monitoring;
mod namespace;
mod network_policies;
mod node_guard;
mod node_state_rules;
mod object;
pub mod operands;
pub mod platform;
mod policy_rules;
mod readers;
mod rights;
mod services;
mod settings;
pub mod status;
mod webhooks;
mod workloads;

pub use config::Config;
pub use object::Object;
pub use settings::Settings;

/// Objects that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// In the words of a file name, such as `node-guard`.
    pub name: &'static str,
    pub objects: Vec<Object>,
}

/// Everything, in the order to apply it in: the guards stand before anybody gets the rights that they narrow.
pub fn groups(settings: &Settings) -> Vec<Group> {
    let group = |name, objects| Group { name, objects };
    let mut groups = vec![
        group("namespace", vec![namespace::namespace(settings).into()]),
        group("node-guard", node_guard::node_guard(settings)),
        group("policy-rules", policy_rules::policy_rules(settings)),
        group("node-state-rules", node_state_rules::node_state_rules(settings)),
        group("handler-rights", rights::handler::handler(settings)),
        group("controller-rights", rights::controller::controller(settings)),
        group("webhooks", webhooks::webhooks(settings)),
    ];
    groups.retain(|group| !group.objects.is_empty());
    groups
}

/// The objects of all groups, in the same order.
pub fn cluster_objects(settings: &Settings) -> Vec<Object> {
    groups(settings).into_iter().flat_map(|group| group.objects).collect()
}

#[cfg(test)]
mod tests;
