//! The same address on two nodes: the most frequent mistake with per-node values, and both nodes lose connections.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use knmstate_api::{NodeNetworkConfigurationPolicySpec, State};
use serde_json::Value;

use super::{is_filled, is_template};
use knmstate_document::is_absent;

/// An address that two nodes would have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DuplicateAddress {
    pub address: IpAddr,
    pub nodes: [String; 2],
}

impl fmt::Display for DuplicateAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, nodes: [one, other] } = self;
        write!(
            formatter,
            "nodes {one:?} and {other:?} would both have the address {address}; give each its own in nodeValues"
        )
    }
}

/// The first address that comes from references and is the same on two nodes. `rendered` is the desired state of `policy`
/// for each of them. An address without references is allowed, as in kubernetes-nmstate: some are meant to be on
/// every node.
pub(crate) fn duplicate_address(
    policy: &NodeNetworkConfigurationPolicySpec,
    rendered: &BTreeMap<String, State>,
) -> Option<DuplicateAddress> {
    let template = policy.desired_state.as_ref()?;
    if !template.0.iter().any(|(key, value)| is_filled(key, value)) {
        return None;
    }
    let mut owners: BTreeMap<IpAddr, &str> = BTreeMap::new();
    for (node, state) in rendered {
        let mut addresses = Vec::new();
        collect(template.0.get("interfaces"), state.0.get("interfaces"), &mut addresses);
        addresses.sort_unstable();
        addresses.dedup();
        for address in addresses {
            if let Some(owner) = owners.insert(address, node) {
                return Some(DuplicateAddress { address, nodes: [owner.to_owned(), node.clone()] });
            }
        }
    }
    None
}

/// Walks through the interfaces of the template and of the rendered state in parallel.
fn collect(template: Option<&Value>, rendered: Option<&Value>, addresses: &mut Vec<IpAddr>) {
    let whole_list = is_reference(template);
    for (index, interface) in entries(rendered) {
        if interface.as_object().is_some_and(is_absent) {
            continue;
        }
        let written = template.and_then(|list| list.get(index));
        let whole_interface = whole_list || is_reference(written);
        for family in ["ipv4", "ipv6"] {
            let written = written.and_then(|interface| interface.get(family));
            add(written, whole_interface, interface.get(family), addresses);
        }
    }
}

fn add(template: Option<&Value>, whole: bool, rendered: Option<&Value>, addresses: &mut Vec<IpAddr>) {
    let list = template.and_then(|family| family.get("address"));
    let whole = whole || is_reference(template) || is_reference(list);
    for (index, entry) in entries(rendered.and_then(|family| family.get("address"))) {
        let written = list.and_then(|list| list.get(index));
        let filled_in =
            whole || is_reference(written) || is_reference(written.and_then(|entry| entry.get("ip")));
        let address = entry.get("ip").and_then(Value::as_str).and_then(|text| text.parse().ok());
        addresses.extend(address.filter(|_: &IpAddr| filled_in));
    }
}

fn is_reference(value: Option<&Value>) -> bool {
    value.and_then(Value::as_str).is_some_and(|text| is_template(text, false))
}

fn entries(list: Option<&Value>) -> impl Iterator<Item = (usize, &Value)> {
    list.and_then(Value::as_array).into_iter().flatten().enumerate()
}
