//! Routes and routing rules: one spelling, which of them are the same, and the wildcard match by which they are found.
//!
//! An entry is never changed in place. A desired one is added when none like it exists; one with `state: absent` is a
//! pattern that removes everything it matches, and a key that it does not name matches anything.
//!
//! # What identifies a route
//!
//! For nmstate a route is its destination, next hop, table and all other keys **but the metric**: it keeps one of two
//! that differ in their metric only, and takes a route with another metric for the desired one. So the metric is a
//! property of a route ([`is_same_route`]), and two documents that give the same route two metrics contradict each
//! other.
//!
//! The kernel has one place for each destination, table and metric. Two different routes that claim the same place
//! ([`claim_the_same_place`]) contradict each other as well; with different metrics one of them is the spare of the
//! other.

use serde_json::{Map, Value};

use crate::address::{IpNet, parse_ip, parse_network};
use crate::place::{InvalidDocument, Place};
use crate::{Document, scalar, text};

/// The routing table that a machine routes by unless a rule says otherwise.
pub const MAIN_TABLE: u64 = 254;

/// Whether a route leads everywhere, in either family, by the main table.
pub fn is_default_route(route: &Document) -> bool {
    matches!(text(route, "destination"), "0.0.0.0/0" | "::/0")
        && route.get("table-id").and_then(Value::as_u64).is_none_or(|table| table == 0 || table == MAIN_TABLE)
}

/// A route in the one spelling; keys that stand for "the default" are gone, and an empty gateway means "without".
pub fn canonical_route(
    route: &Map<String, Value>,
    place: &Place,
) -> Result<Map<String, Value>, InvalidDocument> {
    let mut canonical = without_nulls(route);
    // An empty one is a wildcard, like a missing one.
    if !drop_if(&mut canonical, "destination", |v| v.as_str() == Some("")) {
        rewrite_network(&mut canonical, "destination", place)?;
    }
    for key in ["next-hop-address", "source"] {
        if let Some(value) = canonical.get_mut(key) {
            let text = address(value, &place.below(key))?;
            if !text.is_empty() {
                let ip = parse_ip(text).map_err(|why| InvalidDocument::new(place.below(key), why))?;
                *value = Value::String(if ip.is_unspecified() { String::new() } else { ip.to_string() });
            }
        }
    }
    for key in ["table-id", "metric", "weight", "mtu"] {
        rewrite_number(&mut canonical, key, place)?;
    }
    drop_if(&mut canonical, "table-id", |v| v.as_i64() == Some(0));
    drop_if(&mut canonical, "metric", |v| v.as_i64() == Some(-1));
    Ok(canonical)
}

/// A rule in the one spelling, with the address family it belongs to.
pub fn canonical_rule(
    rule: &Map<String, Value>,
    place: &Place,
) -> Result<Map<String, Value>, InvalidDocument> {
    let mut canonical = without_nulls(rule);
    if let Some(length) = canonical.shift_remove("suppress_prefixlength") {
        canonical.insert("suppress-prefix-length".to_owned(), length);
    }
    for key in ["ip-from", "ip-to"] {
        if canonical.get(key).is_none_or(|v| v.as_str() == Some("")) {
            continue;
        }
        let network = rewrite_network(&mut canonical, key, place)?;
        let family = match network {
            Some(IpNet::V6(_)) => "ipv6",
            _ => "ipv4",
        };
        let said = canonical.entry("family").or_insert_with(|| Value::String(family.to_owned()));
        if said.as_str() != Some(family) {
            return Err(InvalidDocument::new(
                place.below(key),
                format!("this is an {family} network, but the rule is for {said}"),
            ));
        }
    }
    for key in ["priority", "route-table", "fwmark", "fwmask", "suppress-prefix-length"] {
        rewrite_number(&mut canonical, key, place)?;
    }
    drop_if(&mut canonical, "priority", |v| v.as_i64() == Some(-1));
    drop_if(&mut canonical, "route-table", |v| v.as_i64() == Some(0));
    Ok(canonical)
}

/// The route in the one spelling, or as it is written where that is not possible.
pub fn canonical_route_or_as_written(route: &Map<String, Value>) -> Map<String, Value> {
    canonical_route(route, &Place::document()).unwrap_or_else(|_| route.clone())
}

/// The rule in the one spelling, or as it is written where that is not possible.
pub fn canonical_rule_or_as_written(rule: &Map<String, Value>) -> Map<String, Value> {
    canonical_rule(rule, &Place::document()).unwrap_or_else(|_| rule.clone())
}

/// Whether two routes are the same one: equal in every key but the metric. Both in the one spelling.
pub fn is_same_route(one: &Map<String, Value>, other: &Map<String, Value>) -> bool {
    let mut keys = one.keys().chain(other.keys()).filter(|key| *key != "metric");
    keys.all(|key| same_or_both_missing(property(one, key), property(other, key)))
}

