//! What is left out of a report that is too large to store.
//!
//! The least useful parts are left out first, step by step in the order of `STEPS`, until the report fits. A step is
//! always done as a whole: half of a list would be another half with every change. The report lists what was left out.

use std::{collections::BTreeMap, io};

use serde::Serialize;
use serde_json::{Map, Value};

use knmstate_document::{Document, is_default_route, objects, text};

/// The maximum size of the JSON of a reported network. etcd accepts requests of up to 1.5 MiB; a third of that is for the
/// rest of the object and for what the API server adds.
pub const BUDGET: usize = 1024 * 1024;

/// How many addresses of each family are kept when there are too many.
const FIRST_ADDRESSES: usize = 16;

/// The keys that are kept of an interface without its details.
const STUB: [&str; 4] = ["name", "type", "state", "controller"];

/// A part to leave out.
struct Step {
    /// Removes the part, and returns descriptions of what was removed.
    cut: fn(&mut Document) -> Vec<String>,
    /// Earlier steps whose descriptions this one replaces.
    covers: &'static [&'static str],
    name: &'static str,
}

const STEPS: [Step; 16] = [
    step("unmanaged details", cut_unmanaged_details, &[]),
    step("running routes", |state| cut_routes(state, "running", "running"), &[]),
    step("ethtool", |state| cut_key(state, &["ethtool"], "the ethtool settings"), &[]),
    step("lldp", |state| cut_key(state, &["lldp", "neighbors"], "the LLDP neighbours"), &[]),
    step("functions", |state| cut_key(state, &["ethernet", "sr-iov", "vfs"], "the virtual functions"), &[]),
    step("vlans", cut_port_vlans, &[]),
    step("config routes", |state| cut_routes(state, "config", "configured"), &[]),
    step("ovn", cut_ovn, &[]),
    step("plain details", cut_plain_details, &["unmanaged details"]),
    step("unmanaged", cut_unmanaged, &["unmanaged details"]),
    step("addresses", cut_addresses, &[]),
    step("details", cut_details, &["plain details", "ethtool", "lldp", "functions", "vlans"]),
    step("names", cut_to_names, &["unmanaged details", "plain details", "addresses", "details"]),
    step("default routes", cut_all_routes, &["running routes", "config routes"]),
    step("resolver", cut_resolver, &[]),
    step("interfaces", cut_all_interfaces, &["names"]),
];

const fn step(
    name: &'static str,
    cut: fn(&mut Document) -> Vec<String>,
    covers: &'static [&'static str],
) -> Step {
    Step { cut, covers, name }
}

/// The state in at most `bytes` of JSON, and descriptions of what was left out. `bytes` must be at least two.
pub fn fit(mut state: Document, bytes: usize) -> (Document, Vec<String>) {
    let mut omitted: Vec<(&str, String)> = Vec::new();
    for step in &STEPS {
        if size(&state) <= bytes {
            break;
        }
        let descriptions = (step.cut)(&mut state);
        if !descriptions.is_empty() {
            omitted.retain(|(earlier, _)| !step.covers.contains(earlier));
            omitted.extend(descriptions.into_iter().map(|text| (step.name, text)));
        }
    }
    if size(&state) > bytes {
        state.clear();
    }
    (state, omitted.into_iter().map(|(_, text)| text).collect())
}

/// The length of the JSON text.
pub fn size(value: &impl Serialize) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Documents and objects of the API can always be serialized, and counting cannot fail.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

fn cut_unmanaged_details(state: &mut Document) -> Vec<String> {
    let types = reduce(state, |interface| is_unmanaged(interface) && is_plain(interface), stub);
    types.iter().map(|(type_, count)| format!("{}: {ALL_BUT_STUB}", unmanaged(*count, type_))).collect()
}

fn cut_plain_details(state: &mut Document) -> Vec<String> {
    let count = reduce(state, is_plain, stub).values().sum();
    describe(count, |count| {
        format!("{} without addresses and ports: {ALL_BUT_STUB}", count_of(count, "interface"))
    })
}

fn cut_unmanaged(state: &mut Document) -> Vec<String> {
    let mut types = BTreeMap::new();
    let Some(list) = state.get_mut("interfaces").and_then(Value::as_array_mut) else { return Vec::new() };
    list.retain(|interface| match interface.as_object() {
        Some(interface) if is_unmanaged(interface) && is_plain(interface) => {
            *types.entry(text(interface, "type").to_owned()).or_insert(0_usize) += 1;
            false
        }
        _ => true,
    });
    types.iter().map(|(type_, count)| unmanaged(*count, type_)).collect()
}

fn cut_details(state: &mut Document) -> Vec<String> {
    let keep = |interface: &Document| {
        let mut kept = stub(interface);
        for key in ["ipv4", "ipv6"] {
            if let Some(family) = interface.get(key).and_then(Value::as_object) {
                kept.insert(key.to_owned(), pick(family, &["enabled", "address"]).into());
            }
        }
        for key in CONTROLLERS {
            if let Some(controller) = interface.get(key).and_then(Value::as_object) {
                let mut ports = pick(controller, &["port"]);
                for port in ports.get_mut("port").and_then(Value::as_array_mut).into_iter().flatten() {
                    if let Some(object) = port.as_object() {
                        *port = pick(object, &["name"]).into();
                    }
                }
                kept.insert(key.to_owned(), ports.into());
            }
        }
        kept
    };
    let count = reduce(state, |_| true, keep).values().sum();
    describe(count, |count| {
        format!(
            "{}: all but name, type, state, controller, ports and addresses",
            count_of(count, "interface")
        )
    })
}

