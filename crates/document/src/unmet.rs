//! Compares a desired state with a real one: the first part that the real one does not have.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::address::{parse_ip, parse_server};
use crate::interfaces::{
    interface_name, interface_state, interface_type, is_same_type, main_key, stays_when_absent,
};
use crate::place::Place;
use crate::state::{NetworkState, RouteList};
use crate::{Document, is_absent, is_ignored, routing, scalar, secrets};

/// Something that is desired and not there. The texts hide secrets and are cut to a length that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmet {
    pub place: Place,
    pub wanted: String,
    pub found: String,
}

impl NetworkState {
    /// The first thing that this desired state asks for and `current` does not have; `None` when there is none.
    ///
    /// Keys that are not named are not compared. Lists of ports and addresses are compared without regard to order, and
    /// more addresses than wanted are fine; other lists have to be equal.
    pub fn first_unmet_in(&self, current: &NetworkState) -> Option<Unmet> {
        self.interfaces()
            .find_map(|desired| interface(desired, current))
            .or_else(|| routes(self, current).into_iter().next().map(|(_, unmet)| unmet))
            .or_else(|| rules(self, current).into_iter().next().map(|(_, unmet)| unmet))
            .or_else(|| resolver(self, current))
            .or_else(|| hostname(self, current))
            .or_else(|| open_vswitch(self, current))
            .or_else(|| ovn(self, current))
    }
}

/// Keys that a desired state may carry because it was made from a real one, and that cannot be configured.
const READ_ONLY: [&str; 8] =
    ["name", "state", "permanent-mac-address", "min-mtu", "max-mtu", "driver", "copy-mac-from", "identifier"];

pub(crate) fn interface(desired: &Map<String, Value>, current: &NetworkState) -> Option<Unmet> {
    let name = interface_name(desired);
    let place = Place::interface(name);
    let found = current.interface_meant_by(desired);
    let state = interface_state(desired);
    match (state, found) {
        ("ignore", _) | ("absent" | "down", None) => None,
        ("absent" | "down", Some(found)) => {
            // Hardware cannot be taken out; what a machine does with an unused one is its own affair.
            let stays = stays_when_absent(interface_type(found));
            (!stays).then(|| unmet(&place, "state", &Value::from(state), found.get("state")))
        }
        (_, None) => {
            Some(Unmet { place, wanted: "the interface".to_owned(), found: "no such interface".to_owned() })
        }
        (_, Some(found)) => {
            if found.get("state").and_then(Value::as_str) != Some("up") {
                return Some(unmet(&place, "state", &Value::from("up"), found.get("state")));
            }
            desired.iter().find_map(|(key, wanted)| key_of_interface(key, wanted, found, &place))
        }
    }
}

/// What a bridge may have besides what is asked for, which is no state of it.
pub(crate) const PERMISSION: &str = "allow-extra-patch-ports";

/// Whether virtual functions of a NIC are as desired. Those that are not named are left alone.
pub(crate) fn has_functions(wanted: &Value, found: Option<&Value>) -> bool {
    let found = found.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    wanted.as_array().into_iter().flatten().all(|wanted| {
        let is_it = |found: &&Value| found["id"] == wanted["id"];
        let Some(found) = found.iter().find(is_it) else { return false };
        wanted.as_object().into_iter().flatten().all(|(key, wanted)| match key.as_str() {
            "mac-address" => text(Some(wanted)).eq_ignore_ascii_case(text(found.get(key))),
            _ => below(key, wanted, found.get(key), &Place::document()).is_none(),
        })
    })
}

/// Whether the ports of a bridge are the desired ones, with all desired keys of each.
pub(crate) fn has_ports(wanted: &Value, found: Option<&Value>) -> bool {
    below("port", wanted, found, &Place::document()).is_none()
}

/// What is unmet of one key of an interface that is there.
pub(crate) fn key_of_interface(
    key: &str,
    wanted: &Value,
    found: &Map<String, Value>,
    place: &Place,
) -> Option<Unmet> {
    if READ_ONLY.contains(&key) || wanted.is_null() {
        return None;
    }
    interface_key(key, wanted, found.get(main_key(key)), place)
}

