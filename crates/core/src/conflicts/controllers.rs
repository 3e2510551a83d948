//! Ports: an interface belongs to one bond, bridge or VRF only, whichever side says so.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Conflict;
use crate::document::{Document, interfaces, is_absent, objects, text};

pub(super) fn conflict(here: &Document, there: &Document) -> Option<Conflict> {
    let others = controllers(there);
    controllers(here).into_iter().find_map(|(port, controller)| {
        let other = *others.get(port)?;
        (other != controller).then(|| Conflict {
            path: format!("interfaces[{port}].controller"),
            values: Some([told(controller), told(other)]),
        })
    })
}

/// The controller of each port that a document speaks of. An empty name is "none".
pub(super) fn controllers(document: &Document) -> BTreeMap<&str, &str> {
    let mut controllers = BTreeMap::new();
    for interface in interfaces(document).filter(|interface| !is_absent(interface)) {
        let name = text(interface, "name");
        for port in ports(interface) {
            controllers.insert(port, name);
        }
        if let Some(Value::String(controller)) = interface.get("controller") {
            controllers.insert(name, controller);
        }
    }
    controllers.retain(|port, controller| is_known(port) && !controller.contains("{{"));
    controllers
}

/// An OVS bridge may have a port of its own name, which is its own interface.
fn ports(interface: &Document) -> impl Iterator<Item = &str> {
    let below = |section: &str| interface.get(section).and_then(Value::as_object);
    let by_name = ["link-aggregation", "vrf", "hsr"].into_iter().flat_map(move |section| {
        let ports = below(section).and_then(|section| section.get("port").or_else(|| section.get("ports")));
        ports.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
    });
    let bridge =
        interface.get("bridge").and_then(|bridge| bridge.get("port").or_else(|| bridge.get("ports")));
    let of_bridge = objects(bridge).flat_map(|port| {
        let bonded = port.get("link-aggregation").and_then(|bond| bond.get("port"));
        // The name of a bond inside of an OVS bridge is no interface.
        let own = if bonded.is_some() { "" } else { text(port, "name") };
        std::iter::once(own).chain(objects(bonded).map(|port| text(port, "name")))
    });
    let name = text(interface, "name");
    by_name.chain(of_bridge).filter(move |port| *port != name)
}

fn is_known(name: &str) -> bool {
    !name.is_empty() && !name.contains("{{")
}

fn told(controller: &str) -> String {
    if controller.is_empty() { "none".to_owned() } else { controller.to_owned() }
}
