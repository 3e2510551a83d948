//! Documents that nmstate alone would try for 15 to 140 seconds, or would refuse without saying where.

use anyhow::Result;
use serde_json::{Value, json};

use super::PreflightFixture;

fn interfaces(interfaces: &Value) -> Value {
    json!({ "interfaces": interfaces })
}

#[tokio::test]
async fn documents_that_cannot_work_are_refused() -> Result<()> {
    let fixture = PreflightFixture::on_namespaces().await?;
    let macvlan = |base: &str, mtu: u32| {
        json!({ "name": "mv1", "type": "mac-vlan", "state": "up", "mtu": mtu,
            "mac-vlan": { "base-iface": base, "mode": "bridge", "promiscuous": true } })
    };
    let vlan = |name: &str, base: &str, id: u32| json!({ "name": name, "type": "vlan", "state": "up", "vlan": { "base-iface": base, "id": id } });
    let bridge = |name: &str, port: &str| json!({ "name": name, "type": "linux-bridge", "state": "up", "bridge": { "port": [{ "name": port }] } });
    let eth1 = |ipv4: Value| json!({ "name": "eth1", "type": "ethernet", "state": "up", "ipv4": ipv4 });
    let address = |prefix: u32| json!({ "enabled": true, "dhcp": false, "address": [{ "ip": "10.98.0.5", "prefix-length": prefix }] });
    fixture
        .all_are_refused(&[
            (
                interfaces(&json!([{ "name": "eth9", "type": "ethernet", "state": "up" }])),
                "Invalid",
                "interfaces[eth9]: there is no ethernet interface eth9 on this machine; it has eth0, eth1, eth2",
            ),
            (
                interfaces(&json!([bridge("br1", "eth9")])),
                "Missing",
                "interfaces[br1].bridge.port[0].name: there is no interface eth9, ",
            ),
            (
                interfaces(&json!([bridge("br1", "eth1"), bridge("br2", "eth1")])),
                "Invalid",
                "interfaces[br2].bridge.port[0].name: eth1 is a port of br1 in this document, too",
            ),
            (
                interfaces(&json!([macvlan("eth9", 1500)])),
                "Missing",
                "interfaces[mv1].mac-vlan.base-iface: there is no interface eth9, ",
            ),
            (
                interfaces(&json!([{ "name": "vx1", "type": "vxlan", "state": "up",
                    "vxlan": { "base-iface": "eth9", "id": 9, "remote": "10.98.0.9" } }])),
                "Missing",
                "interfaces[vx1].vxlan.base-iface: there is no interface eth9, ",
            ),
            (
                interfaces(&json!([macvlan("eth2", 1501)])),
                "Missing",
                "interfaces[mv1].mtu: 1501 is more than the 1500 of its base eth2",
            ),
            (interfaces(&json!([eth1(address(33))])), "Invalid", "interfaces[eth1].ipv4.address[0].prefix-length: "),
            (
                json!({ "interfaces": [eth1(address(24))], "routes": { "config": [
                    { "destination": "10.55.0.0/16", "next-hop-interface": "eth1", "next-hop-address": "fd00::1" },
                ] } }),
                "Invalid",
                "routes.config[0].next-hop-address: fd00::1 cannot be the next hop to 10.55.0.0/16",
            ),
            (
                interfaces(&json!([vlan("v1", "eth1", 4095)])),
                "Invalid",
                "interfaces[v1].vlan.id: a VLAN has a number from 0 to 4094",
            ),
            (
                interfaces(&json!([vlan("v1", "eth1", 7), vlan("v2", "eth1", 7)])),
                "Invalid",
                "interfaces[v2].vlan.id: VLAN 7 of eth1 is v1 already, in this document",
            ),
            (
                interfaces(&json!([bridge("br1", "eth1"), { "name": "br1.7", "type": "vlan", "state": "up",
                    "vlan": { "base-iface": "br7", "id": 7 } }])),
                "Missing",
                "interfaces[br1.7].vlan.base-iface: there is no interface br7, ",
            ),
            // Not supported by this NetworkManager (1.42) or this kernel.
            (
                interfaces(&json!([{ "name": "ovs1", "type": "ovs-bridge", "state": "up", "bridge": { "port": [{ "name": "eth1" }] } }])),
                "Unsupported",
                "interfaces[ovs1].type: this machine cannot do interfaces of type ovs-bridge: its NetworkManager lacks the plugin for Open vSwitch; install ",
            ),
            (
                interfaces(&json!([{ "name": "i1", "type": "ipvlan", "state": "up", "ipvlan": { "base-iface": "eth1", "mode": "l3" } }])),
                "Unsupported",
                "interfaces[i1].type: this machine cannot do interfaces of type ipvlan: that takes NetworkManager 1.52 or newer",
            ),
            (
                interfaces(&json!([eth1(json!({ "enabled": true, "dhcp": false, "forwarding": true,
                    "address": [{ "ip": "10.98.0.5", "prefix-length": 24 }] }))])),
                "Unsupported",
                "interfaces[eth1].ipv4.forwarding: this machine cannot do forwarding of a single interface: that takes NetworkManager 1.54 or newer",
            ),
            (
                interfaces(&json!([{ "name": "eth1", "type": "ethernet", "state": "up", "ethernet": { "sr-iov": { "total-vfs": 2 } } }])),
                "Unsupported",
                "interfaces[eth1].ethernet.sr-iov.total-vfs: this machine cannot do virtual functions (SR-IOV) on eth1: ",
            ),
            (
                interfaces(&json!([{ "name": "bond1", "type": "bond", "state": "up",
                    "link-aggregation": { "mode": "active-backup", "port": ["eth1"] } }])),
                "Unsupported",
                "interfaces[bond1].type: this machine cannot do interfaces of type bond: ",
            ),
        ])
        .await
}

