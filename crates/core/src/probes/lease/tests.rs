use serde_json::json;

use super::*;

fn document(value: &Value) -> Document {
    value.as_object().cloned().expect("a document is a map")
}

fn with(interface: &Value) -> Document {
    document(&json!({ "interfaces": [interface] }))
}

/// What is asked for, as people are told when it has not come.
fn told(desired: &Value) -> Vec<String> {
    let leases = asked(&with(desired));
    leases.iter().map(|lease| lease.missing(None, Duration::from_secs(3))).collect()
}

#[test]
fn what_is_asked_of_others_is_what_interfaces_that_are_up_have_no_address_of_their_own_for() {
    let unread = "after 3 s; the network of this node could not be read";
    let [v4, v6, router, either] = [
        "eth1: no DHCPv4 lease",
        "eth1: no DHCPv6 lease",
        "eth1: no IPv6 address by the announcement of a router",
        "eth1: no IPv6 address by DHCPv6 or the announcement of a router",
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
        // IPv4 knows no such thing.
        (json!({ "ipv4": { "enabled": true, "autoconf": true } }), vec![]),
        (
            json!({ "ipv4": { "enabled": true, "dhcp": true }, "ipv6": { "enabled": true, "dhcp": true } }),
            vec![&v4, &v6],
        ),
    ] {
        let mut interface = json!({ "name": "eth1", "type": "ethernet" });
        interface.as_object_mut().unwrap().extend(document(&rest));
        let told = told(&interface);
        assert_eq!(told.iter().collect::<Vec<_>>(), expected, "{rest}");
    }
}

fn never(why: &str, patience: Duration) -> Outlook<()> {
    Outlook::Never(Loss { why: why.to_owned(), patience })
}

#[test]
fn only_an_address_that_somebody_lends_is_a_lease() {
    let asking = json!({ "enabled": true, "dhcp": true, "autoconf": true });
    let desired = with(&json!({
        "name": "eth1",
        "ipv4": { "enabled": true, "dhcp": true, "address": [{ "ip": "10.0.0.5", "prefix-length": 24 }] },
        "ipv6": asking,
    }));
    let leases = asked(&desired);
    let forever = |ip: &str| json!({ "ip": ip, "prefix-length": 24 });
    let lent = |ip: &str| json!({ "ip": ip, "prefix-length": 24, "valid-life-time": "3599sec" });
    for (number, addresses, is_there) in [
        (0, json!([]), false),
        (0, json!([lent("10.0.0.7")]), true),
        (0, json!([forever("10.0.0.7")]), true),
        (0, json!([forever("10.0.0.5")]), false),
        (0, json!([forever("10.0.0.5"), lent("10.0.0.7")]), true),
        // A server may lend what the interface has anyway.
        (0, json!([lent("10.0.0.5")]), true),
        (0, json!([lent("169.254.7.7")]), false),
        (1, json!([forever("fe80::7")]), false),
        (1, json!([lent("fe80::7")]), false),
        (1, json!([forever("fe80::7"), lent("fd00::7")]), true),
    ] {
        let key = ["ipv4", "ipv6"][number];
        let mut section = asking.clone();
        section["address"] = addresses.clone();
        let now = with(&json!({ "name": "eth1", "state": "up", key: section }));
        let expected = if is_there { Outlook::Now(()) } else { Outlook::Later };
        assert_eq!(Network { now: &now, before: None }.lease(&leases[number]), expected, "{addresses}");
    }
}

#[test]
fn a_lease_that_nobody_asks_for_is_not_waited_for() {
    let probe = LeaseProbe { interface: "eth1".to_owned(), family: LeaseFamily::Ipv4 };
    let lease = Lease::probed(&probe, &Document::new());
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
            "the interface is down and asks when it is up",
        ),
        (
            json!({ "name": "eth1", "state": "up", "ipv4": own }),
            never("eth1 does not ask for an IPv4 address", BETWEEN_TWO_STEPS),
            "the interface is up and goes on asking",
        ),
        (
            json!({ "name": "eth1", "state": "up", "ipv4": { "enabled": true, "dhcp": true } }),
            Outlook::Later,
            "the interface is up and goes on asking",
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
fn a_card_that_is_known_by_its_address_is_found_by_it() {
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
    for lease in asked(&desired).into_iter().chain([Lease::probed(&probe, &desired)]) {
        assert_eq!(Network { now: &now, before: None }.lease(&lease), Outlook::Now(()));
        let lost = never("there is no interface wan", BETWEEN_TWO_STEPS);
        assert_eq!(Network { now: &other, before: None }.lease(&lease), lost);
    }
}