fn interface_key(key: &str, wanted: &Value, found: Option<&Value>, place: &Place) -> Option<Unmet> {
    let satisfied = match key {
        "ipv4" | "ipv6" => return ip(key, wanted, found, place),
        "type" => is_same_type(text(Some(wanted)), text(found)),
        "mac-address" => text(Some(wanted)).eq_ignore_ascii_case(text(found)),
        "controller" => text(Some(wanted)) == text(found),
        _ => return below(key, wanted, found, place),
    };
    (!satisfied).then(|| unmet(place, key, wanted, found))
}

fn ip(key: &str, wanted: &Value, found: Option<&Value>, place: &Place) -> Option<Unmet> {
    let (Some(wanted), place) = (wanted.as_object(), place.below(key)) else { return None };
    let empty = Map::new();
    let found = found.and_then(Value::as_object).unwrap_or(&empty);
    let enabled = |map: &Map<String, Value>| map.get("enabled").and_then(scalar::truth);
    let is_enabled = enabled(found).unwrap_or(false);
    match enabled(wanted) {
        Some(want_enabled) if want_enabled != is_enabled => {
            return Some(unmet(&place, "enabled", &Value::from(want_enabled), found.get("enabled")));
        }
        // Without a word about `enabled`, addresses for a disabled stack are held back, not refused.
        _ if !is_enabled => return None,
        _ => {}
    }
    let is_auto =
        ["dhcp", "autoconf"].iter().any(|key| found.get(*key).and_then(scalar::truth) == Some(true));
    wanted.iter().filter(|(_, wanted)| !wanted.is_null()).find_map(|(key, wanted)| match key.as_str() {
        "enabled" | "allow-extra-address" => None,
        key if key.starts_with("auto-") && !is_auto => None,
        "address" => wanted.as_array().into_iter().flatten().enumerate().find_map(|(index, wanted)| {
            let addresses = found.get("address").and_then(Value::as_array).into_iter().flatten();
            let there =
                is_link_local(wanted) || addresses.into_iter().any(|found| same_address(wanted, found));
            (!there).then(|| Unmet {
                place: place.below("address").entry(index),
                wanted: shown("address", wanted),
                found: shown("address", found.get("address").unwrap_or(&Value::Null)),
            })
        }),
        "dhcp" | "autoconf" if scalar::truth(wanted) == Some(false) && !found.contains_key(key) => None,
        key => below(key, wanted, found.get(key), &place),
    })
}

fn is_link_local(address: &Value) -> bool {
    address.get("ip").and_then(Value::as_str).is_some_and(|ip| ip.to_ascii_lowercase().starts_with("fe80:"))
}

fn same_address(a: &Value, b: &Value) -> bool {
    let ip = |address: &Value| parse_ip(address.get("ip")?.as_str()?).ok();
    let prefix = |address: &Value| scalar::number(address.get("prefix-length")?);
    ip(a).is_some() && ip(a) == ip(b) && prefix(a) == prefix(b)
}

/// Everything inside `wanted` is inside `found`.
fn below(key: &str, wanted: &Value, found: Option<&Value>, place: &Place) -> Option<Unmet> {
    match (wanted, found) {
        (Value::Null, _) => None,
        (Value::Object(wanted), None) if wanted.is_empty() => None,
        (Value::Object(wanted), Some(Value::Object(found))) => {
            wanted.iter().find_map(|(below_key, wanted)| {
                // A key may be asked for by its other name, and is always shown by its main one.
                let (found, place) = (found.get(main_key(below_key)), place.below(key));
                if below_key == PERMISSION {
                    return None;
                }
                if below_key == "vfs" {
                    return (!has_functions(wanted, found)).then(|| unmet(&place, below_key, wanted, found));
                }
                if main_key(key) == "port" && below_key == "vlan" {
                    return (!same_vlans_of_port(wanted, found))
                        .then(|| unmet(&place, below_key, wanted, found));
                }
                below(below_key, wanted, found, &place)
            })
        }
        (Value::Array(wanted_list), Some(Value::Array(found_list))) => {
            let wanted_list = in_order(wanted_list);
            let found_list = in_order(found_list);
            let equal = wanted_list.len() == found_list.len()
                && wanted_list
                    .iter()
                    .zip(&found_list)
                    .all(|(wanted, found)| below(key, wanted, Some(found), place).is_none());
            (!equal).then(|| unmet(place, key, wanted, found))
        }
        (wanted, Some(found)) if scalar::same(wanted, found) => None,
        (_, Some(Value::String(found))) if found == secrets::HIDDEN => None,
        (wanted, found) => Some(unmet(place, key, wanted, found)),
    }
}

