//! Routes: those that were configured, and those that follow from addresses.

use knmstate_document::{
    NetworkState, Place, RouteList,
    address::{is_single, parse_ip, parse_network},
    is_absent, is_ignored, routing,
    routing::MAIN_TABLE,
};
use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::ip::Family;
use super::topology::Interfaces;
use knmstate_host::HostError;

const KEYS: [&str; 17] = [
    "state",
    "destination",
    "next-hop-interface",
    "next-hop-address",
    "metric",
    "table-id",
    "weight",
    "route-type",
    "cwnd",
    "source",
    "initcwnd",
    "initrwnd",
    "mtu",
    "quickack",
    "advmss",
    "lock-mtu",
    "vrf-name",
];

/// The configured routes after a document: what it removes is gone, what it adds is there, the rest stays where its
/// interface still carries it.
pub(super) fn merged(
    there: &[Map<String, Value>],
    desired: &NetworkState,
    interfaces: &Interfaces,
) -> Result<Vec<Map<String, Value>>, HostError> {
    let left_alone = |name: &str| {
        desired.interface(name).and_then(|target| target.get("state")?.as_str()) == Some("ignore")
    };
    let (mut removals, mut additions) = (Vec::new(), Vec::new());
    for (index, route) in desired.routes(RouteList::Config).enumerate() {
        let place = Place::key("routes.config").entry(index);
        if let Some(key) = route.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(HostError::invalid(place.below(key), "a route has no such key"));
        }
        if is_ignored(route) {
            continue;
        }
        let route = routing::canonical_route(route, &place)?;
        if is_absent(&route) {
            removals.push(route);
        } else {
            if let Some(name) = text(&route, "next-hop-interface").filter(|name| left_alone(name)) {
                let why = format!("the same document wants {name} to be ignored");
                return Err(HostError::invalid(place.below("next-hop-interface"), why));
            }
            additions.push(complete(route, interfaces, &place)?);
        }
    }
    let mut routes: Vec<_> = there
        .iter()
        .filter(|route| carried(route, interfaces))
        .filter(|route| !removals.iter().any(|removal| routing::matches(removal, route)))
        .cloned()
        .collect();
    for (route, metric_is_said) in additions {
        match routes.iter_mut().find(|known| same_but_for_metric(known, &route)) {
            Some(known) if metric_is_said => *known = route,
            Some(_) => {}
            None => routes.push(route),
        }
    }
    routes.sort_by_cached_key(|route| Value::Object(route.clone()).to_string());
    Ok(routes)
}

/// The routes in force: the configured ones, and one to each network that an address makes a neighbour.
pub(super) fn running(config: &[Map<String, Value>], interfaces: &Interfaces) -> Vec<Map<String, Value>> {
    let mut running = config.to_vec();
    for (name, interface) in interfaces.iter().filter(|(name, _)| *name != "lo") {
        for family in Family::BOTH.into_iter().filter(|family| interface.speaks(*family)) {
            for address in interface.addresses(family).into_iter().filter(|address| !is_single(*address)) {
                let mut route = Map::new();
                route.insert("destination".to_owned(), json!(address.trunc().to_string()));
                route.insert("next-hop-interface".to_owned(), json!(name));
                route.insert("metric".to_owned(), json!(interface.kind.route_metric()));
                route.insert("table-id".to_owned(), json!(MAIN_TABLE));
                if !running.contains(&route) {
                    running.push(route);
                }
            }
        }
    }
    running
}

/// A route as it is shown: one without a gateway shows the address that means "none".
pub(super) fn shown(route: &Map<String, Value>) -> Value {
    let mut route = route.clone();
    if route.contains_key("next-hop-interface") && !route.contains_key("next-hop-address") {
        let none = if routing::is_ipv6(&route) { "::" } else { "0.0.0.0" };
        route.insert("next-hop-address".to_owned(), json!(none));
    }
    Value::Object(route)
}

/// A wanted route with all that the machine adds by itself, and whether the document gave the metric.
fn complete(
    mut route: Map<String, Value>,
    interfaces: &Interfaces,
    place: &Place,
) -> Result<(Map<String, Value>, bool), HostError> {
    let destination = text(&route, "destination");
    let destination = destination.and_then(|text| parse_network(text).ok());
    let Some(destination) = destination else {
        return Err(HostError::invalid(place.below("destination"), "every route needs a destination"));
    };
    let family = Family::of(destination.addr());
    for key in ["next-hop-address", "source"] {
        if let Some(ip) =
            text(&route, key).and_then(|text| parse_ip(text).ok()).filter(|ip| Family::of(*ip) != family)
        {
            let why = format!("{ip} cannot serve a route to {destination}");
            return Err(HostError::invalid(place.below(key), why));
        }
    }
    if text(&route, "next-hop-address") == Some("") {
        route.shift_remove("next-hop-address");
    }
    let metric_is_said = route.contains_key("metric");
    match (text(&route, "next-hop-interface"), route.contains_key("route-type")) {
        (Some(name), false) => {
            if matches!(destination.addr(), IpAddr::V4(ip) if ip.octets()[0] == 0)
                && destination.prefix_len() > 0
            {
                let why = "networks that begin with 0 cannot be routed to; the default route is 0.0.0.0/0";
                return Err(HostError::invalid(place.below("destination"), why));
            }
            let place = place.below("next-hop-interface");
            let Some(interface) = interfaces.get(name) else {
                let why =
                    format!("there is no interface {name}, neither on this machine nor in the document");
                return Err(HostError::invalid(place, why));
            };
            if !interface.is_up() {
                return Err(HostError::invalid(place, format!("{name} is not up")));
            }
            if !interface.speaks(family) {
                return Err(HostError::invalid(place, format!("{} is disabled on {name}", family.key())));
            }
            let metric = interface.kind.route_metric();
            route.entry("metric").or_insert(json!(metric));
        }
        (None, false) => {
            return Err(HostError::invalid(
                place.below("next-hop-interface"),
                "every route needs an interface",
            ));
        }
        (via, true) if via.is_some_and(|name| name != "lo") || route.contains_key("next-hop-address") => {
            let why = "a route that leads nowhere has no next hop";
            return Err(HostError::invalid(place.below("route-type"), why));
        }
        (_, true) => {
            route.shift_remove("next-hop-interface");
            route.entry("metric").or_insert(json!(0));
        }
    }
    route.entry("table-id").or_insert(json!(MAIN_TABLE));
    Ok((route, metric_is_said))
}

/// Whether the machine can still hold the route: its interface is there and speaks its family.
pub(super) fn carried(route: &Map<String, Value>, interfaces: &Interfaces) -> bool {
    let family = if routing::is_ipv6(route) { Family::V6 } else { Family::V4 };
    match text(route, "next-hop-interface") {
        Some(name) => interfaces.get(name).is_some_and(|interface| interface.speaks(family)),
        None => true,
    }
}

fn same_but_for_metric(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    a.len() == b.len() && routing::matches(a, b)
}

fn text<'a>(route: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    route.get(key).and_then(Value::as_str)
}
