//! The state of links, reported beside the network itself: nmstate shows a link as up that has lost its carrier, as long as
//! NetworkManager manages it, and does not show the active port of a bond.

use knmstate_api::node_network_state::LinkState;

use knmstate_document::{Document, interfaces, text};

/// The links to report, by name: interfaces that are shown as up and have no carrier, and bonds with an active port.
pub fn reported(links: impl IntoIterator<Item = LinkState>, shown: &Document) -> Vec<LinkState> {
    let is_shown = |link: &LinkState| {
        let mut shown = interfaces(shown).filter(|one| text(one, "state") == "up");
        shown.any(|one| text(one, "name") == link.name)
    };
    let mut reported: Vec<LinkState> = links
        .into_iter()
        .filter(|link| !link.carrier || link.active_port.is_some())
        .filter(is_shown)
        .collect();
    reported.sort_by(|one, other| one.name.cmp(&other.name));
    reported
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lost_carrier_and_an_active_port_are_reported_of_what_is_shown_as_up() {
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
            reported(links, shown.as_object().unwrap()),
            [link("bond0", true, Some("eth2")), link("eth1", false, None)]
        );
    }
}
