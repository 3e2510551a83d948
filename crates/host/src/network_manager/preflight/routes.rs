//! Does a route lead somewhere?

use knmstate_document::{
    Place, RouteList, address::IpNet, address::parse_network, is_absent, is_ignored, routing,
};
use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Map, Value};

use super::missing::what_there_is;
use super::names::{Presence, World, is_up, value};
use crate::error::HostError;
use crate::host::Warning;
use knmstate_document::interfaces::is_called;

type Route = Map<String, Value>;

pub(super) fn check(world: World<'_>) -> Result<Vec<Warning>, HostError> {
    let mut warnings = with_two_metrics(world);
    for (index, route) in world.desired.routes(RouteList::Config).enumerate() {
        if is_absent(route) || is_ignored(route) {
            continue;
        }
        let place = Place::key("routes.config").entry(index);
        if let Some(via) = text(route, "next-hop-interface")
            && world.presence(via) == Presence::Nowhere
        {
            let why = format!(
                "there is no interface {via}, neither on this machine nor in the document; {}",
                what_there_is(world, via)
            );
            return Err(HostError::invalid(place.below("next-hop-interface"), why));
        }
        let Some(gateway) = address(route, "next-hop-address") else { continue };
        let place = place.below("next-hop-address");
        if let Some(destination) = network(route, "destination")
            && destination.addr().is_ipv4() != gateway.is_ipv4()
        {
            let family = if destination.addr().is_ipv4() { "IPv4" } else { "IPv6" };
            let why =
                format!("{gateway} cannot be the next hop to {destination}, which takes an {family} address");
            return Err(HostError::invalid(place, why));
        }
        warnings.extend(out_of_reach(world, route, gateway).map(|what| Warning { place, what }));
    }
    Ok(warnings)
}

/// nmstate takes routes that differ in their metric only for one.
fn with_two_metrics(world: World<'_>) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut known: BTreeMap<String, Vec<(usize, Route)>> = BTreeMap::new();
    let routes = world.desired.routes(RouteList::Config).enumerate();
    for (index, route) in routes.filter(|(_, route)| !is_absent(route) && !is_ignored(route)) {
        let route = routing::canonical_route_or_as_written(route);
        let others = known.entry(text(&route, "destination").unwrap_or_default().to_owned()).or_default();
        let differs = |other: &Route| {
            routing::is_same_route(other, &route) && !routing::claim_the_same_place(other, &route)
        };
        if let Some((other, _)) = others.iter().find(|(_, other)| differs(other)) {
            warnings.push(Warning {
                place: Place::key("routes.config").entry(index).below("metric"),
                what: format!(
                    "it is the route of routes.config[{other}] with another metric; nmstate keeps one of the two"
                ),
            });
        }
        others.push((index, route));
    }
    warnings
}

/// NetworkManager reaches such a next hop all the same, and says that it will not always do so.
fn out_of_reach(world: World<'_>, route: &Route, gateway: IpAddr) -> Option<String> {
    let via = text(route, "next-hop-interface")?;
    let is_link_local = match gateway {
        IpAddr::V4(gateway) => gateway.is_link_local(),
        IpAddr::V6(gateway) => gateway.is_unicast_link_local(),
    };
    let networks = networks(world, via, gateway.is_ipv4())?;
    let routed = world.desired.routes(RouteList::Config).filter(|other| {
        text(other, "next-hop-interface") == Some(via) && address(other, "next-hop-address").is_none()
    });
    let on_link = routed.filter_map(|other| network(other, "destination"));
    let is_covered = networks.into_iter().chain(on_link).any(|network| network.contains(&gateway));
    (!is_link_local && !is_covered).then(|| {
        format!("{gateway} is in no network of {via}, so whether it can be reached depends on {via} alone")
    })
}

/// The networks that an interface will be in. `None` when others decide that: DHCP, router advertisements, or what the
/// machine has and the document does not say.
fn networks(world: World<'_>, name: &str, is_ipv4: bool) -> Option<Vec<IpNet>> {
    let family = if is_ipv4 { "ipv4" } else { "ipv6" };
    let desired = world.desired.interfaces().find(|interface| is_up(interface) && is_called(interface, name));
    let current = world.current.interfaces().find(|interface| is_called(interface, name));
    let section = desired
        .and_then(|desired| desired.get(family))
        .or_else(|| current.and_then(|current| current.get(family)))?
        .as_object()?;
    let is_automatic = ["dhcp", "autoconf"].iter().any(|key| section.get(*key) == Some(&Value::Bool(true)));
    let addresses = section.get("address")?.as_array()?;
    if is_automatic || !section.get("enabled")?.as_bool()? {
        return None;
    }
    let networks = addresses.iter().filter_map(|address| {
        let ip = address.get("ip")?.as_str()?.parse().ok()?;
        let prefix = u8::try_from(value(address.as_object()?, &["prefix-length"])?.as_u64()?).ok()?;
        IpNet::new(ip, prefix).ok()
    });
    Some(networks.collect())
}

/// A text that is not empty: an empty one is the same as none.
fn text<'a>(route: &'a Route, key: &str) -> Option<&'a str> {
    route.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn address(route: &Route, key: &str) -> Option<IpAddr> {
    text(route, key)?.parse().ok().filter(|address: &IpAddr| !address.is_unspecified())
}

