//! Automatic configuration: routes and name servers from DHCP or router advertisements.

use serde_json::Value;

use super::Family;
use knmstate_document::{self as document, Document, MAIN_TABLE};

/// A kind of automatic configuration: the keys of an interface that each can switch it off.
pub(super) type Automatic = &'static [&'static str];

pub(super) const ROUTES: Automatic = &["auto-gateway", "auto-routes"];
pub(super) const NAME_SERVERS: Automatic = &["auto-dns"];

/// Whether an interface waits for automatic configuration since the change.
///
/// An interface that also waited before the change does not count: in most networks without IPv6 routers every
/// interface waits for one forever.
pub(super) fn awaits(now: &Document, before: Option<&Document>, family: Family, what: Automatic) -> bool {
    document::interfaces(now).filter(|interface| is_waiting(now, interface, family, what)).any(|interface| {
        let name = document::text(interface, "name");
        !before.is_some_and(|before| {
            document::interfaces(before)
                .any(|known| document::text(known, "name") == name && is_waiting(before, known, family, what))
        })
    })
}

/// Whether an interface that is down would request automatic configuration when it is up.
pub(super) fn may_return(now: &Document, family: Family, what: Automatic) -> bool {
    document::interfaces(now)
        .any(|interface| document::text(interface, "state") == "down" && requests(interface, family, what))
}

fn is_waiting(state: &Document, interface: &Document, family: Family, what: Automatic) -> bool {
    document::text(interface, "state") == "up"
        && requests(interface, family, what)
        && !was_answered(state, interface, family, what)
}

/// Whether an interface is configured to request and accept automatic configuration.
fn requests(interface: &Document, family: Family, what: Automatic) -> bool {
    let Some(section) = section(interface, family) else { return false };
    let is = |key: &str, value: bool| section.get(key).and_then(Value::as_bool) == Some(value);
    // Routes in another table do not count: probes use the main table.
    let table = section.get("auto-route-table-id").and_then(Value::as_u64);
    let in_use = what != ROUTES || table.is_none_or(|table| table == 0 || table == MAIN_TABLE);
    is("enabled", true)
        && requests_an_address(interface, family)
        && in_use
        && !what.iter().any(|key| is(key, false))
}

/// Whether an interface is configured to request a dynamic address of this family.
pub(super) fn requests_an_address(interface: &Document, family: Family) -> bool {
    let is = |key: &str| {
        section(interface, family).and_then(|section| section.get(key)).and_then(Value::as_bool) == Some(true)
    };
    is("dhcp") || family == Family::V6 && is("autoconf")
}

/// Whether an interface has its automatic configuration: DHCP sends it together with the dynamic address. IPv6 routes are
/// an exception: they come by router advertisement, also if the address is from DHCPv6.
fn was_answered(state: &Document, interface: &Document, family: Family, what: Automatic) -> bool {
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

/// The key that only dynamic addresses have.
pub(super) const LIFETIME: &str = "valid-life-time";

pub(super) fn addresses(interface: &Document, family: Family) -> impl Iterator<Item = &Document> {
    document::objects(section(interface, family).and_then(|section| section.get("address")))
}

pub(super) fn section(interface: &Document, family: Family) -> Option<&Document> {
    interface.get(family.key()).and_then(Value::as_object)
}
