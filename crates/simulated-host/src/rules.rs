//! Routing rules.

use knmstate_document::{NetworkState, Place, is_absent, routing, routing::MAIN_TABLE, scalar};
use serde_json::{Map, Value, json};

use knmstate_host::HostError;

const KEYS: [&str; 12] = [
    "state",
    "family",
    "ip-from",
    "ip-to",
    "priority",
    "route-table",
    "fwmark",
    "fwmask",
    "action",
    "iif",
    "suppress-prefix-length",
    "suppress_prefixlength",
];

/// Rules without a configured priority are counted up from here.
const FIRST_AUTOMATIC_PRIORITY: i64 = 30_000;

/// The rules after a document: what it removes is gone, what it adds is there, the rest stays.
pub(super) fn merged(
    there: &[Map<String, Value>],
    desired: &NetworkState,
) -> Result<Vec<Map<String, Value>>, HostError> {
    let (mut removals, mut additions) = (Vec::new(), Vec::new());
    for (index, rule) in desired.route_rules().enumerate() {
        let place = Place::key("route-rules.config").entry(index);
        if let Some(key) = rule.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(HostError::invalid(place.below(key), "a rule has no such key"));
        }
        let rule = routing::canonical_rule(rule, &place)?;
        if is_absent(&rule) {
            removals.push(rule);
        } else {
            additions.push(complete(rule, &place)?);
        }
    }
    let mut rules: Vec<_> = there
        .iter()
        .filter(|rule| !removals.iter().any(|removal| routing::matches(removal, rule)))
        .cloned()
        .collect();
    for mut rule in additions {
        if rules.iter().any(|known| routing::matches(&rule, known)) {
            continue;
        }
        if !rule.contains_key("priority") {
            let last = rules.iter().filter_map(|rule| scalar::number(rule.get("priority")?)).max();
            let next = last.map_or(FIRST_AUTOMATIC_PRIORITY, |last| (last + 1).max(FIRST_AUTOMATIC_PRIORITY));
            rule.insert("priority".to_owned(), json!(next));
        }
        rules.push(rule);
    }
    rules.sort_by_key(|rule| rule.get("priority").and_then(scalar::number));
    Ok(rules)
}

fn complete(mut rule: Map<String, Value>, place: &Place) -> Result<Map<String, Value>, HostError> {
    // Said, but empty, is how a removal asks for "without"; in a rule to be added it says nothing.
    rule.retain(|_, value| value.as_str() != Some(""));
    if !["ip-from", "ip-to", "family"].iter().any(|key| rule.contains_key(*key)) {
        return Err(HostError::invalid(place.clone(), "every rule needs one of ip-from, ip-to and family"));
    }
    if rule.contains_key("fwmask") && !rule.contains_key("fwmark") {
        return Err(HostError::invalid(place.below("fwmask"), "a mask needs a fwmark that it applies to"));
    }
    if !rule.contains_key("action") {
        rule.entry("route-table").or_insert(json!(MAIN_TABLE));
    }
    Ok(rule)
}
