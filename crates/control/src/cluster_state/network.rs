//! The numbers of interfaces and routes of a node, and of changes that it has given up.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::metric_labels::Labels;

/// nmstate has about thirty types of interfaces; the rest of a node's counts as another one.
const MAX_TYPES: usize = 64;

/// The part of a reported network that is counted.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct CurrentState {
    #[serde(default)]
    interfaces: Option<Vec<Interface>>,
    #[serde(default)]
    routes: Routes,
}

#[derive(Clone, Debug, Deserialize)]
struct Interface {
    #[serde(rename = "type", default)]
    type_: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Routes {
    #[serde(default)]
    config: Option<Vec<Route>>,
    #[serde(default)]
    running: Option<Vec<Route>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Route {
    #[serde(default)]
    destination: Option<String>,
}

/// Interfaces and routes of a node, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Network {
    /// By type.
    pub interfaces: BTreeMap<String, u64>,
    /// By IP stack (`ipv4`, `ipv6`) and type (`static`, `dynamic`).
    pub routes: BTreeMap<(&'static str, &'static str), u64>,
    /// Changes that the node could not roll back.
    pub set_aside: u64,
}

impl Network {
    pub(crate) fn of(state: &CurrentState) -> Self {
        let mut network = Self::default();
        let mut types = Labels::default();
        for interface in state.interfaces.iter().flatten() {
            let type_ = types.label(interface.type_.as_deref().unwrap_or("unknown"), MAX_TYPES);
            *network.interfaces.entry(type_.to_owned()).or_default() += 1;
        }
        let Routes { config, running } = &state.routes;
        let configured: BTreeSet<&str> = destinations(config.as_deref()).collect();
        for destination in destinations(running.as_deref()) {
            let stack = if destination.contains(':') { "ipv6" } else { "ipv4" };
            let type_ = if configured.contains(destination) { "static" } else { "dynamic" };
            *network.routes.entry((stack, type_)).or_default() += 1;
        }
        network
    }
}

fn destinations(routes: Option<&[Route]>) -> impl Iterator<Item = &str> {
    routes.unwrap_or_default().iter().filter_map(|route| route.destination.as_deref())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn interfaces_and_routes_are_counted_by_kind() {
        let state = serde_json::from_value(json!({
            "interfaces": [{"name": "a", "type": "ethernet"}, {"name": "b", "type": "ethernet"},
                {"name": "c", "type": "bond"}, {"name": "d"}],
            "routes": {
                "config": [{"destination": "10.0.0.0/8"}],
                "running": [{"destination": "10.0.0.0/8"}, {"destination": "0.0.0.0/0"}, {"destination": "::/0"}],
            },
        }))
        .unwrap();
        let network = Network::of(&state);
        let interfaces: Vec<_> = network.interfaces.iter().map(|(type_, count)| (&**type_, *count)).collect();
        assert_eq!(interfaces, [("bond", 1), ("ethernet", 2), ("unknown", 1)]);
        let routes: Vec<_> = network.routes.into_iter().collect();
        assert_eq!(routes, [(("ipv4", "dynamic"), 1), (("ipv4", "static"), 1), (("ipv6", "dynamic"), 1)]);
        assert_eq!(Network::of(&CurrentState::default()), Network::default());
    }

    #[test]
    fn types_that_a_handler_makes_up_are_limited() {
        let made_up = (0..1000).map(|number| json!({"type": format!("made-up-{number}")}));
        let interfaces: Vec<_> =
            [json!({"type": "bond"}), json!({"type": "x".repeat(5000)})].into_iter().chain(made_up).collect();
        let network = Network::of(&serde_json::from_value(json!({"interfaces": interfaces})).unwrap());
        assert_eq!(network.interfaces.len(), MAX_TYPES + 1);
        assert_eq!((network.interfaces["bond"], network.interfaces.values().sum::<u64>()), (1, 1002));
        assert_eq!(network.interfaces["other"], 1002 - MAX_TYPES as u64);
    }
}
