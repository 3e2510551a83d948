use serde_json::json;

use super::*;
use crate::commands::render::ignition_rules::{self, Given};

fn args() -> Args {
    Args { file: "p.yaml".into(), pool: "worker".to_owned(), name: None, output: None }
}

fn policy(name: &str, spec: &Value) -> String {
    let policy = json!({ "apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy",
        "metadata": { "name": name }, "spec": spec });
    format!("---\n{policy:#}\n")
}

fn nic(name: &str) -> Value {
    json!({ "name": name, "type": "ethernet", "state": "up", "ipv6": { "enabled": false }, "ipv4": { "enabled": true,
        "dhcp": false, "address": [{ "ip": "10.0.0.1", "prefix-length": 24 }] } })
}

fn given(rendered: &Rendered) -> Given {
    ignition_rules::read(&rendered.object["spec"]["config"]).unwrap()
}

#[test]
fn a_policy_becomes_private_files_of_its_pool() {
    let rendered =
        render(&args(), &policy("net", &json!({ "desiredState": { "interfaces": [nic("eth1")] } }))).unwrap();
    assert_eq!(rendered.remarks, [""; 0]);
    let object = &rendered.object;
    assert_eq!(object["metadata"]["name"], "99-worker-nmstate-net");
    assert_eq!(object["metadata"]["labels"], json!({ "machineconfiguration.openshift.io/role": "worker" }));
    let given = given(&rendered);
    assert_eq!(given.files.len(), 1);
    let file = &given.files["/etc/NetworkManager/system-connections/eth1.nmconnection"];
    assert_eq!(file.mode, 384);
    assert!(file.text.contains("\naddress0=10.0.0.1/24\n"), "{}", file.text);
}

#[test]
fn the_same_policy_gives_the_same_bytes() {
    let example = include_str!("../../../../../../examples/vlan/on-bond.yaml");
    let text = |rendered: &Rendered| knmstate_files::yaml::document(&rendered.object).unwrap();
    let once = render(&args(), example).unwrap();
    let written = text(&once);
    for _ in 0..20 {
        assert_eq!(text(&render(&args(), example).unwrap()), written);
    }
    let read: Value = serde_saphyr::from_str(&written).unwrap();
    assert_eq!(read, once.object, "{written}");
    let given = given(&once);
    let names: Vec<&str> = given.files.keys().filter_map(|path| path.rsplit('/').next()).collect();
    assert_eq!(
        names,
        ["bond0.102.nmconnection", "bond0.nmconnection", "eth1.nmconnection", "eth2.nmconnection"]
    );
    assert_eq!(
        once.remarks,
        [
            "p.yaml: policy bond-with-vlan: maxUnavailable, rollout of the policy has no effect in a MachineConfig",
            "p.yaml: policy bond-with-vlan: eth1, eth2 are taken for NICs, because the document only names \
             them; describe those that are something else",
            "p.yaml: policy bond-with-vlan: bond0 is without ipv4, because the document does not mention it",
            "p.yaml: policy bond-with-vlan: bond0, bond0.102 are without ipv6, because the document does not mention it",
        ]
    );
}

#[test]
fn a_bare_state_is_named_after_its_file_and_several_policies_need_a_name() {
    let state = json!({ "interfaces": [nic("eth1")] }).to_string();
    let name = |file: &str, name: Option<&str>, text: &str| {
        let args = Args { file: file.into(), name: name.map(str::to_owned), ..args() };
        render(&args, text).map(|rendered| rendered.object["metadata"]["name"].as_str().unwrap().to_owned())
    };
    assert_eq!(name("/a/storage.yaml", None, &state).as_deref(), Ok("99-worker-nmstate-storage"));
    assert_eq!(name("-", Some("mine"), &state).as_deref(), Ok("mine"));
    assert!(name("-", None, &state).unwrap_err().contains("standard input: the state has no name"));
    assert!(name("A_b.yaml", None, &state).unwrap_err().contains("give another one by --name"));

    let bond = json!({ "desiredState": { "interfaces": [nic("eth1")] } });
    let route = json!({ "desiredState": { "interfaces": [{ "name": "eth1", "type": "ethernet", "mtu": 1400,
        "ipv4": { "enabled": true } }], "dns-resolver": { "config": { "server": ["10.0.0.53"] } } } });
    let both = policy("a", &bond) + &policy("b", &route);
    assert!(name("p.yaml", None, &both).unwrap_err().contains("several policies"));
    assert_eq!(name("p.yaml", Some("both"), &both).as_deref(), Ok("both"));
    let joined = render(&Args { name: Some("both".to_owned()), ..args() }, &both).unwrap();
    let text = &given(&joined).files["/etc/NetworkManager/system-connections/eth1.nmconnection"].text;
    assert!(
        text.contains("mtu=1400") && text.contains("dns=10.0.0.53") && text.contains("10.0.0.1/24"),
        "{text}"
    );
}

