//! Documents that cannot be, and what is said about them.

use knmstate_host::{Host, HostError};
use knmstate_simulated_host::{Kind, SimulatedMachine};
use serde_json::{Value, json};

use crate::common::{DEADLINE, after, apply, machine, state};

fn interfaces(list: Value) -> Value {
    json!({ "interfaces": list })
}

fn bond(ports: Value) -> Value {
    json!({ "name": "bond0", "type": "bond", "link-aggregation": { "mode": "active-backup", "port": ports } })
}

fn address(family: &str, entry: Value) -> Value {
    json!({ "interfaces": [{ "name": "eth1", family: { "enabled": true, "address": [entry] } }] })
}

fn route(keys: Value) -> Value {
    json!({ "routes": { "config": [keys] } })
}

fn table() -> Vec<(Value, &'static str)> {
    vec![
        // What there is not
        (
            interfaces(json!([{ "name": "eth9", "state": "up" }])),
            "interfaces[eth9].type: there is no such interface on this machine; give its type if it is to be created",
        ),
        (
            interfaces(json!([{ "name": "eth9", "type": "ethernet" }])),
            "interfaces[eth9].type: there is no such ethernet interface, and it cannot be created",
        ),
        (
            interfaces(json!([{ "name": "v", "type": "vlan", "vlan": { "base-iface": "eth9", "id": 5 } }])),
            "interfaces[v].vlan.base-iface: there is no interface eth9, neither on this machine nor in the document",
        ),
        (
            interfaces(json!([bond(json!(["eth1", "eth9"]))])),
            "interfaces[bond0].link-aggregation.port: there is no interface eth9, neither on this machine nor in the document",
        ),
        (
            interfaces(json!([{ "name": "eth1", "controller": "br9" }])),
            "interfaces[eth1].controller: there is no interface br9, neither on this machine nor in the document",
        ),
        (
            interfaces(json!([{ "name": "br0", "type": "linux-bridge", "copy-mac-from": "eth9" }])),
            "interfaces[br0].copy-mac-from: there is no interface eth9 with a hardware address to copy",
        ),
        (
            route(json!({ "destination": "203.0.113.0/24", "next-hop-interface": "eth9" })),
            "routes.config[0].next-hop-interface: there is no interface eth9, neither on this machine nor in the document",
        ),
        // What is missing
        (
            interfaces(json!([{ "name": "v", "type": "vlan", "vlan": { "id": 5 } }])),
            "interfaces[v].vlan.base-iface: a vlan needs a base interface",
        ),
        (
            interfaces(json!([{ "name": "m", "type": "mac-vlan" }])),
            "interfaces[m].mac-vlan.base-iface: a mac-vlan needs a base interface",
        ),
        (
            interfaces(json!([{ "name": "b", "type": "bond" }])),
            "interfaces[b].link-aggregation.mode: a bond needs one of the modes balance-rr, active-backup, balance-xor, broadcast, 802.3ad, balance-tlb, balance-alb",
        ),
        (
            interfaces(json!([{ "name": "veth0", "type": "veth" }])),
            "interfaces[veth0].veth.peer: a new veth needs the name of its peer",
        ),
        (
            route(json!({ "next-hop-interface": "eth0" })),
            "routes.config[0].destination: every route needs a destination",
        ),
        (
            route(json!({ "destination": "203.0.113.0/24" })),
            "routes.config[0].next-hop-interface: every route needs an interface",
        ),
        (
            json!({ "route-rules": { "config": [{ "route-table": 100 }] } }),
            "route-rules.config[0]: every rule needs one of ip-from, ip-to and family",
        ),
        (
            json!({ "route-rules": { "config": [{ "family": "ipv4", "fwmask": 1 }] } }),
            "route-rules.config[0].fwmask: a mask needs a fwmark that it applies to",
        ),
        // Values out of their range
        (
            interfaces(
                json!([{ "name": "v", "type": "vlan", "vlan": { "base-iface": "eth1", "id": 4095 } }]),
            ),
            "interfaces[v].vlan.id: a number from 0 to 4094 is expected here",
        ),
        (
            interfaces(json!([{ "name": "v", "type": "vlan", "vlan": { "base-iface": "eth1" } }])),
            "interfaces[v].vlan.id: a number from 0 to 4094 is expected here",
        ),
        (
            interfaces(json!([{ "name": "x", "type": "vxlan", "vxlan": { "id": 16_777_216 } }])),
            "interfaces[x].vxlan.id: a number from 0 to 16777215 is expected here",
        ),
        (
            interfaces(json!([{ "name": "eth1", "mtu": 67 }])),
            "interfaces[eth1].mtu: 67 is outside 68 to 65535",
        ),
        (
            interfaces(json!([{ "name": "eth0", "mtu": 1279 }])),
            "interfaces[eth0].mtu: 1279 is too small for IPv6, which needs 1280",
        ),
        (
            interfaces(json!([{ "name": "eth1", "mtu": "jumbo" }])),
            "interfaces[eth1].mtu: \"jumbo\" is not a number",
        ),
        (
            interfaces(json!([{ "name": "eth1", "mac-address": "02:00:5e" }])),
            "interfaces[eth1].mac-address: \"02:00:5e\" is not a hardware address like 02:00:5E:10:00:01",
        ),
        (
            interfaces(json!([{ "name": "eth1", "state": "sideways" }])),
            "interfaces[eth1].state: \"sideways\" is not one of up, down, absent, ignore",
        ),
        (
            interfaces(json!([{ "name": "a-name-too-long0", "type": "dummy" }])),
            "interfaces[a-name-too-long0].name: a name has at most 15 bytes and no slash, colon or blank",
        ),
        (
            address("ipv4", json!({ "ip": "192.0.2.300", "prefix-length": 24 })),
            "interfaces[eth1].ipv4.address[0].ip: \"192.0.2.300\" is not an IP address",
        ),
        (
            address("ipv4", json!({ "ip": "2001:db8::1", "prefix-length": 24 })),
            "interfaces[eth1].ipv4.address[0].ip: 2001:db8::1 is not an IPv4 address",
        ),
        (
            address("ipv6", json!({ "ip": "ff02::1", "prefix-length": 64 })),
            "interfaces[eth1].ipv6.address[0].ip: ff02::1 cannot be the address of an interface",
        ),
        (
            address("ipv4", json!({ "ip": "192.0.2.3", "prefix-length": 33 })),
            "interfaces[eth1].ipv4.address[0].prefix-length: a number from 0 to 32 is expected here",
        ),
        (
            address("ipv4", json!({ "prefix-length": 24 })),
            "interfaces[eth1].ipv4.address[0].ip: every address needs an ip",
        ),
        (
            interfaces(json!([{ "name": "eth1", "ipv4": { "enabled": "maybe" } }])),
            "interfaces[eth1].ipv4.enabled: \"maybe\" is neither true nor false",
        ),
        (
            route(json!({ "destination": "203.0.113.0/33", "next-hop-interface": "eth0" })),
            "routes.config[0].destination: the prefix of 203.0.113.0/33 must be a number from 0 to 32",
        ),
        (
            route(
                json!({ "destination": "203.0.113.0/24", "next-hop-interface": "eth0", "next-hop-address": "2001:db8::1" }),
            ),
            "routes.config[0].next-hop-address: 2001:db8::1 cannot serve a route to 203.0.113.0/24",
        ),
        (
            route(json!({ "destination": "0.0.0.0/8", "next-hop-interface": "eth0" })),
            "routes.config[0].destination: networks that begin with 0 cannot be routed to; the default route is 0.0.0.0/0",
        ),
        (
            json!({ "dns-resolver": { "config": { "server": ["192.0.2.53", "dns.example.org"] } } }),
            "dns-resolver.config.server[1]: \"dns.example.org\" is not an IP address",
        ),
        (
            json!({ "dns-resolver": { "config": { "search": "example.org" } } }),
            "dns-resolver.config.search: a list of words is expected here",
        ),
        (json!({ "hostname": { "config": "-a" } }), "hostname.config: \"-a\" is not a host name"),
        // Unknown keys
        (
            json!({ "interface": [] }),
            "interface: there is no such section; known are interfaces, routes, route-rules, dns-resolver, hostname, ovs-db and ovn",
        ),
        (
            interfaces(json!([{ "name": "eth1", "mtuu": 1500 }])),
            "interfaces[eth1].mtuu: an interface of type ethernet has no such key",
        ),
        (
            interfaces(json!([{ "name": "eth1", "vlan": { "id": 5 } }])),
            "interfaces[eth1].vlan: an interface of type ethernet has no such key",
        ),
        (
            interfaces(json!([{ "name": "eth1", "ipv4": { "enabled": true, "adress": [] } }])),
            "interfaces[eth1].ipv4.adress: IPv4 has no such key",
        ),
        (
            interfaces(json!([{ "name": "eth1", "ipv4": { "enabled": true, "autoconf": true } }])),
            "interfaces[eth1].ipv4.autoconf: IPv4 has no such key",
        ),
        (
            route(json!({ "destination": "203.0.113.0/24", "interface": "eth0" })),
            "routes.config[0].interface: a route has no such key",
        ),
        (
            json!({ "route-rules": { "config": [{ "from": "192.0.2.0/24" }] } }),
            "route-rules.config[0].from: a rule has no such key",
        ),
        (
            interfaces(json!([{ "name": "x", "type": "brigde" }])),
            "interfaces[x].type: \"brigde\" is not a type of interface",
        ),
        // Things that do not go together
        (
            interfaces(json!([{ "name": "eth1" }, { "name": "eth1" }])),
            "interfaces[eth1]: the interface is listed twice",
        ),
        (
            interfaces(json!([{ "name": "eth1", "type": "dummy" }])),
            "interfaces[eth1].type: it is of type ethernet, and cannot be turned into dummy; remove it first",
        ),
        (
            interfaces(json!([bond(json!(["eth1", "eth1"]))])),
            "interfaces[bond0].link-aggregation.port[1]: eth1 is listed twice",
        ),
        (
            interfaces(json!([bond(json!([{ "name": "eth1" }]))])),
            "interfaces[bond0].link-aggregation.port[0]: a port is written as a name",
        ),
        (
            interfaces(json!([{ "name": "br0", "type": "linux-bridge", "bridge": { "port": ["eth1"] } }])),
            "interfaces[br0].bridge.port[0]: a port is written as a map with a name",
        ),
        (
            interfaces(json!([
                bond(json!(["eth1"])),
                { "name": "br0", "type": "linux-bridge", "bridge": { "port": [{ "name": "eth1" }] } }
            ])),
            "interfaces[br0].bridge.port: eth1 is already a port of bond0",
        ),
        (
            interfaces(json!([bond(json!(["lo"]))])),
            "interfaces[bond0].link-aggregation.port: lo cannot be a port of it",
        ),
        (
            interfaces(json!([bond(json!(["bond0"]))])),
            "interfaces[bond0].link-aggregation.port: bond0 cannot be a port of it",
        ),
        (
            interfaces(json!([bond(json!(["eth1"])), { "name": "eth2", "controller": "bond0" }])),
            "interfaces[eth2].controller: bond0 does not list eth2 as its port",
        ),
        (
            interfaces(json!([bond(json!(["eth1"])), { "name": "eth1", "controller": "" }])),
            "interfaces[eth1].controller: bond0 lists eth1 as its port",
        ),
        (
            interfaces(json!([{ "name": "eth1", "controller": "eth2" }])),
            "interfaces[eth1].controller: eth2 cannot have ports",
        ),
        (
            interfaces(json!([bond(json!(["eth1"])), { "name": "eth1", "ipv4": { "enabled": true } }])),
            "interfaces[eth1].ipv4: it is a port of bond0, and such ports have no addresses of their own",
        ),
        (
            interfaces(json!([bond(json!(["eth1"])), { "name": "eth1", "state": "down" }])),
            "interfaces[bond0].link-aggregation.port: eth1 is removed by the same document",
        ),
        (
            interfaces(json!([
                bond(json!(["v"])), { "name": "v", "type": "vlan", "vlan": { "base-iface": "bond0", "id": 5 } }
            ])),
            "interfaces[bond0]: it would be its own base or port, by way of v",
        ),
        (
            interfaces(json!([{ "name": "v", "type": "vlan", "vlan": { "base-iface": "v", "id": 5 } }])),
            "interfaces[v]: it would be its own base or port, by way of v",
        ),
        (
            interfaces(json!([
                { "name": "a", "type": "vlan", "vlan": { "base-iface": "eth1", "id": 5 } },
                { "name": "b", "type": "vlan", "vlan": { "base-iface": "eth1", "id": "5" } }
            ])),
            "interfaces[b].vlan.id: VLAN 5 on eth1 is already there as a",
        ),
        (
            interfaces(json!([{ "name": "veth0", "type": "veth", "veth": { "peer": "eth1" } }])),
            "interfaces[veth0].veth.peer: eth1 is there already, and is not its peer",
        ),
        (
            route(json!({ "destination": "203.0.113.0/24", "next-hop-interface": "eth1" })),
            "routes.config[0].next-hop-interface: ipv4 is disabled on eth1",
        ),
        (
            json!({
                "interfaces": [{ "name": "eth0", "state": "down" }],
                "routes": { "config": [{ "destination": "203.0.113.0/24", "next-hop-interface": "eth0" }] }
            }),
            "routes.config[0].next-hop-interface: eth0 is not up",
        ),
        (
            json!({
                "interfaces": [{ "name": "eth0", "state": "ignore" }],
                "routes": { "config": [{ "destination": "203.0.113.0/24", "next-hop-interface": "eth0" }] }
            }),
            "routes.config[0].next-hop-interface: the same document wants eth0 to be ignored",
        ),
        (
            route(
                json!({ "destination": "203.0.113.0/24", "route-type": "blackhole", "next-hop-address": "192.0.2.1" }),
            ),
            "routes.config[0].route-type: a route that leads nowhere has no next hop",
        ),
        // Things this machine does not have
        (
            interfaces(json!([{ "name": "ovs0", "type": "ovs-bridge" }])),
            "interfaces[ovs0].type: this machine cannot do an interface of type ovs-bridge: a simulated machine does not know how",
        ),
        (
            json!({ "ovn": { "bridge-mappings": [] } }),
            "ovn: this machine cannot do Open vSwitch: a simulated machine has none",
        ),
        (
            interfaces(
                json!([{ "name": "port1", "identifier": "mac-address", "mac-address": "02:00:5E:10:00:01" }]),
            ),
            "interfaces[port1].identifier: this machine cannot do an interface found by mac-address: a simulated machine finds interfaces by name",
        ),
    ]
}

