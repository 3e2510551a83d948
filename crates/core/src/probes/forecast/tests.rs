use proptest::prelude::*;
use serde_json::json;

use super::*;

fn document(value: &Value) -> Document {
    value.as_object().cloned().expect("a document is a map")
}

fn ethernet(name: &str, state: &str) -> Value {
    json!({ "name": name, "type": "ethernet", "state": state, "ipv4": { "enabled": true, "dhcp": false } })
}

fn with(mut interface: Value, family: &str, section: Value) -> Value {
    interface[family] = section;
    interface
}

fn route(destination: &str, address: &str, interface: &str, metric: u32) -> Value {
    json!({
        "destination": destination, "next-hop-address": address, "next-hop-interface": interface,
        "metric": metric, "table-id": 254,
    })
}

fn state(interfaces: &[Value], running: &[Value], servers: &[&str]) -> Document {
    document(&json!({
        "interfaces": interfaces,
        "routes": { "running": running, "config": [] },
        "dns-resolver": { "running": { "server": servers } },
    }))
}

fn now(state: &Document) -> Network<'_> {
    Network { now: state, before: None }
}

fn found(gateways: &[(&str, &str)]) -> Forecast<Vec<Gateway>> {
    let gateways = gateways.iter().map(|(address, interface)| Gateway {
        address: address.parse().expect("an address"),
        interface: (*interface).to_owned(),
    });
    Forecast::Now(gateways.collect())
}

fn never<T>(why: &str, seconds: u64) -> Forecast<T> {
    Forecast::Never(Loss { why: why.to_owned(), grace: Duration::from_secs(seconds) })
}

#[test]
fn gateways_are_those_of_the_routes_with_the_lowest_metric() {
    let v4 = "0.0.0.0/0";
    let mut other_table = route(v4, "10.0.0.1", "eth0", 100);
    other_table["table-id"] = json!(200);
    let mut refusing = route(v4, "10.0.0.1", "eth0", 10);
    refusing["route-type"] = json!("unreachable");
    let mut no_metric = route(v4, "10.0.0.3", "eth0", 100);
    no_metric.as_object_mut().expect("a map").remove("metric");
    for (name, running, expected) in [
        ("one", vec![route(v4, "10.0.0.1", "eth0", 100)], found(&[("10.0.0.1", "eth0")])),
        (
            "the lower metric, in any position",
            vec![route(v4, "10.0.0.1", "eth0", 100), route(v4, "10.0.1.1", "eth1", 50)],
            found(&[("10.0.1.1", "eth1")]),
        ),
        (
            "no metric is the lowest",
            vec![route(v4, "10.0.0.1", "eth0", 100), no_metric],
            found(&[("10.0.0.3", "eth0")]),
        ),
        (
            "several of one metric",
            vec![route(v4, "10.0.0.1", "eth0", 100), route(v4, "10.0.1.1", "eth1", 100)],
            found(&[("10.0.0.1", "eth0"), ("10.0.1.1", "eth1")]),
        ),
        (
            "not that of another family",
            vec![route("::/0", "fe80::1", "eth0", 100)],
            never("no IPv4 default route is left", 1),
        ),
        ("not that of another table", vec![other_table], never("no default route is left", 1)),
        ("not an unreachable route", vec![refusing], never("no default route is left", 1)),
        (
            "not a route to another destination",
            vec![route("10.0.0.0/8", "10.0.0.1", "eth0", 100)],
            never("no default route is left", 1),
        ),
        (
            "an on-link route has no gateway",
            vec![route(v4, "0.0.0.0", "eth0", 100)],
            never("the IPv4 default route through eth0 has no gateway to ping", 1),
        ),
        (
            "a link that does not exist",
            vec![route(v4, "10.0.0.1", "eth9", 100)],
            never("there is no interface eth9", 1),
        ),
        ("a link that is down", vec![route(v4, "10.0.0.1", "eth2", 100)], never("eth2 is down", 5)),
        (
            "one of two that is up is enough",
            vec![route(v4, "10.0.0.1", "eth2", 100), route(v4, "10.0.1.1", "eth1", 100)],
            found(&[("10.0.1.1", "eth1")]),
        ),
    ] {
        let interfaces = [ethernet("eth0", "up"), ethernet("eth1", "up"), ethernet("eth2", "down")];
        let state = state(&interfaces, &running, &[]);
        assert_eq!(now(&state).gateways(Family::V4), expected, "{name}");
    }
    // A link that another program manages counts as well.
    let foreign = state(&[ethernet("eth0", "ignore")], &[route("::/0", "fe80::1", "eth0", 0)], &[]);
    assert_eq!(now(&foreign).gateways(Family::V6), found(&[("fe80::1", "eth0")]));
}

