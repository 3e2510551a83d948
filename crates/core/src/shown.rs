//! The part of a node's network that is reported.
//!
//! | part | what is reported |
//! |---|---|
//! | the document | `interfaces`, always; `routes`, `dns-resolver`, `ovn`, `hostname`; `route-rules` and `ovs-db` if there are any |
//! | interfaces | all except unmanaged veths, which are those of pods |
//! | an interface | everything except values that change by themselves: see `TIMERS` and `LIFETIMES` |
//! | routes | those through a reported interface, and those without an interface, such as blackholes |
//! | name servers | `server`, `search`, and `options` if there are any |
//! | OVN | `localnet`, `bridge` and `state` of each mapping |
//!
//! These are the rules of kubernetes-nmstate, because users compare the text with that of before. In addition everything
//! that can be configured is reported, also what that project leaves out: route rules, host name, resolver options,
//! routes without an interface.
//!
//! Other values in the output of nmstate 2.2.62 change only when something has happened (an LLDP neighbour, the speed of
//! a link, an address that the kernel generated), and are reported. It has no counters, and no expiry times of routes.
//!
//! Two readings of the same network give the same document, whatever order the kernel lists it in: lists whose order
//! does not matter are sorted. Addresses and name servers are not, because the first one is preferred.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use knmstate_document::{Document, MAIN_TABLE, interfaces, objects, text};

/// Timers in the options of a Linux bridge, which change all the time.
const TIMERS: [&str; 2] = ["gc-timer", "hello-timer"];

/// Lifetimes of dynamic addresses, which change all the time.
const LIFETIMES: [&str; 2] = ["preferred-life-time", "valid-life-time"];

/// The lists of an interface whose order does not matter. nmstate sorts most of them, but does not guarantee it.
const SETS: [&[&str]; 5] = [
    &["alt-names"],
    &["bridge", "port"],
    &["link-aggregation", "port"],
    &["link-aggregation", "ports-config"],
    &["vrf", "port"],
];

/// The part of an observed network that is reported.
pub fn shown(observed: &Document) -> Document {
    let mut kept: Vec<Document> =
        interfaces(observed).filter(|interface| !is_of_a_pod(interface)).map(shown_interface).collect();
    kept.sort_by(|one, other| {
        (text(one, "name"), text(one, "type")).cmp(&(text(other, "name"), text(other, "type")))
    });
    let names = kept.iter().map(|interface| text(interface, "name"));
    let names: BTreeSet<&str> = names.filter(|name| !name.is_empty()).collect();

    let routes = section(observed, "routes", &["running", "config"], |list| shown_routes(list, &names));
    let resolver = section(observed, "dns-resolver", &["running", "config"], shown_resolver);
    let mut document = Map::from_iter([("interfaces".to_owned(), json!(kept))]);
    document.extend(routes.map(|routes| ("routes".to_owned(), routes)));
    document.extend(resolver.map(|resolver| ("dns-resolver".to_owned(), resolver)));
    document.extend(shown_ovn(observed).map(|ovn| ("ovn".to_owned(), ovn)));
    document
        .extend(shown_rules(observed).map(|rules| ("route-rules".to_owned(), json!({ "config": rules }))));
    let hostname = section(observed, "hostname", &["running", "config"], Value::clone);
    document.extend(hostname.filter(is_something).map(|hostname| ("hostname".to_owned(), hostname)));
    let database = section(observed, "ovs-db", &["external_ids", "other_config"], Value::clone);
    let has_entries =
        |database: &Value| database.as_object().is_some_and(|all| all.values().any(is_something));
    document.extend(database.filter(has_entries).map(|database| ("ovs-db".to_owned(), database)));
    document
}

fn is_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(entries) => !entries.is_empty(),
        Value::Object(entries) => !entries.is_empty(),
        _ => true,
    }
}

fn is_of_a_pod(interface: &Document) -> bool {
    text(interface, "type") == "veth" && text(interface, "state") == "ignore"
}

