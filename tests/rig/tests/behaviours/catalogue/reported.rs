//! Whether a node's report tells back what was asked for, in the same words.

use std::collections::BTreeMap;

use serde_json::Value;

/// Keys that say how something is to be found or made, and are no state that could be reported.
const NO_STATE: [&str; 3] = ["copy-mac-from", "identifier", "profile-name"];
/// What nmstate puts in the place of a secret.
const HIDDEN: &str = "<_password_hid_by_nmstate>";

/// The paths of what was asked for and is not reported, but for those that are known to be `unreported`.
pub(super) fn missing(
    desired: &Value,
    reported: &Value,
    unreported: &BTreeMap<String, String>,
) -> Vec<String> {
    let mut missing = Vec::new();
    compare("", desired, reported, &mut missing);
    missing.retain(|path| !unreported.contains_key(path.split(": ").next().unwrap_or_default()));
    missing
}

fn compare(path: &str, desired: &Value, reported: &Value, missing: &mut Vec<String>) {
    match (desired, reported) {
        (Value::Object(desired), Value::Object(reported)) => {
            for (key, desired) in desired {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                // What is reported is present, and its name has been compared.
                if key == "name" || NO_STATE.contains(&&**key) || is_nothing(desired) || desired == "present"
                {
                    continue;
                }
                match reported.get(key) {
                    Some(reported) => compare(&path, desired, reported, missing),
                    None => missing.push(format!("{path}: {desired}")),
                }
            }
        }
        (Value::Array(desired), Value::Array(reported)) => {
            for (index, desired) in desired.iter().enumerate() {
                entry(path, index, desired, reported, missing);
            }
        }
        // The cards of test nodes are ends of cables.
        _ if (desired, reported) == (&Value::from("ethernet"), &Value::from("veth")) => {}
        _ if desired == HIDDEN || word(desired) == word(reported) => {}
        _ => missing.push(format!("{path}: {desired}, reported: {reported}")),
    }
}

/// An entry with a name is the one of that name; any other is as good as one that has all of it.
fn entry(path: &str, index: usize, desired: &Value, reported: &[Value], missing: &mut Vec<String>) {
    let is_absent = desired["state"] == "absent";
    if let Some(name) = desired.get("name") {
        let path = format!("{path}[{}]", word(name));
        // A card that was looked for by its address is reported by its own name, and has the other one as its profile's.
        let is_it = |entry: &&Value| ["name", "profile-name"].iter().any(|key| entry.get(*key) == Some(name));
        match reported.iter().find(is_it) {
            Some(_) if is_absent && desired["type"] != "ethernet" => missing.push(format!("{path}: absent")),
            Some(_) | None if is_absent => {}
            Some(found) => compare(&path, desired, found, missing),
            None => missing.push(format!("{path}: {desired}")),
        }
        return;
    }
    let fits = |found: &Value| {
        let mut differences = Vec::new();
        compare("", desired, found, &mut differences);
        differences.is_empty()
    };
    if !is_absent && !reported.iter().any(fits) {
        missing.push(format!("{path}[{index}]: {desired}, reported: {}", Value::from(reported.to_vec())));
    }
}

/// An empty list asks for nothing to be there, and what is not there is not reported.
fn is_nothing(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(serde_json::Map::is_empty)
}

/// nmstate takes numbers and booleans as words, too, and hexadecimal digits in either case.
fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_asked_for_has_to_be_told_back() {
        let reported = json!({ "interfaces": [
            { "name": "eth1", "mtu": 1400, "mac-address": "02:00:00:00:00:AA",
              "ipv4": { "address": [{ "ip": "10.0.0.1", "prefix-length": 24 }, { "ip": "10.0.0.2", "prefix-length": 24 }] } },
            { "name": "br0", "type": "linux-bridge" },
        ] });
        for (desired, expected) in [
            (json!({ "name": "eth1", "mtu": "1400", "mac-address": "02:00:00:00:00:aa" }), vec![]),
            (json!({ "name": "eth1", "ipv4": { "address": [{ "ip": "10.0.0.2" }] } }), vec![]),
            (json!({ "name": "eth1", "state": "absent", "type": "ethernet" }), vec![]),
            (json!({ "name": "br1", "state": "absent" }), vec![]),
            (json!({ "name": "br0", "state": "absent" }), vec!["interfaces[br0]: absent"]),
            (json!({ "name": "eth1", "mtu": 1500 }), vec!["interfaces[eth1].mtu: 1500, reported: 1400"]),
            (json!({ "name": "eth1", "wait-ip": "any" }), vec!["interfaces[eth1].wait-ip: \"any\""]),
        ] {
            let desired = json!({ "interfaces": [desired] });
            assert_eq!(missing(&desired, &reported, &BTreeMap::new()), expected, "{desired}");
        }
        let desired = json!({ "interfaces": [{ "name": "eth1", "mtu": 1500 }] });
        let known = BTreeMap::from([("interfaces[eth1].mtu".to_owned(), "the reason".to_owned())]);
        assert_eq!(missing(&desired, &reported, &known), Vec::<String>::new());
    }
}
