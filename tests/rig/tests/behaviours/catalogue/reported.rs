//! Compares a node's report with the desired state.

use std::collections::BTreeMap;

use serde_json::Value;

/// Keys that select an interface or say how to create it. They are not part of the state, so they are not reported.
const NEVER_REPORTED: [&str; 3] = ["copy-mac-from", "identifier", "profile-name"];
/// What nmstate reports instead of a secret.
const HIDDEN: &str = "<_password_hid_by_nmstate>";

/// The paths of the desired state that are not reported, without those that are known to be `unreported`.
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
                if key == "name"
                    || NEVER_REPORTED.contains(&&**key)
                    || is_empty(desired)
                    || desired == "present"
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
        // The NICs of test nodes are veth interfaces.
        _ if (desired, reported) == (&Value::from("ethernet"), &Value::from("veth")) => {}
        _ if desired == HIDDEN || normalized(desired) == normalized(reported) => {}
        _ => missing.push(format!("{path}: {desired}, reported: {reported}")),
    }
}

/// Compares an entry of a list: with the entry of the same name if it has one, else with any entry that contains it.
fn entry(path: &str, index: usize, desired: &Value, reported: &[Value], missing: &mut Vec<String>) {
    let is_absent = desired["state"] == "absent";
    if let Some(name) = desired.get("name") {
        let path = format!("{path}[{}]", normalized(name));
        // An interface that is selected by its MAC address has its own name in the report, and the desired one in its
        // profile.
        let is_it = |entry: &&Value| ["name", "profile-name"].iter().any(|key| entry.get(*key) == Some(name));
        match reported.iter().find(is_it) {
            Some(_) if is_absent && desired["type"] != "ethernet" => missing.push(format!("{path}: absent")),
            Some(_) | None if is_absent => {}
            Some(found) => compare(&path, desired, found, missing),
            None => missing.push(format!("{path}: {desired}")),
        }
        return;
    }
    let matches = |found: &Value| {
        let mut differences = Vec::new();
        compare("", desired, found, &mut differences);
        differences.is_empty()
    };
    if !is_absent && !reported.iter().any(matches) {
        missing.push(format!("{path}[{index}]: {desired}, reported: {}", Value::from(reported.to_vec())));
    }
}

/// An empty list asks for no entry, and without entries a list is not reported.
fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(serde_json::Map::is_empty)
}

/// nmstate also accepts numbers and booleans as strings, and hexadecimal digits in either case.
fn normalized(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_desired_has_to_be_reported() {
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
