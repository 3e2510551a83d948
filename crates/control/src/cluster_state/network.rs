//! The numbers of interfaces and routes of a node, and of changes that it has given up.

use std::collections::{BTreeMap, BTreeSet};

use knmstate_api::NodeNetworkStateStatus;
use serde_json::Value;

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
    pub(crate) fn of(status: &NodeNetworkStateStatus) -> Self {
        let set_aside = u64::try_from(status.set_aside.len()).unwrap_or(u64::MAX);
        let mut network = Self { set_aside, ..Self::default() };
        let Some(state) = &status.current_state else { return network };
        for interface in list(state.0.get("interfaces")) {
            let type_ = interface["type"].as_str().unwrap_or("unknown");
            *network.interfaces.entry(type_.to_owned()).or_default() += 1;
        }
        let routes = |section: &str| list(state.0.get("routes").and_then(|routes| routes.get(section)));
        let configured: BTreeSet<&str> =
            routes("config").iter().filter_map(|route| route["destination"].as_str()).collect();
        for destination in routes("running").iter().filter_map(|route| route["destination"].as_str()) {
            let stack = if destination.contains(':') { "ipv6" } else { "ipv4" };
            let type_ = if configured.contains(destination) { "static" } else { "dynamic" };
            *network.routes.entry((stack, type_)).or_default() += 1;
        }
        network
    }
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn interfaces_and_routes_are_counted_by_kind() {
        let status = serde_json::from_value(json!({"currentState": {
            "interfaces": [{"name": "a", "type": "ethernet"}, {"name": "b", "type": "ethernet"},
                {"name": "c", "type": "bond"}, {"name": "d"}],
            "routes": {
                "config": [{"destination": "10.0.0.0/8"}],
                "running": [{"destination": "10.0.0.0/8"}, {"destination": "0.0.0.0/0"}, {"destination": "::/0"}],
            },
        }}))
        .unwrap();
        let network = Network::of(&status);
        let interfaces: Vec<_> = network.interfaces.iter().map(|(type_, count)| (&**type_, *count)).collect();
        assert_eq!(interfaces, [("bond", 1), ("ethernet", 2), ("unknown", 1)]);
        let routes: Vec<_> = network.routes.into_iter().collect();
        assert_eq!(routes, [(("ipv4", "dynamic"), 1), (("ipv4", "static"), 1), (("ipv6", "dynamic"), 1)]);
        assert_eq!(Network::of(&NodeNetworkStateStatus::default()), Network::default());
    }
}