fn cut_to_names(state: &mut Document) -> Vec<String> {
    let count = reduce(state, |_| true, |interface| pick(interface, &["name", "type"])).values().sum();
    describe(count, |count| format!("{}: all but name and type", count_of(count, "interface")))
}

fn cut_all_interfaces(state: &mut Document) -> Vec<String> {
    let count = interfaces_mut(state).count();
    state.insert("interfaces".to_owned(), Value::Array(Vec::new()));
    describe(count, |count| count_of(count, "interface"))
}

fn cut_key(state: &mut Document, path: &[&str], what: &str) -> Vec<String> {
    let count = interfaces_mut(state).filter_map(|interface| remove(interface, path)).count();
    describe(count, |count| format!("{what} of {}", count_of(count, "interface")))
}

fn cut_port_vlans(state: &mut Document) -> Vec<String> {
    let ports = interfaces_mut(state)
        .filter_map(|interface| interface.get_mut("bridge")?.get_mut("port")?.as_array_mut())
        .flatten();
    let count = ports.filter_map(|port| remove(port.as_object_mut()?, &["vlan"])).count();
    describe(count, |count| format!("the VLANs of {}", count_of(count, "bridge port")))
}

fn cut_addresses(state: &mut Document) -> Vec<String> {
    let mut descriptions = Vec::new();
    for interface in interfaces_mut(state) {
        let mut count = 0;
        for family in ["ipv4", "ipv6"] {
            let list = interface.get_mut(family).and_then(|family| family.get_mut("address")?.as_array_mut());
            if let Some(addresses) = list {
                count += addresses.len().saturating_sub(FIRST_ADDRESSES);
                addresses.truncate(FIRST_ADDRESSES);
            }
        }
        descriptions.extend(describe(count, |count| {
            format!("{} of {}", count_of(count, "further address"), text(interface, "name"))
        }));
    }
    descriptions
}

fn cut_routes(state: &mut Document, list: &str, called: &str) -> Vec<String> {
    let Some(routes) = state.get_mut("routes").and_then(|routes| routes.get_mut(list)?.as_array_mut()) else {
        return Vec::new();
    };
    let before = routes.len();
    routes.retain(|route| route.as_object().is_some_and(is_default_route));
    describe(before - routes.len(), |count| {
        format!("{} other than default ones", count_of(count, &format!("{called} route")))
    })
}

fn cut_all_routes(state: &mut Document) -> Vec<String> {
    describe(usize::from(state.remove("routes").is_some()), |_| "all routes".to_owned())
}

fn cut_resolver(state: &mut Document) -> Vec<String> {
    describe(usize::from(state.remove("dns-resolver").is_some()), |_| "the name servers".to_owned())
}

fn cut_ovn(state: &mut Document) -> Vec<String> {
    let count = state.remove("ovn").map_or(0, |ovn| objects(ovn.get("bridge-mappings")).count());
    describe(count, |count| format!("{} of OVN", count_of(count, "bridge mapping")))
}

const ALL_BUT_STUB: &str = "all but name, type, state and controller";

/// The keys that may have the ports of an interface.
const CONTROLLERS: [&str; 3] = ["bridge", "link-aggregation", "vrf"];

fn is_unmanaged(interface: &Document) -> bool {
    text(interface, "state") == "ignore"
}

/// Whether an interface has neither addresses nor ports.
fn is_plain(interface: &Document) -> bool {
    let has = |key: &str, list: &str| {
        interface.get(key).and_then(|part| part.get(list)?.as_array()).is_some_and(|list| !list.is_empty())
    };
    !has("ipv4", "address") && !has("ipv6", "address") && !CONTROLLERS.iter().any(|key| has(key, "port"))
}

fn stub(interface: &Document) -> Document {
    pick(interface, &STUB)
}

fn pick(object: &Document, keys: &[&str]) -> Document {
    let picked = keys.iter().filter_map(|key| Some(((*key).to_owned(), object.get(*key)?.clone())));
    Map::from_iter(picked.collect::<Vec<_>>())
}

/// Removes the value at the end of a path of keys.
fn remove(object: &mut Document, path: &[&str]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    parents.iter().try_fold(object, |object, key| object.get_mut(*key)?.as_object_mut())?.remove(*last)
}

/// Reduces interfaces to a part of their keys; returns the number of changed ones by type.
fn reduce(
    state: &mut Document,
    which: impl Fn(&Document) -> bool,
    part: impl Fn(&Document) -> Document,
) -> BTreeMap<String, usize> {
    let mut types = BTreeMap::new();
    for interface in interfaces_mut(state).filter(|interface| which(interface)) {
        let kept = part(interface);
        if kept != *interface {
            *types.entry(text(interface, "type").to_owned()).or_default() += 1;
            *interface = kept;
        }
    }
    types
}

fn interfaces_mut(state: &mut Document) -> impl Iterator<Item = &mut Document> {
    let list = state.get_mut("interfaces").and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

fn unmanaged(count: usize, type_: &str) -> String {
    format!("{} of type {type_}", count_of(count, "unmanaged interface"))
}

fn count_of(count: usize, thing: &str) -> String {
    match count {
        1 => format!("1 {thing}"),
        _ if thing.ends_with('s') => format!("{count} {thing}es"),
        _ => format!("{count} {thing}s"),
    }
}

fn describe(count: usize, describe: impl FnOnce(usize) -> String) -> Vec<String> {
    if count == 0 { Vec::new() } else { vec![describe(count)] }
}

#[cfg(test)]
mod tests;