#[tokio::test]
async fn documents_that_cannot_work_on_a_full_kernel_are_refused() -> Result<()> {
    let fixture = PreflightFixture::on_own_kernel().await?;
    let vlan = |name: &str, base: &str, mtu: u32| json!({ "name": name, "type": "vlan", "state": "up", "mtu": mtu, "vlan": { "base-iface": base, "id": 7 } });
    fixture
        .applies(
            "a bond and a VLAN on it, both large",
            &json!([
                vlan("bond0.7", "bond0", 2000),
                { "name": "bond0", "type": "bond", "state": "up", "mtu": 2000,
                  "link-aggregation": { "mode": "active-backup", "port": ["eth1"] } },
            ]),
        )
        .await?;
    assert_eq!(fixture.link("bond0.7").await?["mtu"], 2000);
    fixture
        .all_are_refused(&[
            (
                interfaces(&json!([vlan("other", "bond0", 1500)])),
                "Missing",
                "interfaces[other].vlan.id: VLAN 7 of bond0 is bond0.7 already, on this machine; ",
            ),
            (
                interfaces(&json!([vlan("eth2.7", "eth2", 1600)])),
                "Missing",
                "interfaces[eth2.7].mtu: 1600 is more than the 1500 of its base eth2",
            ),
            (
                interfaces(&json!([vlan("bond0.7", "bond0", 2001)])),
                "Missing",
                "interfaces[bond0.7].mtu: 2001 is more than the 2000 of its base bond0",
            ),
            (
                interfaces(&json!([vlan("bond7.7", "bond7", 1500)])),
                "Missing",
                "interfaces[bond7.7].vlan.base-iface: there is no interface bond7, ",
            ),
            (
                interfaces(&json!([vlan("bond0.7", "bond0", 1500), { "name": "bond0", "type": "bond", "state": "absent" }])),
                "Invalid",
                "interfaces[bond0.7].vlan.base-iface: bond0 is absent by this very document",
            ),
            (
                interfaces(&json!([{ "name": "ovs1", "type": "ovs-bridge", "state": "up", "bridge": { "port": [{ "name": "eth2" }] } }])),
                "Unsupported",
                "interfaces[ovs1].type: this machine cannot do interfaces of type ovs-bridge: its NetworkManager lacks the plugin",
            ),
            (
                interfaces(&json!([{ "name": "eth2", "type": "ethernet", "state": "up",
                    "ipv4": { "enabled": true, "dhcp": false, "forwarding": true, "address": [{ "ip": "10.98.0.5", "prefix-length": 24 }] } }])),
                "Unsupported",
                "interfaces[eth2].ipv4.forwarding: this machine cannot do forwarding of a single interface: ",
            ),
        ])
        .await
}
