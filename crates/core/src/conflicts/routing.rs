//! Routes and rules: lists that nmstate merges entry by entry, so only entries with the same identity can conflict.

use std::collections::BTreeMap;

use knmstate_document::{
    Document,
    address::{IpNet, parse_network},
    config_routes, config_rules, is_absent,
    routing::{
        canonical_route_or_as_written, canonical_rule_or_as_written, claim_the_same_place, is_same_route,
        is_same_rule, matches, route_name,
    },
    scalar::same_value,
    text,
};

use super::{Conflict, Open, compare::shown};

struct Entry<'a> {
    written: &'a Document,
    /// In the one spelling.
    canonical: Document,
    is_open: bool,
    /// Entries of different networks cannot conflict. `None` if it may conflict with any.
    network: Option<IpNet>,
}

pub(super) fn conflict(here: &Document, there: &Document, open: Open) -> Option<Conflict> {
    let network_of =
        |entry: &Document, key| parse_network(text(entry, key)).ok().map(|network| network.trunc());
    let routes = |document| {
        config_routes(document).map(move |route| Entry {
            written: route,
            canonical: canonical_route_or_as_written(route),
            is_open: is_open(route),
            network: network_of(route, "destination"),
        })
    };
    let rules = |document| {
        config_rules(document).map(move |rule| Entry {
            written: rule,
            canonical: canonical_rule_or_as_written(rule),
            is_open: is_open(rule),
            network: network_of(rule, "ip-from").filter(|_| !is_open(rule)),
        })
    };
    first(routes(here), &routes(there).collect::<Vec<_>>(), open, "routes", route_name, |one, other| {
        if is_same_route(one, other) {
            return difference(one, other, |key| key == "metric");
        }
        let is_compared =
            |key: &str| !["state", "destination", "next-hop-interface", "table-id"].contains(&key);
        claim_the_same_place(one, other).then(|| difference(one, other, is_compared)).flatten()
    })
    .or_else(|| {
        first(rules(here), &rules(there).collect::<Vec<_>>(), open, "route-rules", rule_name, |one, other| {
            is_same_rule(one, other).then(|| difference(one, other, |key| key != "state")).flatten()
        })
    })
}

/// The first conflict between entries of a section. Only entries of the same network are compared, because a document may
/// have thousands.
fn first<'a>(
    here: impl Iterator<Item = Entry<'a>>,
    there: &[Entry<'a>],
    open: Open,
    section: &str,
    name: fn(&Document) -> String,
    difference: impl Fn(&Document, &Document) -> Option<Difference>,
) -> Option<Conflict> {
    let counts = |entry: &Entry<'_>| !entry.is_open || open == Open::Differs;
    let mut by_network: BTreeMap<Option<IpNet>, Vec<usize>> = BTreeMap::new();
    for (index, entry) in there.iter().enumerate().filter(|(_, entry)| counts(entry)) {
        by_network.entry(entry.network).or_default().push(index);
    }
    for one in here.filter(counts) {
        let mut candidates: Vec<usize> = match one.network {
            Some(_) => {
                [one.network, None].iter().filter_map(|key| by_network.get(key)).flatten().copied().collect()
            }
            None => by_network.values().flatten().copied().collect(),
        };
        candidates.sort_unstable();
        for other in candidates.into_iter().filter_map(|index| there.get(index)) {
            let named = if is_absent(one.written) { other.written } else { one.written };
            let path = || format!("{section}.config[{}]", name(named));
            let removal =
                |values: [&str; 2]| Conflict { path: path(), values: Some(values.map(str::to_owned)) };
            let found = if one.is_open || other.is_open {
                (!is_elsewhere(one.written, other.written)).then(|| removal(["not known", "not known"]))
            } else {
                match (is_absent(one.written), is_absent(other.written)) {
                    (true, false) => {
                        matches(&one.canonical, &other.canonical).then(|| removal(["absent", "wanted"]))
                    }
                    (false, true) => {
                        matches(&other.canonical, &one.canonical).then(|| removal(["wanted", "absent"]))
                    }
                    (false, false) => difference(&one.canonical, &other.canonical).map(|(key, values)| {
                        Conflict { path: format!("{}.{key}", path()), values: Some(values) }
                    }),
                    (true, true) => None,
                }
            };
            if found.is_some() {
                return found;
            }
        }
    }
    None
}

/// The key that two entries set to different values, and the values.
type Difference = (String, [String; 2]);

fn difference(one: &Document, other: &Document, is_compared: impl Fn(&str) -> bool) -> Option<Difference> {
    let both = one
        .iter()
        .filter(|(key, _)| is_compared(key))
        .filter_map(|(key, value)| Some((key, value, other.get(key)?)));
    let mut different = both.filter(|(_, value, other)| !same_value(value, other));
    different.next().map(|(key, value, other)| (key.clone(), [shown(value), shown(other)]))
}

/// Whether two routes have different destinations, whatever their references are filled with.
fn is_elsewhere(one: &Document, other: &Document) -> bool {
    let destination = |route| parse_network(text(route, "destination")).ok().map(|network| network.trunc());
    matches!((destination(one), destination(other)), (Some(one), Some(other)) if one != other)
}

fn is_open(entry: &Document) -> bool {
    entry.values().any(|value| value.as_str().is_some_and(|text| text.contains("{{")))
}

fn rule_name(rule: &Document) -> String {
    let names = ["ip-from", "ip-to", "iif"].into_iter().filter_map(|key| {
        let value = text(rule, key);
        (!value.is_empty()).then(|| format!("{key} {value}"))
    });
    let name = names.collect::<Vec<_>>().join(", ");
    if name.is_empty() { "any packet".to_owned() } else { name }
}