fn network(route: &Route, key: &str) -> Option<IpNet> {
    parse_network(text(route, key)?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::names::tests::state_of;
    use super::*;

    fn checked(routes: &Value) -> Result<Vec<String>, String> {
        let address = |ip: &str, prefix: u8| json!({ "ip": ip, "prefix-length": prefix });
        let current = state_of(json!({ "interfaces": [
            { "name": "eth1", "profile-name": "uplink", "alt-names": [{ "name": "lan" }], "type": "ethernet",
              "ipv4": { "enabled": true, "dhcp": false, "address": [address("10.1.0.7", 24)] },
              "ipv6": { "enabled": true, "dhcp": false, "autoconf": false, "address": [address("fd01::7", 64)] } },
            { "name": "eth2", "type": "ethernet", "ipv4": { "enabled": true, "dhcp": true, "address": [address("10.2.0.7", 24)] } },
            { "name": "eth3", "type": "ethernet", "ipv4": { "enabled": true, "address": [address("10.3.0.7", 24)] } },
        ] }));
        let desired = state_of(json!({
            "interfaces": [
                { "name": "br1", "type": "linux-bridge" },
                { "name": "eth3", "type": "ethernet", "ipv4": { "enabled": true, "dhcp": false, "address": [address("10.4.0.7", 24)] } },
            ],
            "routes": { "config": routes },
        }));
        let warnings = check(World { desired: &desired, current: &current });
        warnings
            .map(|warnings| warnings.iter().map(ToString::to_string).collect())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_route_needs_an_interface_and_a_next_hop_of_its_own_family() {
        let other = json!({ "destination": "10.9.0.0/24", "next-hop-interface": "eth1" });
        for (route, refused) in [
            (json!({ "next-hop-interface": "eth7" }), Some("interface: there is no interface eth7, neither")),
            (json!({ "next-hop-interface": "eth7", "state": "absent" }), None),
            (json!({ "next-hop-interface": "eth7", "state": "ignore" }), None),
            (json!({ "next-hop-interface": "eth1" }), None),
            (json!({ "next-hop-interface": "uplink" }), None),
            (json!({ "next-hop-interface": "lan" }), None),
            (json!({ "next-hop-interface": "br1" }), None),
            (json!({ "next-hop-interface": "" }), None),
            (json!({ "route-type": "blackhole", "destination": "10.8.0.0/16" }), None),
            (
                json!({ "destination": "10.8.0.0/16", "next-hop-interface": "eth1", "next-hop-address": "fd01::1" }),
                Some("address: fd01::1 cannot be the next hop to 10.8.0.0/16, which takes an IPv4 address"),
            ),
            (
                json!({ "destination": "::/0", "next-hop-interface": "eth1", "next-hop-address": "10.1.0.1" }),
                Some("address: 10.1.0.1 cannot be the next hop to ::/0, which takes an IPv6 address"),
            ),
            (
                json!({ "destination": "10.8.0.0/16", "next-hop-interface": "eth1", "next-hop-address": "::1", "state": "absent" }),
                None,
            ),
            (
                json!({ "destination": "10.8.0.0/16", "next-hop-interface": "eth1", "next-hop-address": "" }),
                None,
            ),
            (
                json!({ "destination": "10.8.0.0/16", "next-hop-interface": "eth1", "next-hop-address": "0.0.0.0" }),
                None,
            ),
            (
                json!({ "destination": "::/0", "next-hop-interface": "eth1", "next-hop-address": "fd01::1" }),
                None,
            ),
        ] {
            match (checked(&json!([other, route])), refused) {
                (Ok(warnings), None) => assert!(warnings.is_empty(), "{route}: {warnings:?}"),
                (Err(error), Some(expected)) => {
                    assert!(error.starts_with(&format!("routes.config[1].next-hop-{expected}")), "{error}");
                }
                (found, expected) => panic!("{route}: {found:?} instead of {expected:?}"),
            }
        }
    }

    #[test]
    fn an_unknown_next_hop_is_only_warned_of() {
        for (via, gateway, is_warned_of) in [
            ("eth1", "10.1.0.1", false),
            ("lan", "10.1.0.1", false),
            ("eth1", "10.7.0.1", true),
            ("eth1", "fd01::1", false),
            ("eth1", "fd02::1", true),
            ("eth1", "fe80::1", false),
            // Who gives the address gives the network.
            ("eth2", "10.7.0.1", false),
            // The address that it will have counts.
            ("eth3", "10.4.0.1", false),
            ("eth3", "10.3.0.1", true),
            ("br1", "10.7.0.1", false),
        ] {
            let destination = if gateway.contains(':') { "fd09::/64" } else { "10.9.0.0/16" };
            let route =
                json!({ "destination": destination, "next-hop-interface": via, "next-hop-address": gateway });
            let expected = format!(
                "routes.config[0].next-hop-address: {gateway} is in no network of {via}, so whether it can be reached depends on {via} alone"
            );
            let expected: Vec<String> = is_warned_of.then_some(expected).into_iter().collect();
            assert_eq!(checked(&json!([route])), Ok(expected), "{gateway} by {via}");
            let on_link = json!({ "destination": format!("{gateway}"), "next-hop-interface": via });
            assert_eq!(
                checked(&json!([route, on_link])),
                Ok(Vec::new()),
                "{gateway} by {via}, with a route to it"
            );
        }
    }

    #[test]
    fn the_same_route_with_two_metrics_is_warned_of() {
        let route = |address: &str, metric: Value| json!({ "destination": "10.9.0.0/16", "next-hop-interface": "eth1", "next-hop-address": address, "metric": metric });
        let first = route("10.1.0.1", json!(100));
        for (second, is_warned_of) in [
            (route("10.1.0.1", json!(200)), true),
            (route("10.1.0.1", json!(100)), false),
            (route("10.1.0.1", json!("100")), false),
            (route("10.1.0.2", json!(200)), false),
        ] {
            let expected = "routes.config[1].metric: it is the route of routes.config[0] with another metric; nmstate keeps one of the two";
            let expected: Vec<String> = is_warned_of.then(|| expected.to_owned()).into_iter().collect();
            assert_eq!(checked(&json!([first, second])), Ok(expected), "{second}");
        }
    }
}
