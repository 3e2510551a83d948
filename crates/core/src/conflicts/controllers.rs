//! Ports: an interface has one controller, whether the controller lists it or the port names the controller.

use std::collections::BTreeMap;

use knmstate_document::{Document, interfaces, interfaces::interface_name, is_absent, references::ports};
use serde_json::Value;

use super::Conflict;

pub(super) fn conflict(here: &Document, there: &Document) -> Option<Conflict> {
    let others = controllers(there);
    controllers(here).into_iter().find_map(|(port, controller)| {
        let other = *others.get(port)?;
        (other != controller).then(|| Conflict {
            path: format!("interfaces[{port}].controller"),
            values: Some([shown(controller), shown(other)]),
        })
    })
}

/// The controller of each port that a document names. An empty name means "none".
pub(super) fn controllers(document: &Document) -> BTreeMap<&str, &str> {
    let mut controllers = BTreeMap::new();
    for interface in interfaces(document).filter(|interface| !is_absent(interface)) {
        let name = interface_name(interface);
        // A bridge of Open vSwitch may have a port of its own name.
        for port in ports(interface).into_iter().filter(|port| *port != name) {
            controllers.insert(port, name);
        }
        if let Some(Value::String(controller)) = interface.get("controller") {
            controllers.insert(name, controller);
        }
    }
    controllers.retain(|port, controller| is_known(port) && !controller.contains("{{"));
    controllers
}

fn is_known(name: &str) -> bool {
    !name.is_empty() && !name.contains("{{")
}

fn shown(controller: &str) -> String {
    if controller.is_empty() { "none".to_owned() } else { controller.to_owned() }
}