/// Whether two routes would be one in the kernel: the same destination, interface, table and metric. A metric that one
/// of them leaves to the machine may be any. Both in the one spelling.
pub fn claim_the_same_place(one: &Map<String, Value>, other: &Map<String, Value>) -> bool {
    ["destination", "next-hop-interface", "table-id", "vrf-name"]
        .into_iter()
        .all(|key| same_or_both_missing(property(one, key), property(other, key)))
        && same_or_any(one, other, "metric")
}

/// Whether two rules apply to the same packets with the same priority, so that only one of them has an effect. A
/// priority that one of them leaves to the machine may be any. Both in the one spelling.
pub fn is_same_rule(one: &Map<String, Value>, other: &Map<String, Value>) -> bool {
    ["ip-from", "ip-to", "family", "fwmark", "fwmask", "iif", "suppress-prefix-length"]
        .into_iter()
        .all(|key| same_or_both_missing(property(one, key), property(other, key)))
        && same_or_any(one, other, "priority")
}

/// What a key means. The main table, and no next hop, can be expressed by leaving the key out.
fn property<'a>(entry: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    let value = entry.get(key)?;
    let is_default = match key {
        "table-id" => scalar::number(value).and_then(|table| u64::try_from(table).ok()) == Some(MAIN_TABLE),
        _ => value.as_str() == Some(""),
    };
    (!is_default).then_some(value)
}

fn same_or_both_missing(one: Option<&Value>, other: Option<&Value>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => scalar::same(one, other),
        _ => false,
    }
}

fn same_or_any(one: &Map<String, Value>, other: &Map<String, Value>, key: &str) -> bool {
    one.get(key).zip(other.get(key)).is_none_or(|(one, other)| scalar::same(one, other))
}

/// Whether `entry` has everything that the desired entry or removal `pattern` names. Both in the one spelling. As in
/// nmstate, the metric of a route is not compared.
pub fn matches(pattern: &Map<String, Value>, entry: &Map<String, Value>) -> bool {
    pattern.iter().filter(|(key, _)| !matches!(key.as_str(), "state" | "metric")).all(|(key, wanted)| match (
        wanted.as_str(),
        entry.get(key),
    ) {
        (Some(""), Some(found)) => found.as_str() == Some(""),
        (_, Some(found)) => scalar::same(wanted, found),
        (_, None) => property(pattern, key).is_none(),
    })
}

/// A route in a few words: `10.0.0.0/8 via eth1`.
pub fn route_name(route: &Document) -> String {
    let via = text(route, "next-hop-interface");
    let destination = text(route, "destination");
    if via.is_empty() { destination.to_owned() } else { format!("{destination} via {via}") }
}

/// Whether the destination, gateway or rule belongs to IPv6.
pub fn is_ipv6(entry: &Map<String, Value>) -> bool {
    ["destination", "next-hop-address", "ip-from", "ip-to"]
        .into_iter()
        .filter_map(|key| entry.get(key)?.as_str())
        .any(|text| text.contains(':'))
        || entry.get("family").and_then(Value::as_str) == Some("ipv6")
}

fn without_nulls(entry: &Map<String, Value>) -> Map<String, Value> {
    entry
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn drop_if(entry: &mut Map<String, Value>, key: &str, unwanted: impl Fn(&Value) -> bool) -> bool {
    let drop = entry.get(key).is_some_and(unwanted);
    if drop {
        entry.shift_remove(key);
    }
    drop
}

fn address<'a>(value: &'a Value, place: &Place) -> Result<&'a str, InvalidDocument> {
    value.as_str().ok_or_else(|| InvalidDocument::new(place.clone(), format!("{value} is not an address")))
}

fn rewrite_network(
    entry: &mut Map<String, Value>,
    key: &str,
    place: &Place,
) -> Result<Option<IpNet>, InvalidDocument> {
    let Some(value) = entry.get_mut(key) else { return Ok(None) };
    let place = place.below(key);
    let network =
        parse_network(address(value, &place)?).map_err(|why| InvalidDocument::new(place, why))?.trunc();
    *value = Value::String(network.to_string());
    Ok(Some(network))
}

