use serde_json::json;

use super::*;

fn state(document: Value) -> NetworkState {
    NetworkState::parse(document).expect("a state")
}

fn nic(name: &str) -> Value {
    json!({ "name": name, "type": "ethernet", "state": "up", "ipv6": { "enabled": false }, "ipv4": { "enabled": true,
        "dhcp": false, "address": [{ "ip": "10.0.0.1", "prefix-length": 24 }] } })
}

fn files(document: Value) -> Vec<(String, String)> {
    let files = keyfiles(&state(document)).expect("it can be written");
    files.into_iter().map(|file| (file.name, file.text)).collect()
}

#[test]
fn a_nic_with_routes_and_name_servers_is_one_file() {
    let document = json!({
        "interfaces": [nic("eth1")],
        "routes": { "config": [
            { "destination": "198.51.100.0/24", "next-hop-interface": "eth1", "next-hop-address": "10.0.0.254" },
            { "destination": "203.0.113.0/24", "next-hop-interface": "eth1", "next-hop-address": "10.0.0.254",
              "metric": 150, "table-id": 100 },
        ] },
        "dns-resolver": { "config": { "server": ["10.0.0.53"], "search": ["example.com"] } },
    });
    let text = "\
[connection]
autoconnect-priority=1
autoconnect=true
autoconnect-slaves=-1
id=eth1
interface-name=eth1
type=802-3-ethernet
uuid=0523c0a1-5f5e-5603-bcf2-68155d5d322e

[ipv4]
address0=10.0.0.1/24
dhcp-timeout=2147483647
dns=10.0.0.53
dns-priority=40
dns-search=example.com
method=manual
route0=198.51.100.0/24,10.0.0.254,0
route0_options=table=254
route1=203.0.113.0/24,10.0.0.254,150
route1_options=table=100

[ipv6]
addr-gen-mode=0
dhcp-timeout=2147483647
method=disabled
";
    assert_eq!(files(document), [("eth1.nmconnection".to_owned(), text.to_owned())]);
}

#[test]
fn the_same_state_gives_the_same_files() {
    // Many of everything, so that chance has something to choose from.
    let nics = (0..20).map(|number| nic(&format!("eth{number}")));
    let routes = (0..20).map(|number| {
        json!({ "destination": format!("198.51.{number}.0/24"), "next-hop-interface": format!("eth{}", number % 3),
            "next-hop-address": "10.0.0.254" })
    });
    let rules = (1..20)
        .map(|number| json!({ "ip-from": format!("10.{number}.0.0/16"), "route-table": 100 + number }));
    let bond = json!({ "name": "bond0", "type": "bond", "state": "up", "link-aggregation": { "mode": "active-backup",
        "options": { "miimon": "140", "updelay": 140, "downdelay": 140 }, "port": ["p1", "p2", "p3"] } });
    let document = json!({
        "interfaces": nics.chain([bond]).collect::<Vec<_>>(),
        "routes": { "config": routes.collect::<Vec<_>>() },
        "route-rules": { "config": rules.collect::<Vec<_>>() },
    });
    let first = files(document.clone());
    assert_eq!(first.len(), 24);
    for _ in 0..30 {
        assert!(files(document.clone()) == first, "chance has its part in it");
    }
}