#[test]
fn what_cannot_be_rendered_is_refused_with_policy_and_key() {
    let state = |state: Value| json!({ "desiredState": state });
    for (spec, said) in [
        (json!({ "capture": { "a": "interfaces.name==\"eth1\"" } }), "spec.capture: captures are taken from"),
        (json!({ "values": { "a": 1 } }), "spec.values: values are filled in for each node"),
        (json!({ "nodeValues": { "n": { "a": 1 } } }), "spec.nodeValues: all nodes of a pool"),
        (json!({}), "desiredState: it is empty"),
        (state(json!({ "interfaces": [] })), "desiredState: there is nothing in it"),
        (json!({ "desiredstate": {} }), "spec.desiredstate: there is no such key"),
        (
            state(json!({ "interfaces": [{ "name": "{{ capture.a.interfaces.0.name }}", "type": "ethernet",
                "ipv4": { "enabled": false } }] })),
            "interfaces[{{ capture.a.interfaces.0.name }}].name: a reference can only be",
        ),
        (
            state(json!({ "interfaces": [{ "name": "eth1", "type": "ethernet", "state": "absent" }] })),
            "interfaces[eth1].state: a file can only say that an interface is up, not \"absent\"",
        ),
    ] {
        let error = render(&args(), &policy("p", &spec)).unwrap_err();
        let expected = format!("p.yaml: policy p: {said}");
        assert!(error.starts_with(&expected), "{spec}\n{error}");
    }
    let other = "apiVersion: v1\nkind: Pod\nmetadata: { name: a }";
    assert!(render(&args(), other).unwrap_err().contains("kind: \"Pod\" cannot be rendered"));
    let spoilt = "interfaces:\n  - password: hush\n wrong: [";
    let error = render(&args(), spoilt).unwrap_err();
    assert!(error.starts_with("p.yaml: line 3") && !error.contains("hush"), "{error}");
}

#[test]
fn nodes_that_the_pool_does_not_mean_are_spoken_of() {
    let remarks = |selector: Value| {
        let spec = json!({ "nodeSelector": selector, "desiredState": { "interfaces": [nic("eth1")] } });
        render(&args(), &policy("p", &spec)).unwrap().remarks.len()
    };
    assert_eq!(remarks(json!({})), 0);
    assert_eq!(remarks(json!({ "node-role.kubernetes.io/worker": "" })), 0);
    assert_eq!(remarks(json!({ "node-role.kubernetes.io/master": "" })), 1);
    assert_eq!(remarks(json!({ "node-role.kubernetes.io/worker": "", "rack": "7" })), 1);
}

#[test]
fn ports_of_bridges_are_trunks_as_on_a_node() {
    let bridge = |port: Value| {
        let spec = json!({ "desiredState": { "interfaces": [{ "name": "br1", "type": "linux-bridge", "state": "up",
            "bridge": { "port": [port] } }] } });
        let rendered = render(&args(), &policy("p", &spec)).unwrap();
        given(&rendered).files["/etc/NetworkManager/system-connections/eth1.nmconnection"].text.clone()
    };
    assert!(bridge(json!({ "name": "eth1" })).contains("vlans=2-4094"));
    assert!(!bridge(json!({ "name": "eth1", "vlan": {} })).contains("vlans="));
}