fn rewrite_number(entry: &mut Map<String, Value>, key: &str, place: &Place) -> Result<(), InvalidDocument> {
    if let Some(value) = entry.get_mut(key) {
        let number = scalar::number(value)
            .ok_or_else(|| InvalidDocument::new(place.below(key), format!("{value} is not a number")))?;
        *value = Value::from(number);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn route(document: &Value) -> Map<String, Value> {
        canonical_route(document.as_object().expect("a map"), &Place::key("r")).expect("a good route")
    }

    #[test]
    fn a_pattern_matches_what_has_all_it_names() {
        let there = route(&json!({
            "destination": "198.51.100.0/24", "next-hop-interface": "eth1",
            "next-hop-address": "192.0.2.1", "metric": 100, "table-id": 254
        }));
        let direct = route(&json!({
            "destination": "198.51.100.0/24", "next-hop-interface": "eth1", "table-id": 254
        }));
        for (pattern, matches_there, matches_direct) in [
            (json!({ "state": "absent" }), true, true),
            (json!({ "next-hop-interface": "eth1" }), true, true),
            (json!({ "next-hop-interface": "eth2" }), false, false),
            (json!({ "destination": "198.51.100.77/24" }), true, true),
            (json!({ "destination": "", "table-id": 0, "metric": 7 }), true, true),
            (json!({ "table-id": "254" }), true, true),
            (json!({ "table-id": 100 }), false, false),
            (json!({ "metric": 200 }), true, true),
            (json!({ "next-hop-address": "192.0.2.1" }), true, false),
            (json!({ "next-hop-address": "" }), false, true),
            (json!({ "next-hop-address": "0.0.0.0" }), false, true),
            (json!({ "next-hop-address": null }), true, true),
        ] {
            let pattern = route(&pattern);
            assert_eq!(matches(&pattern, &there), matches_there, "{pattern:?}");
            assert_eq!(matches(&pattern, &direct), matches_direct, "{pattern:?}");
        }
    }

    #[test]
    fn rules_learn_their_family_and_refuse_a_mixed_one() {
        let place = Place::key("route-rules.config").entry(0);
        let rule = |document: Value| canonical_rule(document.as_object().expect("a map"), &place);
        assert_eq!(
            rule(json!({ "ip-from": "2001:db8::1", "priority": -1, "route-table": "100" }))
                .map(Value::Object),
            Ok(json!({ "ip-from": "2001:db8::1/128", "route-table": 100, "family": "ipv6" }))
        );
        for (document, error) in [
            (
                json!({ "ip-from": "192.0.2.0/24", "ip-to": "fd00::/8" }),
                "route-rules.config[0].ip-to: this is an ipv6 network, but the rule is for \"ipv4\"",
            ),
            (json!({ "ip-from": 7 }), "route-rules.config[0].ip-from: 7 is not an address"),
            (
                json!({ "ip-to": "10.0.0.0/8", "route-table": "main" }),
                "route-rules.config[0].route-table: \"main\" is not a number",
            ),
        ] {
            assert_eq!(rule(document).expect_err(error).to_string(), error);
        }
    }

    #[test]
    fn the_metric_does_not_identify_a_route_and_the_next_hop_does() {
        let with = |more: &[(&str, Value)]| {
            let mut document = json!({ "destination": "10.0.0.0/8", "next-hop-interface": "e", "next-hop-address": "10.1.0.1", "metric": 100 });
            for (key, value) in more {
                document[*key] = value.clone();
            }
            route(&document)
        };
        for (other, same, same_place) in [
            (with(&[]), true, true),
            (with(&[("metric", json!(200))]), true, false),
            (with(&[("metric", json!("100"))]), true, true),
            (with(&[("metric", json!(-1))]), true, true),
            (with(&[("metric", Value::Null)]), true, true),
            (with(&[("table-id", json!(254)), ("destination", json!("10.0.0.1/8"))]), true, true),
            (with(&[("table-id", json!(0))]), true, true),
            (with(&[("next-hop-address", json!("10.1.0.2"))]), false, true),
            (with(&[("next-hop-address", json!("10.1.0.2")), ("metric", json!(200))]), false, false),
            (with(&[("mtu", json!(1400))]), false, true),
            (with(&[("mtu", json!(1400)), ("metric", json!(200))]), false, false),
            (with(&[("table-id", json!(7))]), false, false),
            (with(&[("vrf-name", json!("vrf0"))]), false, false),
            (with(&[("next-hop-interface", json!("f"))]), false, false),
            (with(&[("destination", json!("10.0.0.0/9"))]), false, false),
        ] {
            for (one, other) in [(&with(&[]), &other), (&other, &with(&[]))] {
                assert_eq!(is_same_route(one, other), same, "{one:?} {other:?}");
                assert_eq!(claim_the_same_place(one, other), same_place, "{one:?} {other:?}");
            }
        }
        let none = with(&[("next-hop-address", json!("0.0.0.0"))]);
        assert!(is_same_route(&none, &with(&[("next-hop-address", Value::Null)])));
    }

    #[test]
    fn rules_are_the_same_by_their_packets_and_priority() {
        let rule = |document: Value| canonical_rule_or_as_written(document.as_object().expect("a map"));
        let base = rule(json!({ "ip-from": "10.0.0.0/8", "route-table": 1, "priority": 1 }));
        for (other, same) in [
            (json!({ "ip-from": "10.0.0.7/8", "family": "ipv4", "route-table": 2 }), true),
            (json!({ "ip-from": "10.0.0.0/8", "priority": "1" }), true),
            (json!({ "ip-from": "10.0.0.0/8", "priority": 2 }), false),
            (json!({ "ip-from": "10.0.0.0/9", "priority": 1 }), false),
            (json!({ "ip-from": "10.0.0.0/8", "priority": 1, "iif": "eth1" }), false),
        ] {
            assert_eq!(is_same_rule(&base, &rule(other.clone())), same, "{other}");
        }
    }
}