#[test]
fn what_files_cannot_say_is_refused_with_the_place() {
    let with = |key: &str, value: Value| {
        let mut nic = nic("eth1");
        nic[key] = value;
        json!({ "interfaces": [nic] })
    };
    let of_type =
        |kind: &str| json!({ "interfaces": [{ "name": "x0", "type": kind, "state": "up", "mtu": 1400 }] });
    let route = |route: Value| json!({ "interfaces": [nic("eth1")], "routes": { "config": [route] } });
    for (document, said) in [
        (json!({ "hostname": { "config": "a" } }), "hostname: all nodes of a pool"),
        (json!({ "ovs-db": { "external_ids": {} } }), "ovs-db: this is not part"),
        (with("state", json!("absent")), "interfaces[eth1].state: a file can only say"),
        (with("state", json!("down")), "interfaces[eth1].state: a file can only say"),
        (with("type", Value::Null), "interfaces[eth1].type: no node can be asked"),
        (with("alt-names", json!([{ "name": "a" }])), "interfaces[eth1].alt-names: "),
        (with("dispatch", json!({ "post-activation": "true" })), "interfaces[eth1].dispatch: "),
        (
            with("description", json!("a\nb=c")),
            "interfaces[eth1].description: a file of NetworkManager cannot",
        ),
        (with("mtuu", json!(1)), "interfaces[eth1].mtuu: "),
        (with("name", json!("../eth1")), "interfaces: \"../eth1.nmconnection\" cannot be the name of a file"),
        (with("profile-name", json!("a/b")), "interfaces: \"a/b.nmconnection\" cannot be the name of a file"),
        (
            json!({ "interfaces": [nic("eth1"), { "name": "eth2", "type": "dummy", "profile-name": "eth1" }] }),
            "interfaces: two interfaces would share the file eth1.nmconnection",
        ),
        (
            with(
                "802.1x",
                json!({ "eap-methods": ["tls"], "identity": "a", "private-key-password": "hu\\sh" }),
            ),
            "interfaces[eth1].802.1x.private-key-password: a file of NetworkManager cannot hold a backslash",
        ),
        (
            json!({ "interfaces": [{ "name": "eth0", "type": "ethernet", "state": "up", "mtu": 9000 }] }),
            "interfaces[eth0].ipv4: a file describes an interface in full",
        ),
        (of_type("hsr"), "interfaces[x0].type: an interface of type \"hsr\" cannot be described in full"),
        (of_type("ipvlan"), "interfaces[x0].type: an interface of type \"ipvlan\" cannot"),
        (of_type("loopback"), "interfaces[x0].mtu: a file cannot set the MTU"),
        (
            json!({ "interfaces": [{ "name": "b", "type": "bond", "state": "up",
                "link-aggregation": { "mode": "active-backup", "port": ["sriov:eth1:0"] } }] }),
            "interfaces[b].link-aggregation.port[0]: virtual functions",
        ),
        (
            route(json!({ "destination": "0.0.0.0/0", "next-hop-interface": "eth1", "state": "absent" })),
            "routes.config[0].state: a file cannot remove anything",
        ),
        (
            route(
                json!({ "destination": "0.0.0.0/0", "next-hop-interface": "eth7", "next-hop-address": "10.0.0.2" }),
            ),
            "routes.config[0].next-hop-interface: the file of \"eth7\" has to hold this route; add that interface",
        ),
        (
            route(json!({ "destination": "0.0.0.0/0", "next-hop-address": "10.0.0.2" })),
            "routes.config[0].next-hop-interface: a file belongs to an interface",
        ),
        (
            json!({ "interfaces": [nic("eth1")], "routes": { "config": [
                { "destination": "2001:db8::/32", "next-hop-interface": "eth1", "next-hop-address": "2001:db8::1" }] } }),
            "interfaces[eth1]: The next hop interface of desired Route",
        ),
        (
            json!({ "dns-resolver": { "config": { "server": ["10.0.0.53"] } } }),
            "dns-resolver.config: Failed to find suitable(IP enabled) interface",
        ),
        (
            json!({ "route-rules": { "config": [{ "ip-from": "10.0.0.0/8", "state": "absent" }] } }),
            "route-rules.config[0].state: a file cannot remove anything",
        ),
    ] {
        let refusal = keyfiles(&state(document.clone())).expect_err("it cannot be written").to_string();
        assert!(refusal.starts_with(said), "{document}\n{refusal}");
        assert!(!refusal.contains("hu\\sh"), "{refusal}");
    }
}

#[test]
fn braces_in_a_password_are_no_reference() {
    let mut nic = nic("eth1");
    nic["802.1x"] = json!({ "eap-methods": ["peap"], "identity": "a", "password": "a{{b;#" });
    let files = files(json!({ "interfaces": [nic] }));
    assert!(files[0].1.contains("\npassword=a{{b;#\n"), "{}", files[0].1);
}

#[test]
fn where_files_go_further_than_the_document_is_remarked() {
    let mut half = nic("eth0");
    half.as_object_mut().expect("a map").shift_remove("ipv6");
    let document = json!({ "interfaces": [half, nic("eth1"),
        { "name": "bond0", "type": "bond", "link-aggregation": { "mode": "active-backup", "port": ["eth2", "eth3"] } },
        { "name": "eth3", "type": "ethernet", "mtu": 1400 },
        { "name": "ovs", "type": "ovs-bridge", "bridge": { "port": [
            { "name": "pair", "link-aggregation": { "mode": "active-backup", "port": [{ "name": "eth4" }] } }] } },
    ] });
    assert_eq!(
        remarks(&state(document)),
        [
            "eth2, eth4 are taken for NICs, because the document only names them; describe those that are \
             something else",
            "bond0 is without ipv4, because the document does not mention it",
            "eth0, bond0 are without ipv6, because the document does not mention it",
        ]
    );
    assert_eq!(remarks(&state(json!({ "interfaces": [nic("eth1")] }))), [""; 0]);
}

#[test]
fn debug_does_not_show_the_text() {
    let file = Keyfile { name: "a".to_owned(), text: "hush".to_owned() };
    assert!(!format!("{file:?}").contains("hush"));
}
