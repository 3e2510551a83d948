//! What comes by itself: from a DHCP server, or from a router that announces it.

use serde_json::Value;

use super::Family;
use crate::document::{self, Document, MAIN_TABLE};

/// Something that may come by itself, as the keys that can each refuse it.
pub(super) type What = &'static [&'static str];

pub(super) const ROUTES: What = &["auto-gateway", "auto-routes"];
pub(super) const NAME_SERVERS: What = &["auto-dns"];

/// Whether an interface still waits for something since the change.
///
/// One that waited just so before the change does not count: on most networks without IPv6 routers every interface
/// waits for one, forever.
pub(super) fn awaits(now: &Document, before: Option<&Document>, family: Family, what: What) -> bool {
    document::interfaces(now).filter(|interface| is_waiting(now, interface, family, what)).any(|interface| {
        let name = document::text(interface, "name");
        !before.is_some_and(|before| {
            document::interfaces(before)
                .any(|known| document::text(known, "name") == name && is_waiting(before, known, family, what))
        })
    })
}

/// Whether an interface would ask for something if its link came up.
pub(super) fn may_return(now: &Document, family: Family, what: What) -> bool {
    document::interfaces(now)
        .any(|interface| document::text(interface, "state") == "down" && asks(interface, family, what))
}

fn is_waiting(state: &Document, interface: &Document, family: Family, what: What) -> bool {
    document::text(interface, "state") == "up"
        && asks(interface, family, what)
        && !was_answered(state, interface, family, what)
}

/// Whether an interface is set up to ask for something, and to take it.
fn asks(interface: &Document, family: Family, what: What) -> bool {
    let Some(section) = section(interface, family) else { return false };
    let is = |key: &str, value: bool| section.get(key).and_then(Value::as_bool) == Some(value);
    // What goes into another table is of no use to the machine itself.
    let table = section.get("auto-route-table-id").and_then(Value::as_u64);
    let in_use = what != ROUTES || table.is_none_or(|table| table == 0 || table == MAIN_TABLE);
    is("enabled", true)
        && asks_for_an_address(interface, family)
        && in_use
        && !what.iter().any(|key| is(key, false))
}

/// Whether an interface is set up to ask for an address of this family.
pub(super) fn asks_for_an_address(interface: &Document, family: Family) -> bool {
    let is = |key: &str| {
        section(interface, family).and_then(|section| section.get(key)).and_then(Value::as_bool) == Some(true)
    };
    is("dhcp") || family == Family::V6 && is("autoconf")
}

/// Whether it has got an answer: an address that is lent comes together with everything else that there is to get. Only
/// routes of IPv6 do not: routers announce them by themselves, whoever lends the address.
fn was_answered(state: &Document, interface: &Document, family: Family, what: What) -> bool {
    if family == Family::V6 && what == ROUTES {
        let name = document::text(interface, "name");
        return document::running_routes(state).any(|route| {
            document::is_default_route(route)
                && document::text(route, "destination").contains(':')
                && document::text(route, "next-hop-interface") == name
        });
    }
    addresses(interface, family).any(|address| address.contains_key(LIFETIME))
}

/// What only addresses have that are not for ever.
pub(super) const LIFETIME: &str = "valid-life-time";

pub(super) fn addresses(interface: &Document, family: Family) -> impl Iterator<Item = &Document> {
    document::objects(section(interface, family).and_then(|section| section.get("address")))
}

pub(super) fn section(interface: &Document, family: Family) -> Option<&Document> {
    interface.get(family.key()).and_then(Value::as_object)
}
