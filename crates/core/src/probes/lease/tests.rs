use serde_json::json;

use super::*;

fn document(value: &Value) -> Document {
    value.as_object().cloned().expect("a document is a map")
}

fn with(interface: &Value) -> Document {
    document(&json!({ "interfaces": [interface] }))
}

/// The dynamic addresses that are requested, as the messages when they are missing.
fn missing(desired: &Value) -> Vec<String> {
    let leases = requested_leases(&with(desired));
    leases.iter().map(|lease| lease.missing(None, Duration::from_secs(3))).collect()
}

#[test]
fn dynamic_addresses_are_those_that_interfaces_request_that_should_be_up() {
    let unread = "after 3 s; the network of the node could not be read";
    let [v4, v6, router, either] = [
        "eth1: no DHCPv4 lease",
        "eth1: no DHCPv6 lease",
        "eth1: no IPv6 address by router advertisement",
        "eth1: no IPv6 address by DHCPv6 or router advertisement",
    ]
    .map(|what| format!("{what} {unread}"));
    for (rest, expected) in [
        (json!({}), vec![]),
        (json!({ "ipv4": { "enabled": true, "dhcp": true } }), vec![&v4]),
        (json!({ "ipv4": { "dhcp": true } }), vec![&v4]),
        (json!({ "state": "up", "ipv4": { "enabled": true, "dhcp": true } }), vec![&v4]),
        (json!({ "ipv4": { "enabled": true, "dhcp": false } }), vec![]),
        (json!({ "ipv4": { "enabled": false, "dhcp": true } }), vec![]),
        (json!({ "state": "down", "ipv4": { "enabled": true, "dhcp": true } }), vec![]),
        (json!({ "state": "absent", "ipv4": { "enabled": true, "dhcp": true } }), vec![]),
        (json!({ "state": "ignore", "ipv4": { "enabled": true, "dhcp": true } }), vec![]),
        (json!({ "ipv6": { "enabled": true, "dhcp": true } }), vec![&v6]),
        (json!({ "ipv6": { "enabled": true, "autoconf": true } }), vec![&router]),
        (json!({ "ipv6": { "enabled": true, "dhcp": true, "autoconf": true } }), vec![&either]),
        // IPv4 has no autoconf.
        (json!({ "ipv4": { "enabled": true, "autoconf": true } }), vec![]),
        (
            json!({ "ipv4": { "enabled": true, "dhcp": true }, "ipv6": { "enabled": true, "dhcp": true } }),
            vec![&v4, &v6],
        ),
    ] {
        let mut interface = json!({ "name": "eth1", "type": "ethernet" });
        interface.as_object_mut().unwrap().extend(document(&rest));
        let missing = missing(&interface);
        assert_eq!(missing.iter().collect::<Vec<_>>(), expected, "{rest}");
    }
}

fn never(why: &str, grace: Duration) -> Forecast<()> {
    Forecast::Never(Loss { why: why.to_owned(), grace })
}

#[test]
fn only_a_dynamic_address_is_a_lease() {
    let dynamic = json!({ "enabled": true, "dhcp": true, "autoconf": true });
    let desired = with(&json!({
        "name": "eth1",
        "ipv4": { "enabled": true, "dhcp": true, "address": [{ "ip": "10.0.0.5", "prefix-length": 24 }] },
        "ipv6": dynamic,
    }));
    let leases = requested_leases(&desired);
    let forever = |ip: &str| json!({ "ip": ip, "prefix-length": 24 });
    let leased = |ip: &str| json!({ "ip": ip, "prefix-length": 24, "valid-life-time": "3599sec" });
    for (number, addresses, is_there) in [
        (0, json!([]), false),
        (0, json!([leased("10.0.0.7")]), true),
        (0, json!([forever("10.0.0.7")]), true),
        (0, json!([forever("10.0.0.5")]), false),
        (0, json!([forever("10.0.0.5"), leased("10.0.0.7")]), true),
        // A DHCP server may assign an address that the interface also has statically.
        (0, json!([leased("10.0.0.5")]), true),
        (0, json!([leased("169.254.7.7")]), false),
        (1, json!([forever("fe80::7")]), false),
        (1, json!([leased("fe80::7")]), false),
        (1, json!([forever("fe80::7"), leased("fd00::7")]), true),
    ] {
        let key = ["ipv4", "ipv6"][number];
        let mut section = dynamic.clone();
        section["address"] = addresses.clone();
        let now = with(&json!({ "name": "eth1", "state": "up", key: section }));
        let expected = if is_there { Forecast::Now(()) } else { Forecast::Later };
        assert_eq!(Network { now: &now, before: None }.lease(&leases[number]), expected, "{addresses}");
    }
}

#[test]
fn a_lease_that_is_not_requested_is_not_waited_for() {
    let probe = LeaseProbe { interface: "eth1".to_owned(), family: LeaseFamily::Ipv4 };
    let lease = AddressLease::probed(&probe, &Document::new());
    assert_eq!(lease.to_string(), "IPv4 lease of eth1");
    let own =
        json!({ "enabled": true, "dhcp": false, "address": [{ "ip": "10.0.0.5", "prefix-length": 24 }] });
    for (interface, expected, sentence) in [
        (
            json!({ "name": "eth2", "state": "up" }),
            never("there is no interface eth1", BETWEEN_TWO_STEPS),
            "there is no such interface",
        ),
        (
            json!({ "name": "eth1", "state": "down", "ipv4": { "enabled": true, "dhcp": true } }),
            never("eth1 is down", LINK_RETURNS),
            "the interface is down, and requests one when it is up",
        ),
        (
            json!({ "name": "eth1", "state": "up", "ipv4": own }),
            never("eth1 does not request an IPv4 address", BETWEEN_TWO_STEPS),
            "the interface is up and keeps requesting one",
        ),
        (
            json!({ "name": "eth1", "state": "up", "ipv4": { "enabled": true, "dhcp": true } }),
            Forecast::Later,
            "the interface is up and keeps requesting one",
        ),
    ] {
        let now = with(&interface);
        assert_eq!(Network { now: &now, before: None }.lease(&lease), expected, "{now:?}");
        assert_eq!(
            lease.missing(Some(&now), Duration::from_secs(30)),
            format!("eth1: no DHCPv4 lease after 30 s; {sentence}")
        );
    }
}

#[test]
fn an_interface_that_is_identified_by_its_mac_address_is_found() {
    let desired = with(&json!({
        "name": "wan", "identifier": "mac-address", "mac-address": "02:00:00:00:00:0A",
        "ipv4": { "enabled": true, "dhcp": true },
    }));
    let address = json!([{ "ip": "10.0.0.7", "prefix-length": 24, "valid-life-time": "60sec" }]);
    let ipv4 = json!({ "enabled": true, "dhcp": true, "address": address });
    let now =
        with(&json!({ "name": "eth7", "state": "up", "mac-address": "02:00:00:00:00:0a", "ipv4": ipv4 }));
    let other =
        with(&json!({ "name": "wan", "state": "up", "mac-address": "02:00:00:00:00:0b", "ipv4": ipv4 }));
    let probe = LeaseProbe { interface: "wan".to_owned(), family: LeaseFamily::Ipv4 };
    for lease in requested_leases(&desired).into_iter().chain([AddressLease::probed(&probe, &desired)]) {
        assert_eq!(Network { now: &now, before: None }.lease(&lease), Forecast::Now(()));
        let lost = never("there is no interface wan", BETWEEN_TWO_STEPS);
        assert_eq!(Network { now: &other, before: None }.lease(&lease), lost);
    }
}
