//! What can be said about a document before anything is touched, and nmstate does not say, or says too late.

use serde_json::Value;

use crate::error::{HostError, Place};
use crate::routing;
use crate::state::{NetworkState, RouteList};

/// A route over an interface that is nowhere would be tried, and be missed only after it was applied.
pub(super) fn check(desired: &NetworkState, current: &NetworkState) -> Result<(), HostError> {
    for (index, route) in desired.routes(RouteList::Config).enumerate() {
        let Some(via) = route.get("next-hop-interface").and_then(Value::as_str) else { continue };
        if via.is_empty() || routing::is_absent(route) || routing::is_ignored(route) {
            continue;
        }
        if !is_there(via, desired, current) {
            let place = Place::key("routes.config").entry(index).below("next-hop-interface");
            let why = format!("there is no interface {via}, neither on this machine nor in the document");
            return Err(HostError::invalid(place, why));
        }
    }
    Ok(())
}

fn is_there(name: &str, desired: &NetworkState, current: &NetworkState) -> bool {
    // An interface may also be named by its profile, its alternative name or its MAC address.
    let goes_by = |interface: &serde_json::Map<String, Value>| {
        let is = |key: &str| interface.get(key).and_then(Value::as_str) == Some(name);
        let alternative = interface.get("alt-names").and_then(Value::as_array).into_iter().flatten();
        is("name")
            || is("profile-name")
            || alternative
                .into_iter()
                .any(|alternative| alternative.get("name").and_then(Value::as_str) == Some(name))
    };
    desired.interfaces().chain(current.interfaces()).any(goes_by)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_route_needs_an_interface_that_is_there_or_will_be() {
        let current = NetworkState::parse(json!({ "interfaces": [
            { "name": "eth1", "profile-name": "uplink", "alt-names": [{ "name": "lan" }] }
        ] }))
        .expect("a state");
        for (route, refused) in [
            (json!({ "next-hop-interface": "eth1" }), false),
            (json!({ "next-hop-interface": "uplink" }), false),
            (json!({ "next-hop-interface": "lan" }), false),
            (json!({ "next-hop-interface": "br1" }), false),
            (json!({ "next-hop-interface": "eth7" }), true),
            (json!({ "next-hop-interface": "eth7", "state": "absent" }), false),
            (json!({ "route-type": "blackhole" }), false),
        ] {
            let desired = NetworkState::parse(
                json!({ "interfaces": [{ "name": "br1" }], "routes": { "config": [{}, route] } }),
            )
            .expect("a state");
            let result = check(&desired, &current);
            assert_eq!(result.is_err(), refused, "{route}");
            if let Err(error) = result {
                assert!(error.to_string().starts_with("routes.config[1].next-hop-interface: "), "{error}");
            }
        }
    }
}