fn shown_interface(observed: &Document) -> Document {
    let mut interface = observed.clone();
    force_text(&mut interface, "name");
    force_text(&mut interface, "type");
    if text(&interface, "type") == "linux-bridge"
        && let Some(options) = below(&mut interface, &["bridge", "options"]).and_then(Value::as_object_mut)
    {
        options.retain(|key, _| !TIMERS.contains(&key.as_str()));
    }
    for family in ["ipv4", "ipv6"] {
        for address in
            below(&mut interface, &[family, "address"]).and_then(Value::as_array_mut).into_iter().flatten()
        {
            if let Some(address) = address.as_object_mut() {
                address.retain(|key, _| !LIFETIMES.contains(&key.as_str()));
            }
        }
    }
    for path in SETS {
        if let Some(entries) = below(&mut interface, path).and_then(Value::as_array_mut) {
            entries.sort_by(|one, other| entry_name(one).cmp(entry_name(other)));
        }
    }
    interface
}

/// The value at the end of a path of keys.
fn below<'a>(object: &'a mut Document, path: &[&str]) -> Option<&'a mut Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(object.get_mut(*first)?, |value, key| value.get_mut(*key))
}

/// The name of an entry in a list of names, which is a string or an object with a name.
fn entry_name(entry: &Value) -> &str {
    entry.as_str().or_else(|| entry.get("name")?.as_str()).unwrap_or_default()
}

/// Makes a value a string if it is missing or has another type: an interface name such as 7 may be a number.
fn force_text(object: &mut Document, key: &str) {
    let forced = match object.get(key) {
        Some(Value::String(_)) => return,
        None | Some(Value::Null) => String::new(),
        Some(other) => other.to_string(),
    };
    object.insert(key.to_owned(), Value::String(forced));
}

/// The given keys of a section, each mapped by `part`; `None` if there is no such section.
fn section(document: &Document, name: &str, keys: &[&str], part: impl Fn(&Value) -> Value) -> Option<Value> {
    let section = document.get(name)?.as_object()?;
    let parts = keys.iter().filter_map(|key| Some(((*key).to_owned(), part(section.get(*key)?))));
    Some(Value::Object(parts.collect()))
}

fn shown_routes(list: &Value, names: &BTreeSet<&str>) -> Value {
    let mut routes: Vec<Document> = objects(Some(list)).cloned().collect();
    let has_no_interface =
        |route: &Document| route.contains_key("route-type") && text(route, "next-hop-interface").is_empty();
    for route in &mut routes {
        force_text(route, "destination");
        if !has_no_interface(route) {
            force_text(route, "next-hop-interface");
        }
    }
    routes.retain(|route| names.contains(text(route, "next-hop-interface")) || has_no_interface(route));
    routes.sort_by_cached_key(|route| {
        let number = |key| route.get(key).and_then(Value::as_i64);
        let table = route.get("table-id").and_then(Value::as_u64).unwrap_or(MAIN_TABLE);
        (table, text(route, "destination").to_owned(), number("metric"), everything(route))
    });
    json!(routes)
}

/// Route rules are sorted by priority; the order of equal priorities does not matter, but has to be stable.
fn shown_rules(observed: &Document) -> Option<Vec<Document>> {
    let mut rules: Vec<Document> = objects(observed.get("route-rules")?.get("config")).cloned().collect();
    rules.sort_by_cached_key(|rule| (rule.get("priority").and_then(Value::as_i64), everything(rule)));
    Some(rules).filter(|rules| !rules.is_empty())
}

fn everything(entry: &Document) -> BTreeMap<String, String> {
    entry.iter().map(|(key, value)| (key.clone(), value.to_string())).collect()
}

fn shown_resolver(resolver: &Value) -> Value {
    let mut shown = pick(resolver, &["server", "search"]);
    if let Some(options) = resolver.get("options").filter(|options| is_something(options)) {
        shown["options"] = options.clone();
    }
    shown
}

/// Empty if there are no mappings, as in the output of nmstate when Open vSwitch runs.
fn shown_ovn(observed: &Document) -> Option<Value> {
    let ovn = observed.get("ovn")?.as_object()?;
    let mut mappings: Vec<Value> = objects(ovn.get("bridge-mappings"))
        .map(|mapping| pick(&json!(mapping), &["localnet", "bridge", "state"]))
        .collect();
    mappings.sort_by_cached_key(|mapping| mapping["localnet"].to_string());
    Some(if mappings.is_empty() { json!({}) } else { json!({ "bridge-mappings": mappings }) })
}

fn pick(object: &Value, keys: &[&str]) -> Value {
    let picked = keys.iter().filter_map(|key| Some(((*key).to_owned(), object.get(*key)?.clone())));
    Value::Object(picked.collect())
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::observed;