#[test]
fn automatic_configuration_is_waited_for_while_it_can_arrive() {
    let dynamic = json!([{ "ip": "10.0.0.9", "prefix-length": 24, "valid-life-time": "3600sec" }]);
    let static_only = json!([{ "ip": "10.0.0.9", "prefix-length": 24 }]);
    let no_route = || never::<()>("no default route is left", 1);
    // For each: the section, and whether a gateway and a name server may come from it.
    for (name, family, section, gateway, server) in [
        ("DHCP", "ipv4", json!({ "enabled": true, "dhcp": true }), true, true),
        (
            "DHCP besides a static address",
            "ipv4",
            json!({ "enabled": true, "dhcp": true, "address": static_only }),
            true,
            true,
        ),
        (
            "DHCP that has answered",
            "ipv4",
            json!({ "enabled": true, "dhcp": true, "address": dynamic }),
            false,
            false,
        ),
        ("switched off", "ipv4", json!({ "enabled": false, "dhcp": true }), false, false),
        ("static", "ipv4", json!({ "enabled": true, "dhcp": false, "address": static_only }), false, false),
        (
            "no gateway is accepted",
            "ipv4",
            json!({ "enabled": true, "dhcp": true, "auto-gateway": false }),
            false,
            true,
        ),
        (
            "no route is accepted",
            "ipv4",
            json!({ "enabled": true, "dhcp": true, "auto-routes": false }),
            false,
            true,
        ),
        (
            "no server is accepted",
            "ipv4",
            json!({ "enabled": true, "dhcp": true, "auto-dns": false }),
            true,
            false,
        ),
        (
            "into another table",
            "ipv4",
            json!({ "enabled": true, "dhcp": true, "auto-route-table-id": 200 }),
            false,
            true,
        ),
        (
            "into the main table",
            "ipv4",
            json!({ "enabled": true, "dhcp": true, "auto-route-table-id": 254 }),
            true,
            true,
        ),
        ("a router", "ipv6", json!({ "enabled": true, "dhcp": false, "autoconf": true }), true, true),
        ("DHCPv6", "ipv6", json!({ "enabled": true, "dhcp": true, "autoconf": false }), true, true),
        (
            "IPv4 has no router advertisements",
            "ipv4",
            json!({ "enabled": true, "autoconf": true }),
            false,
            false,
        ),
    ] {
        let wanted = if family == "ipv4" { Family::V4 } else { Family::V6 };
        let up = state(&[with(ethernet("eth0", "up"), family, section.clone())], &[], &[]);
        let expected = if gateway { Forecast::Later } else { no_route() };
        assert_eq!(now(&up).default_route(Some(wanted)), expected, "{name}");
        assert_eq!(matches!(now(&up).gateways(wanted), Forecast::Later), gateway, "{name}");
        let servers = if server { Forecast::Later } else { never("no name server is configured", 1) };
        assert_eq!(now(&up).name_servers(), servers, "{name}");

        // An interface that also waited before the change does not count.
        let after = Network { now: &up, before: Some(&up) };
        assert_eq!(after.default_route(Some(wanted)), no_route(), "{name}, and did before");
        assert_eq!(after.name_servers(), never("no name server is configured", 1), "{name}, and did before");
        let other = state(&[ethernet("eth0", "up")], &[], &[]);
        let after = Network { now: &up, before: Some(&other) };
        assert_eq!(
            matches!(after.default_route(Some(wanted)), Forecast::Later),
            gateway,
            "{name}, and did not before"
        );

        // Without a carrier nothing can arrive, but the carrier may come back.
        let requests = gateway || name == "DHCP that has answered";
        let down = state(&[with(ethernet("eth0", "down"), family, section)], &[], &[]);
        let grace = if requests { 5 } else { 1 };
        assert_eq!(
            now(&down).default_route(Some(wanted)),
            never("no default route is left", grace),
            "{name}, down"
        );
    }
}

#[test]
fn a_family_without_a_default_route_is_distinguished_from_a_node_without_one() {
    let router = json!({ "enabled": true, "autoconf": true });
    let waiting = state(&[with(ethernet("eth0", "up"), "ipv6", router)], &[], &[]);
    assert_eq!(now(&waiting).gateways(Family::V4), never("no IPv4 default route is left", 1));
    assert_eq!(now(&waiting).default_route(None), Forecast::Later);
    assert_eq!(now(&waiting).default_route(Some(Family::V4)), never("no default route is left", 1));

    let v6 = state(&[ethernet("eth0", "up")], &[route("::/0", "fe80::1", "eth0", 100)], &[]);
    assert_eq!(now(&v6).default_route(None), Forecast::Now(()));
    assert_eq!(now(&v6).default_route(Some(Family::V4)), never("no default route is left", 1));
}