/// The VLANs of a port are desired as a whole: a key that is left out is not desired, and an empty map asks for no
/// filtering.
fn same_vlans_of_port(wanted: &Value, found: Option<&Value>) -> bool {
    let said = |vlans: Option<&Value>| -> Map<String, Value> {
        let vlans = vlans.and_then(Value::as_object).cloned().unwrap_or_default();
        // Open vSwitch reports a tag of zero where there is none.
        let is_default = |key: &str, value: &Value| match key {
            "enable-native" => scalar::truth(value) == Some(false),
            "tag" => scalar::number(value) == Some(0),
            _ => false,
        };
        vlans.into_iter().filter(|(key, value)| !value.is_null() && !is_default(key, value)).collect()
    };
    let (wanted, found) = (said(Some(wanted)), said(found));
    let place = Place::document();
    let all_of = |these: &Map<String, Value>, those: &Map<String, Value>| {
        these.iter().all(|(key, value)| match key.as_str() {
            "trunk-tags" => tags(Some(value)) == tags(those.get(key)),
            key => below(key, value, those.get(key), &place).is_none(),
        })
    };
    all_of(&wanted, &found) && all_of(&found, &wanted)
}

/// The numbers of a trunk: ten in a row may be written as a range, or one by one.
fn tags(list: Option<&Value>) -> BTreeSet<i64> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.flat_map(|tag| {
        let number = |value: &Value, key: &str| value.get(key).and_then(scalar::number);
        let (first, last) = match tag.get("id-range") {
            Some(range) => (number(range, "min"), number(range, "max")),
            None => (number(tag, "id"), number(tag, "id")),
        };
        // There are no more than these; what is beyond has been refused, and must not fill the memory.
        first.unwrap_or(1).max(0)..=last.unwrap_or(0).min(4095)
    })
    .collect()
}

/// Ports, by name or as maps with a name, in an order that does not depend on who wrote them down.
fn in_order(list: &[Value]) -> Vec<&Value> {
    let name = |entry: &Value| entry.get("name").unwrap_or(entry).as_str().map(str::to_owned);
    let mut sorted: Vec<_> = list.iter().collect();
    if list.iter().all(|entry| name(entry).is_some()) {
        sorted.sort_by_key(|entry| name(entry));
    }
    sorted
}

/// The routes that are unmet, by their place in the list.
pub(crate) fn routes(desired: &NetworkState, current: &NetworkState) -> Vec<(usize, Unmet)> {
    entries(
        "routes.config",
        desired.routes(RouteList::Config).map(routing::canonical_route_or_as_written).collect(),
        current.routes(RouteList::Config).map(routing::canonical_route_or_as_written).collect(),
    )
}

/// The rules that are unmet, by their place in the list.
pub(crate) fn rules(desired: &NetworkState, current: &NetworkState) -> Vec<(usize, Unmet)> {
    entries(
        "route-rules.config",
        desired.route_rules().map(routing::canonical_rule_or_as_written).collect(),
        current.route_rules().map(routing::canonical_rule_or_as_written).collect(),
    )
}

#[expect(clippy::needless_pass_by_value, reason = "both lists are made for this call")]
fn entries(list: &str, desired: Vec<Document>, current: Vec<Document>) -> Vec<(usize, Unmet)> {
    let unmet = desired.iter().enumerate().filter_map(|(index, wanted)| {
        let place = Place::key(list).entry(index);
        let there = current.iter().find(|found| routing::matches(wanted, found));
        let unmet = match (is_absent(wanted), there) {
            _ if is_ignored(wanted) => return None,
            (true, Some(found)) => {
                let asked_for =
                    desired.iter().any(|other| !is_absent(other) && routing::matches(other, found));
                (!asked_for).then(|| Unmet {
                    place,
                    wanted: "nothing that matches".to_owned(),
                    found: shown(list, &Value::Object(found.clone())),
                })
            }
            (false, None) => Some(Unmet {
                place,
                wanted: shown(list, &Value::Object(wanted.clone())),
                found: "nothing like it".to_owned(),
            }),
            _ => None,
        };
        Some((index, unmet?))
    });
    unmet.collect()
}

