//! What is told of links beside the network itself: nmstate calls one up that has lost its carrier, as long as
//! NetworkManager holds it, and does not say which port of a bond is in use.

use knmstate_api::node_network_state::LinkState;

use crate::document::{Document, interfaces, text};

/// Those of which there is something to tell: interfaces that are shown as up and have no carrier, and bonds with a port
/// in use. In the order of their names.
pub fn worth_telling(links: impl IntoIterator<Item = LinkState>, shown: &Document) -> Vec<LinkState> {
    let is_shown = |link: &LinkState| {
        let mut shown = interfaces(shown).filter(|one| text(one, "state") == "up");
        shown.any(|one| text(one, "name") == link.name)
    };
    let mut told: Vec<LinkState> = links
        .into_iter()
        .filter(|link| !link.carrier || link.active_port.is_some())
        .filter(is_shown)
        .collect();
    told.sort_by(|one, other| one.name.cmp(&other.name));
    told
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lost_carrier_and_a_port_in_use_are_told_of_what_is_shown_as_up() {
        let shown = json!({"interfaces": [
            {"name": "eth1", "state": "up"},
            {"name": "eth2", "state": "up"},
            {"name": "eth3", "state": "down"},
            {"name": "bond0", "state": "up"},
        ]});
        let link = |name: &str, carrier, port: Option<&str>| LinkState {
            name: name.to_owned(),
            carrier,
            active_port: port.map(str::to_owned),
        };
        let links = [
            link("eth2", true, None),
            link("eth1", false, None),
            link("eth3", false, None),
            link("veth7", false, None),
            link("bond0", true, Some("eth2")),
        ];
        assert_eq!(
            worth_telling(links, shown.as_object().unwrap()),
            [link("bond0", true, Some("eth2")), link("eth1", false, None)]
        );
    }
}