#[test]
fn name_servers_may_be_bound_to_a_link() {
    let server = |address: &str, interface: Option<&str>| NameServer {
        address: address.parse().expect("an address"),
        interface: interface.map(str::to_owned),
    };
    let interfaces = [ethernet("eth0", "up"), ethernet("eth1", "down")];
    for (servers, expected) in [
        (
            &["10.0.0.53", "fd00::53"][..],
            Forecast::Now(vec![server("10.0.0.53", None), server("fd00::53", None)]),
        ),
        (&["fe80::53%eth0"], Forecast::Now(vec![server("fe80::53", Some("eth0"))])),
        (&["fe80::53%eth1", "10.0.0.53"], Forecast::Now(vec![server("10.0.0.53", None)])),
        (&["fe80::53%eth1"], never("eth1 is down", 5)),
        (&["fe80::53%eth9"], never("there is no interface eth9", 1)),
        (&["not an address"], never("no name server is configured", 1)),
        (&[], never("no name server is configured", 1)),
    ] {
        assert_eq!(now(&state(&interfaces, &[], servers)).name_servers(), expected, "{servers:?}");
    }
    assert_eq!(server("fe80::53", Some("eth0")).to_string(), "fe80::53%eth0");
    assert_eq!(now(&Document::new()).name_servers(), never("no name server is configured", 1));
}

#[test]
fn a_name_without_dots_is_searched_in_the_domains_of_the_node() {
    let state = document(&json!({ "dns-resolver": { "running": { "search": ["example.com", "corp."] } } }));
    assert_eq!(now(&state).search_list("registry"), ["registry.example.com", "registry.corp", "registry"]);
    assert_eq!(now(&state).search_list("registry.example.org"), ["registry.example.org"]);
    assert_eq!(now(&Document::new()).search_list("registry"), ["registry"]);
}

fn any_interface() -> impl Strategy<Value = Value> {
    let section = (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(enabled, dhcp, autoconf)| json!({ "enabled": enabled, "dhcp": dhcp, "autoconf": autoconf }),
    );
    let states = prop_oneof![Just("up"), Just("down"), Just("ignore")];
    (0..4, states, section.clone(), section).prop_map(|(number, state, v4, v6)| {
        let name = format!("eth{number}");
        with(with(ethernet(&name, state), "ipv4", v4), "ipv6", v6)
    })
}

fn any_route() -> impl Strategy<Value = Value> {
    let destinations = prop_oneof![Just("0.0.0.0/0"), Just("::/0"), Just("10.0.0.0/8")];
    (destinations, 0..5, 0..3_u32).prop_map(|(destination, interface, metric)| {
        let address = if destination.contains(':') { "fe80::1" } else { "10.0.0.1" };
        route(destination, address, &format!("eth{interface}"), metric * 100)
    })
}

fn any_state() -> impl Strategy<Value = Document> {
    let servers = prop::collection::vec(prop_oneof![Just("10.0.0.53"), Just("fe80::53%eth1")], 0..3);
    (prop::collection::vec(any_interface(), 0..4), prop::collection::vec(any_route(), 0..5), servers)
        .prop_map(|(interfaces, routes, servers)| state(&interfaces, &routes, &servers))
}

fn everything(state: &Document, before: Option<&Document>) -> impl PartialEq + std::fmt::Debug + use<> {
    let network = Network { now: state, before };
    (
        network.gateways(Family::V4),
        network.gateways(Family::V6),
        network.name_servers(),
        network.default_route(None),
    )
}

proptest! {
    #[test]
    fn an_unrelated_interface_changes_no_forecast(
        state in any_state(), before in proptest::option::of(any_state()), up in any::<bool>(), place in 0..5_usize,
    ) {
        let mut more = state.clone();
        let unrelated = ethernet("veth77", if up { "up" } else { "down" });
        if let Some(Value::Array(interfaces)) = more.get_mut("interfaces") {
            interfaces.insert(place.min(interfaces.len()), unrelated);
        }
        prop_assert_eq!(everything(&more, before.as_ref()), everything(&state, before.as_ref()));
    }

    #[test]
    fn the_order_of_routes_affects_only_the_order_of_gateways(state in any_state()) {
        let mut reversed = state.clone();
        if let Some(Value::Array(routes)) = reversed.get_mut("routes").and_then(|routes| routes.get_mut("running")) {
            routes.reverse();
        }
        for family in Family::BOTH {
            let sorted = |state| match now(state).gateways(family) {
                Forecast::Now(mut gateways) => {
                    gateways.sort_by_key(|gateway| (gateway.address, gateway.interface.clone()));
                    Some(gateways)
                }
                Forecast::Later | Forecast::Never(_) => None,
            };
            prop_assert_eq!(sorted(&reversed), sorted(&state));
        }
    }

    #[test]
    fn the_state_before_a_change_never_makes_the_forecast_better(state in any_state(), before in any_state()) {
        let known = Network { now: &state, before: Some(&before) };
        for family in Family::BOTH {
            if let Forecast::Later = known.gateways(family) {
                prop_assert_eq!(now(&state).gateways(family), Forecast::Later);
            }
        }
        if let Forecast::Later = known.name_servers() {
            prop_assert_eq!(now(&state).name_servers(), Forecast::Later);
        }
    }
}
