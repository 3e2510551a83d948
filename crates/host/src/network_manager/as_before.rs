//! Whether the network is as it was before a change.

use knmstate_document::{NetworkState, RouteList, interface_name};
use serde_json::{Map, Value};

use super::journal::Entry;
use super::service::{Hold, Service};
use crate::error::HostError;

/// Whether NetworkManager manages exactly the interfaces that it managed before. Until then a state that looks right
/// may still change: an interface that it stops to manage is "down" before it gets its MTU back.
pub(super) async fn is_at_rest(entry: &Entry, service: &Service) -> Result<bool, HostError> {
    for name in &entry.touched {
        let expected = if entry.was_up(name) { Hold::Active } else { Hold::None };
        if service.hold_on(name).await? != expected {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether everything that the change could touch is in `now` as it was noted. What others do to other interfaces
/// meanwhile is not looked at.
pub(super) fn looks_as_before(entry: &Entry, now: &NetworkState) -> bool {
    let Ok(before) = NetworkState::parse(entry.before.clone()) else { return false };
    part(&before, &entry.touched) == part(now, &entry.touched)
}

fn part(state: &NetworkState, touched: &[String]) -> NetworkState {
    let is_touched = |name: &str| touched.iter().any(|touched| touched == name);
    let interfaces = state.interfaces().filter(|interface| is_touched(interface_name(interface)));
    let routes = |list| -> Vec<Value> {
        let via = |route: &&Map<String, Value>| {
            route.get("next-hop-interface").and_then(Value::as_str).is_none_or(is_touched)
        };
        let mut routes: Vec<_> = state.routes(list).filter(via).cloned().collect();
        // Without a configured metric, NetworkManager assigns one by the order in which interfaces come up, and
        // a roll-back is another order.
        for route in &mut routes {
            route.shift_remove("metric");
        }
        routes.sort_by_cached_key(|route| Value::Object(route.clone()).to_string());
        routes.into_iter().map(Value::Object).collect()
    };
    let section = |name: &str| state.sections().get(name).cloned().unwrap_or_default();
    NetworkState::assembled([
        ("interfaces", interfaces.cloned().map(Value::Object).collect()),
        ("config", routes(RouteList::Config).into()),
        ("running", routes(RouteList::Running).into()),
        ("route-rules", section("route-rules")),
        ("dns-resolver", section("dns-resolver")),
        ("hostname", section("hostname")),
    ])
    .without_moving_values()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_the_change_could_touch_is_compared() {
        let before = json!({
            "interfaces": [{ "name": "eth1", "mtu": 1500 }, { "name": "veth7", "mtu": 1500 }],
            "routes": { "config": [], "running": [{ "destination": "10.0.0.0/8", "next-hop-interface": "eth1" }] },
            "dns-resolver": { "config": {} }
        });
        let entry = Entry {
            before: before.clone(),
            revert: Value::Null,
            touched: vec!["eth1".to_owned(), "br1".to_owned()],
            ..Entry::default()
        };
        let mut others_moved = before.clone();
        others_moved["interfaces"][1]["mtu"] = json!(9000);
        let mut moved = before.clone();
        moved["interfaces"][0]["mtu"] = json!(9000);
        let mut route_gone = before.clone();
        route_gone["routes"]["running"] = json!([]);
        let mut bridge_left = before.clone();
        bridge_left["interfaces"][1] = json!({ "name": "br1" });
        let mut other_metric = before.clone();
        other_metric["routes"]["running"][0]["metric"] = json!(102);
        for (now, expected) in [
            (before, true),
            (others_moved, true),
            (other_metric, true),
            (moved, false),
            (route_gone, false),
            (bridge_left, false),
        ] {
            let state = NetworkState::parse(now.clone()).expect("a state");
            assert_eq!(looks_as_before(&entry, &state), expected, "{now}");
        }
    }
}