#[tokio::test]
async fn each_is_refused_with_the_place_and_the_reason_and_nothing_is_touched() {
    for (document, message) in table() {
        let machine = machine();
        let before = machine.state();
        let Err(error) = machine.host().begin(&state(document.clone()), DEADLINE).await else {
            panic!("{document} was accepted");
        };
        assert_eq!(error.to_string(), message, "{document}");
        assert!(matches!(error, HostError::Invalid { .. } | HostError::Unsupported { .. }), "{document}");
        assert!(!error.is_retryable(), "{document}");
        assert_eq!(machine.state(), before, "{document}");
        assert_eq!(machine.checkpoints_made(), 0, "{document}");
    }
}

#[tokio::test]
async fn what_depends_on_what_is_there() {
    let vlan =
        interfaces(json!([{ "name": "v5", "type": "vlan", "vlan": { "base-iface": "dummy0", "id": 5 } }]));
    let dummy = interfaces(json!([{ "name": "dummy0", "type": "dummy" }]));
    let bond = interfaces(json!([bond(json!(["eth1"]))]));
    for (there, document, message) in [
        (
            vec![dummy, vlan.clone()],
            interfaces(json!([{ "name": "dummy0", "state": "absent" }, { "name": "v5", "mtu": 1400 }])),
            "interfaces[v5]: it cannot stay: the same document removes dummy0, which it needs",
        ),
        (
            vec![bond.clone()],
            interfaces(json!([{ "name": "eth1", "ipv6": { "enabled": true } }])),
            "interfaces[eth1].ipv6: it is a port of bond0, and such ports have no addresses of their own",
        ),
        (
            vec![bond],
            interfaces(json!([
                { "name": "bond0", "mtu": 9000 },
                { "name": "br0", "type": "linux-bridge", "bridge": { "port": [{ "name": "eth1" }] } }
            ])),
            "interfaces[br0].bridge.port: eth1 is already a port of bond0",
        ),
    ] {
        let machine = after(&there).await;
        let before = machine.state();
        let error = apply(&machine.host(), document.clone()).await.expect_err(message);
        assert_eq!(error.to_string(), message, "{document}");
        assert_eq!(machine.state(), before, "{document}");
    }
}

#[tokio::test]
async fn a_kind_that_the_kernel_lacks_is_unsupported() {
    let machine =
        SimulatedMachine::builder("old").nic("eth1").lacking(Kind::Vlan).build().expect("the machine boots");
    let vlan =
        interfaces(json!([{ "name": "v", "type": "vlan", "vlan": { "base-iface": "eth1", "id": 5 } }]));
    let error = apply(&machine.host(), vlan).await.expect_err("no such driver");
    assert_eq!(
        error,
        HostError::Unsupported {
            place: knmstate_document::Place::interface("v").below("type"),
            what: "an interface of type vlan".to_owned(),
            why: "its kernel has no such driver".to_owned(),
        }
    );
}

#[test]
fn a_machine_that_cannot_be_is_not_built() {
    let impossible = state(route(json!({ "destination": "0.0.0.0/0", "next-hop-interface": "eth9" })));
    let error = SimulatedMachine::builder("n").initially(impossible).build().expect_err("no such interface");
    assert_eq!(
        error.place().map(ToString::to_string),
        Some("routes.config[0].next-hop-interface".to_owned())
    );
}