pub(crate) fn resolver(desired: &NetworkState, current: &NetworkState) -> Option<Unmet> {
    let wanted = desired.resolver_config()?;
    let empty = Map::new();
    let found = current.resolver_config().unwrap_or(&empty);
    let keys = ["server", "search", "options"];
    let named: Vec<_> =
        keys.into_iter().filter(|key| wanted.get(*key).is_some_and(|v| !v.is_null())).collect();
    // An empty section asks for an empty configuration.
    let looked_at = if named.is_empty() { keys.to_vec() } else { named };
    looked_at.into_iter().find_map(|key| {
        let list =
            |map: &Map<String, Value>| map.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
        let (wanted, found) = (list(wanted), list(found));
        let canonical = |entries: &[Value]| -> Vec<String> {
            let words = entries.iter().map(|entry| entry.as_str().unwrap_or_default());
            words.map(|word| parse_server(word).unwrap_or_else(|_| word.to_owned())).collect()
        };
        (canonical(&wanted) != canonical(&found)).then(|| {
            unmet(&Place::key("dns-resolver.config"), key, &Value::Array(wanted), Some(&Value::Array(found)))
        })
    })
}

/// What the database of Open vSwitch has for the whole machine. An empty map asks for nothing to be in it, and a key
/// without a value for that key not to be.
pub(crate) fn open_vswitch(desired: &NetworkState, current: &NetworkState) -> Option<Unmet> {
    let section = |state: &NetworkState| state.sections().get("ovs-db").and_then(Value::as_object).cloned();
    let found = section(current).unwrap_or_default();
    section(desired)?.iter().find_map(|(column, wanted)| {
        let wanted = wanted.as_object()?;
        let empty = Map::new();
        let found = found.get(column).and_then(Value::as_object).unwrap_or(&empty);
        let is_met = |(key, wanted): (&String, &Value)| match (wanted, found.get(key)) {
            (Value::Null, found) => found.is_none(),
            (wanted, Some(found)) => scalar::same(wanted, found),
            (_, None) => false,
        };
        let met = if wanted.is_empty() { found.is_empty() } else { wanted.iter().all(is_met) };
        let found = Value::Object(found.clone());
        (!met).then(|| unmet(&Place::key("ovs-db"), column, &Value::Object(wanted.clone()), Some(&found)))
    })
}

/// Which bridge stands for which network of OVN.
pub(crate) fn ovn(desired: &NetworkState, current: &NetworkState) -> Option<Unmet> {
    let mappings = |state: &NetworkState| -> Vec<Value> {
        let section = state.sections().get("ovn").and_then(|ovn| ovn.get("bridge-mappings"));
        section.and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let all = mappings(current);
    mappings(desired).iter().enumerate().find_map(|(index, wanted)| {
        let found = all.iter().find(|found| found["localnet"] == wanted["localnet"]);
        let met = match found {
            None => wanted["state"] == "absent",
            Some(found) => wanted["state"] != "absent" && found["bridge"] == wanted["bridge"],
        };
        let place = Place::key("ovn.bridge-mappings").entry(index);
        (!met).then(|| unmet(&place, "bridge", &wanted["bridge"], found.map(|found| &found["bridge"])))
    })
}

pub(crate) fn hostname(desired: &NetworkState, current: &NetworkState) -> Option<Unmet> {
    let found = current.hostname();
    desired.hostname()?.iter().find_map(|(key, wanted)| {
        below(key, wanted, found.and_then(|found| found.get(key)), &Place::key("hostname"))
    })
}

fn text(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}

fn unmet(place: &Place, key: &str, wanted: &Value, found: Option<&Value>) -> Unmet {
    Unmet {
        place: place.below(key),
        wanted: shown(key, wanted),
        found: found.map_or_else(|| "nothing".to_owned(), |found| shown(key, found)),
    }
}

/// The longest value that an error shows; the rest is in the document.
const SHOWN_LENGTH: usize = 200;

fn shown(key: &str, value: &Value) -> String {
    if secrets::is_secret(key, value) {
        return "(a secret)".to_owned();
    }
    let mut value = value.clone();
    secrets::hide(&mut value);
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_LENGTH) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}
