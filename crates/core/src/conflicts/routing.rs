//! Routes and rules: lists that nmstate merges entry by entry, so only entries with the same identity can conflict.

use knmstate_document::{
    Document,
    address::parse_network,
    config_routes, config_rules, is_absent,
    routing::{
        canonical_route_or_as_written, canonical_rule_or_as_written, claim_the_same_place, is_same_route,
        is_same_rule, matches, route_name,
    },
    scalar::same_value,
    text,
};

use super::{Conflict, Open, compare::shown};

/// An entry as it is written, and in the one spelling.
type Entry<'a> = (&'a Document, Document);

pub(super) fn conflict(here: &Document, there: &Document, open: Open) -> Option<Conflict> {
    let routes =
        |document| config_routes(document).map(|route| (route, canonical_route_or_as_written(route)));
    let rules = |document| config_rules(document).map(|rule| (rule, canonical_rule_or_as_written(rule)));
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

/// The first conflict between entries of a section.
fn first<'a>(
    here: impl Iterator<Item = Entry<'a>>,
    there: &[Entry<'a>],
    open: Open,
    section: &str,
    name: fn(&Document) -> String,
    difference: impl Fn(&Document, &Document) -> Option<Difference>,
) -> Option<Conflict> {
    for (one, canonical_one) in here {
        for (other, canonical_other) in there {
            let path = || format!("{section}.config[{}]", name(if is_absent(one) { other } else { one }));
            let removal =
                |values: [&str; 2]| Conflict { path: path(), values: Some(values.map(str::to_owned)) };
            let found = if is_open(one) || is_open(other) {
                (open == Open::Differs && !is_elsewhere(one, other))
                    .then(|| removal(["not known", "not known"]))
            } else {
                match (is_absent(one), is_absent(other)) {
                    (true, false) => {
                        matches(&canonical_one, canonical_other).then(|| removal(["absent", "wanted"]))
                    }
                    (false, true) => {
                        matches(canonical_other, &canonical_one).then(|| removal(["wanted", "absent"]))
                    }
                    (false, false) => difference(&canonical_one, canonical_other).map(|(key, values)| {
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
