//! The resolver and the host name.

use knmstate_document::{NetworkState, Place, address::parse_server};
use serde_json::{Map, Value, json};

use knmstate_host::HostError;

/// The resolver's configuration after a document. An empty `config` empties it; a list that is named is replaced.
pub(super) fn resolver(
    there: &Map<String, Value>,
    desired: &NetworkState,
) -> Result<Map<String, Value>, HostError> {
    let Some(wanted) = desired.resolver_config() else { return Ok(there.clone()) };
    let place = Place::key("dns-resolver.config");
    let mut resolver = if wanted.values().all(Value::is_null) { Map::new() } else { there.clone() };
    for (key, value) in wanted.iter().filter(|(_, value)| !value.is_null()) {
        let place = place.below(key);
        if !["server", "search", "options"].contains(&key.as_str()) {
            return Err(HostError::invalid(place, "the resolver has no such key"));
        }
        let Some(entries) = value.as_array().filter(|list| list.iter().all(Value::is_string)) else {
            return Err(HostError::invalid(place, "a list of words is expected here"));
        };
        let mut words = Vec::with_capacity(entries.len());
        for (index, word) in entries.iter().filter_map(Value::as_str).enumerate() {
            words.push(if key == "server" {
                parse_server(word).map_err(|why| HostError::invalid(place.entry(index), why))?
            } else {
                word.to_owned()
            });
        }
        if words.is_empty() {
            resolver.shift_remove(key);
        } else {
            resolver.insert(key.clone(), json!(words));
        }
    }
    Ok(resolver)
}

/// The host name: as it was configured, and as it is in force.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Hostname {
    pub(super) config: Option<String>,
    pub(super) running: String,
}

impl Hostname {
    pub(super) fn merged_with(&self, desired: &NetworkState) -> Result<Self, HostError> {
        let Some(wanted) = desired.hostname() else { return Ok(self.clone()) };
        let place = Place::key("hostname");
        if let Some(key) = wanted.keys().find(|key| !["running", "config"].contains(&key.as_str())) {
            return Err(HostError::invalid(place.below(key), "a host name has no such key"));
        }
        let word = |key: &str| match wanted.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(name)) if is_hostname(name) => Ok(Some(name.clone())),
            Some(other) => Err(HostError::invalid(place.below(key), format!("{other} is not a host name"))),
        };
        let (config, running) = (word("config")?, word("running")?);
        // The name in force follows the configured one, unless it is given as well.
        let in_force = running.or_else(|| config.clone());
        Ok(Self {
            config: config.or_else(|| self.config.clone()),
            running: in_force.unwrap_or_else(|| self.running.clone()),
        })
    }

    pub(super) fn shown(&self) -> Value {
        match &self.config {
            Some(config) => json!({ "running": self.running, "config": config }),
            None => json!({ "running": self.running }),
        }
    }
}

fn is_hostname(name: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 64 && name.split('.').all(label)
}
