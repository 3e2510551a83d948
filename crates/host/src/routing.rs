//! Routes and routing rules: one spelling, and the wildcard match by which they are found.
//!
//! An entry is never changed in place. A desired one is added when none like it is there; one with `state: absent` is
//! a pattern that removes everything it matches, and a key that it does not name matches anything.

use serde_json::{Map, Value};

use crate::address::{IpNet, parse_ip};
use crate::error::{HostError, Place};
use crate::scalar;

pub(crate) const MAIN_TABLE: i64 = 254;

/// Whether the entry is a pattern for removal.
pub(crate) fn is_absent(entry: &Map<String, Value>) -> bool {
    entry.get("state").and_then(Value::as_str) == Some("absent")
}

/// Whether the entry is to be left alone.
pub(crate) fn is_ignored(entry: &Map<String, Value>) -> bool {
    entry.get("state").and_then(Value::as_str) == Some("ignore")
}

/// A route in the one spelling; keys that stand for "the default" are gone, and an empty gateway means "without".
pub(crate) fn canonical_route(
    route: &Map<String, Value>,
    place: &Place,
) -> Result<Map<String, Value>, HostError> {
    let mut canonical = without_nulls(route);
    if drop_if(&mut canonical, "destination", |v| v.as_str() == Some("")) {
        // Said, but empty: a wildcard.
    } else {
        rewrite_network(&mut canonical, "destination", place)?;
    }
    for key in ["next-hop-address", "source"] {
        if let Some(value) = canonical.get_mut(key) {
            let text = text(value, &place.below(key))?;
            if !text.is_empty() {
                let ip = parse_ip(text).map_err(|why| HostError::invalid(place.below(key), why))?;
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
pub(crate) fn canonical_rule(
    rule: &Map<String, Value>,
    place: &Place,
) -> Result<Map<String, Value>, HostError> {
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
            Some(network) if network.ip.is_ipv6() => "ipv6",
            _ => "ipv4",
        };
        let said = canonical.entry("family").or_insert_with(|| Value::String(family.to_owned()));
        if said.as_str() != Some(family) {
            return Err(HostError::invalid(
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

/// Whether `entry` has everything that `pattern` names. Both in the one spelling.
///
/// The metric of a route is no part of its identity, as in nmstate: a pattern never looks at it.
pub(crate) fn matches(pattern: &Map<String, Value>, entry: &Map<String, Value>) -> bool {
    pattern.iter().filter(|(key, _)| !matches!(key.as_str(), "state" | "metric")).all(|(key, wanted)| match (
        wanted.as_str(),
        entry.get(key),
    ) {
        (Some(""), None) => true,
        (Some(""), Some(found)) => found.as_str() == Some(""),
        (_, Some(found)) => scalar::same(wanted, found),
        (_, None) => false,
    })
}

/// Whether the destination, gateway or rule belongs to IPv6.
pub(crate) fn is_ipv6(entry: &Map<String, Value>) -> bool {
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

fn text<'a>(value: &'a Value, place: &Place) -> Result<&'a str, HostError> {
    value.as_str().ok_or_else(|| HostError::invalid(place.clone(), format!("{value} is not an address")))
}

fn rewrite_network(
    entry: &mut Map<String, Value>,
    key: &str,
    place: &Place,
) -> Result<Option<IpNet>, HostError> {
    let Some(value) = entry.get_mut(key) else { return Ok(None) };
    let place = place.below(key);
    let network = IpNet::parse(text(value, &place)?).map_err(|why| HostError::invalid(place, why))?.network();
    *value = Value::String(network.to_string());
    Ok(Some(network))
}

fn rewrite_number(entry: &mut Map<String, Value>, key: &str, place: &Place) -> Result<(), HostError> {
    if let Some(value) = entry.get_mut(key) {
        let number = scalar::number(value)
            .ok_or_else(|| HostError::invalid(place.below(key), format!("{value} is not a number")))?;
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
}
