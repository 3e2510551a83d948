//! Which interfaces there are after a document.

use knmstate_simulated_host::SimulatedMachine;
use serde_json::{Value, json};

use crate::common::{after, apply, at, bond, names, vlan_on};

/// Which interfaces there are after a series of documents, besides the NICs and the loopback.
#[tokio::test]
async fn interfaces_that_come_and_go() {
    let one = |name: &str, kind: &str, state: &str| json!({ "interfaces": [{ "name": name, "type": kind, "state": state }] });
    let veth = json!({ "interfaces": [{ "name": "veth0", "type": "veth", "veth": { "peer": "veth1" } }] });
    let table: Vec<(&str, Vec<Value>, Vec<&str>)> = vec![
        ("one that is wanted is there", vec![one("dummy0", "dummy", "up")], vec!["dummy0"]),
        (
            "one that is wanted absent is gone",
            vec![one("dummy0", "dummy", "up"), one("dummy0", "dummy", "absent")],
            vec![],
        ),
        (
            "one that only exists in memory is gone when it is down",
            vec![one("dummy0", "dummy", "up"), one("dummy0", "dummy", "down")],
            vec![],
        ),
        (
            "one that is not there may be wanted absent",
            vec![one("dummy7", "dummy", "absent"), one("x", "ovs-bridge", "absent")],
            vec![],
        ),
        (
            "the type need not be repeated",
            vec![bond(), json!({ "interfaces": [{ "name": "bond0", "state": "absent" }] })],
            vec![],
        ),
        (
            "interfaces are removed with their base, and others with them",
            vec![
                bond(),
                vlan_on("bond0", "bond0.5", 5),
                vlan_on("bond0.5", "qinq", 6),
                one("bond0", "bond", "absent"),
            ],
            vec![],
        ),
        (
            "a VLAN stays when its NIC is put out of use",
            vec![vlan_on("eth1", "eth1.5", 5), one("eth1", "ethernet", "absent")],
            vec!["eth1.5"],
        ),
        ("ports stay when their controller goes", vec![bond(), one("bond0", "bond", "absent")], vec![]),
        ("a veth comes with its peer", vec![veth.clone()], vec!["veth0", "veth1"]),
        ("a veth goes with its peer", vec![veth.clone(), one("veth1", "veth", "absent")], vec![]),
        (
            "a veth that gets a new peer loses the old one",
            vec![
                veth,
                json!({ "interfaces": [{ "name": "veth0", "type": "veth", "veth": { "peer": "veth2" } }] }),
            ],
            vec!["veth0", "veth2"],
        ),
        (
            "a base may come later in the document than the interface above it",
            vec![json!({ "interfaces": [
                { "name": "over", "type": "vlan", "vlan": { "base-iface": "under", "id": 9 } },
                { "name": "under", "type": "dummy" }
            ]})],
            vec!["over", "under"],
        ),
        (
            "every kind can be made",
            vec![json!({ "interfaces": [
                { "name": "bond1", "type": "bond", "link-aggregation": { "mode": "balance-alb", "port": [] } },
                { "name": "br1", "type": "linux-bridge" },
                { "name": "vrf1", "type": "vrf", "vrf": { "route-table-id": 7, "port": [] } },
                { "name": "vlan1", "type": "vlan", "vlan": { "base-iface": "eth1", "id": 4094 } },
                { "name": "vxlan1", "type": "vxlan", "vxlan": { "base-iface": "eth1", "id": 7, "remote": "192.0.2.9" } },
                { "name": "vxlan2", "type": "vxlan", "vxlan": { "id": 8 } },
                { "name": "mv1", "type": "mac-vlan", "mac-vlan": { "base-iface": "eth1", "mode": "bridge" } },
                { "name": "mt1", "type": "mac-vtap", "mac-vtap": { "base-iface": "eth2", "mode": "bridge" } },
                { "name": "iv1", "type": "ipvlan", "ipvlan": { "base-iface": "eth2", "mode": "l2" } },
                { "name": "dummy1", "type": "dummy" },
                { "name": "veth1", "type": "ethernet", "veth": { "peer": "veth1p" } }
            ]})],
            vec![
                "bond1", "br1", "dummy1", "iv1", "mt1", "mv1", "veth1", "veth1p", "vlan1", "vrf1", "vxlan1",
                "vxlan2",
            ],
        ),
    ];
    for (what, documents, expected) in table {
        let machine = after(&documents).await;
        let made: Vec<_> = names(&machine)
            .into_iter()
            .filter(|name| !["lo", "eth0", "eth1", "eth2"].contains(&name.as_str()))
            .collect();
        assert_eq!(made, expected, "{what}");
    }
    let freed = after(&[bond(), one("bond0", "bond", "absent")]).await;
    assert_eq!(at(&freed, "eth1", "/controller"), Value::Null);
}

#[tokio::test]
async fn a_state_that_was_read_can_be_applied_and_changes_nothing() {
    let machine = after(&[bond(), vlan_on("bond0", "bond0.5", 5)]).await;
    let before = machine.state();
    apply(&machine.host(), before.clone().into_value()).await.expect("what is there can be applied");
    assert_eq!(machine.state(), before);
}

#[test]
fn every_nic_of_every_machine_has_an_address_of_its_own() {
    let mac = |machine: &str, nic: &str| {
        let machine = SimulatedMachine::builder(machine).nic(nic).build().expect("boots");
        at(&machine, nic, "/mac-address")
    };
    assert_eq!(mac("a", "eth0"), mac("a", "eth0"));
    assert_ne!(mac("a", "eth0"), mac("b", "eth0"));
    assert_ne!(mac("a", "eth0"), mac("a", "eth1"));
}
