//! The targets. Each takes JSON, unless it says otherwise, and ignores input that is none.

use std::{collections::BTreeMap, fs};

use knmstate_agent::Ledger;
use knmstate_api::{
    NodeNetworkConfigurationEnactment, NodeNetworkConfigurationPolicySpec, NodeNetworkState, Permit, State,
};
use knmstate_core::{
    Candidate, NodeFacts, bridge_defaults, budget, conflicts, enactment, join, needs, objection,
    order::{OrderSource, order},
    rollout, selects, shown, templates,
};
use knmstate_document::{Document, NetworkState, interfaces, references, secrets};
use knmstate_offline::{captures, check, features, keyfiles};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

/// A name, and the function that must survive every input.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 7] = [
    ("policy", policy),
    ("captures", captured),
    ("documents", documents),
    ("keyfiles", keyfile),
    ("report", report),
    ("enactment", enactment_of_a_node),
    ("ledger", ledger),
];

/// Far below the budget of a real report, so that small inputs exceed it.
const SMALL_BUDGET: usize = 300;

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    serde_json::from_slice(bytes).ok()
}

/// The spec of a policy, as admission and the leader judge it and make orders of it.
fn policy(bytes: &[u8]) {
    let Some(spec) = read::<NodeNetworkConfigurationPolicySpec>(bytes) else { return };
    let nothing = State::default();
    let desired = spec.desired_state.as_ref().unwrap_or(&nothing);
    let _ = templates::dangling(&spec);
    if let Err(error) = check(&desired.0, &spec.capture) {
        assert_hides_secrets(&desired.0, &error.to_string());
    }
    let labels = BTreeMap::from([("role".to_owned(), "worker".to_owned())]);
    let nodes = ["node-1", "node-2"].map(|name| NodeFacts { name, labels: &labels });
    let (one, other) = (Candidate { name: "one", spec: &spec }, Candidate { name: "other", spec: &spec });
    let _ = objection(&one, &[other], &nodes);
    let _ = selects(&spec, &labels);
    for node in nodes {
        let Ok(rendered) = templates::render(&spec, node.name, node.labels) else { continue };
        let source = OrderSource { name: "one", uid: None, generation: 1 };
        let _ = order(node.name, source, &spec, rendered, Permit::Apply);
    }
}

#[derive(Deserialize)]
struct Captured {
    #[serde(default)]
    capture: BTreeMap<String, String>,
    #[serde(default)]
    desired: Document,
    #[serde(default)]
    current: Value,
}

/// Captures and a document with references to them, resolved in a state.
fn captured(bytes: &[u8]) {
    let Some(Captured { capture, desired, current }) = read(bytes) else { return };
    let Ok(current) = NetworkState::parse(current) else { return };
    let _ = captures::resolve(&desired, &capture, &current, &BTreeMap::new());
}

#[derive(Deserialize)]
struct Documents {
    #[serde(default)]
    desired: Value,
    #[serde(default)]
    current: Value,
}

/// Two documents, compared and joined in every way that an agent does.
fn documents(bytes: &[u8]) {
    let Some(Documents { desired, current }) = read(bytes) else { return };
    let (Ok(desired), Ok(current)) = (NetworkState::parse(desired), NetworkState::parse(current)) else {
        return;
    };
    let _ = desired.unmet_in(&current);
    let _ = desired.first_unmet_in(&current);
    let _ = desired.clone().without_what_is_met(&current);
    let _ = features(&desired, &current);
    let (one, other) = (desired.sections(), current.sections());
    if let Ok(joined) = join::join([one, other]) {
        let _ = bridge_defaults::fill(&mut joined.clone());
    }
    let _ = needs::in_order(&BTreeMap::from([("one", one), ("other", other)]));
    let _ = conflicts::conflict(&State(one.clone()), &State(other.clone()));
    for interface in desired.interfaces() {
        let _ = references::of_interface(interface);
        let _ = references::with_main_keys(interface);
        let _ = interfaces::names(interface).count();
    }
}

/// A document as files of NetworkManager.
fn keyfile(bytes: &[u8]) {
    let Some(desired) = read(bytes) else { return };
    let Ok(desired) = NetworkState::parse(desired) else { return };
    if let Err(error) = keyfiles::keyfiles(&desired) {
        assert_hides_secrets(desired.sections(), &error.to_string());
    }
}

/// The network of a node: what of it is reported, and what the controller reads.
fn report(bytes: &[u8]) {
    if let Some(state) = read::<NodeNetworkState>(bytes) {
        let _ = serde_json::to_vec(&state);
    }
    let Some(observed) = read::<Document>(bytes) else { return };
    let (fitted, _) = budget::fit(shown::shown(&observed), SMALL_BUDGET);
    let size = serde_json::to_vec(&fitted).map_or(0, |json| json.len());
    assert!(size <= SMALL_BUDGET, "{size} bytes are more than the budget of {SMALL_BUDGET}");
}

/// An enactment whose status another client has written.
fn enactment_of_a_node(bytes: &[u8]) {
    let Some(object) = read::<NodeNetworkConfigurationEnactment>(bytes) else { return };
    let wanted = object.spec.clone().unwrap_or_default();
    let _ = rollout::enactment_facts(object.spec.as_ref(), &object.status, &wanted);
    let _ = enactment::missing(&object.status.conditions);
    let _ = enactment::is_rolled_back(&object.status.conditions);
}

/// A file of the ledger with any content.
fn ledger(bytes: &[u8]) {
    let Ok(directory) = tempfile::tempdir() else { return };
    if fs::write(directory.path().join("policy.json"), bytes).is_ok() {
        let opened = Ledger::open(directory.path());
        assert!(opened.is_ok(), "a file that cannot be read is set aside");
    }
}

/// A message that an admin reads must not quote a secret of the document.
fn assert_hides_secrets(document: &Document, message: &str) {
    // A short secret may be a word of the message by chance.
    const SHORTEST: usize = 8;
    fn strings<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::String(text) => found.push(text),
            Value::Array(entries) => entries.iter().for_each(|entry| strings(entry, found)),
            Value::Object(map) => map.values().for_each(|below| strings(below, found)),
            _ => {}
        }
    }
    fn secrets_below<'a>(document: &'a Document, secret: &mut Vec<&'a str>, public: &mut Vec<&'a str>) {
        for (key, value) in document {
            public.push(key);
            if secrets::is_secret(key, value) {
                strings(value, secret);
                continue;
            }
            match value {
                Value::Object(map) => secrets_below(map, secret, public),
                Value::Array(entries) => {
                    for entry in entries {
                        match entry {
                            Value::Object(map) => secrets_below(map, secret, public),
                            entry => strings(entry, public),
                        }
                    }
                }
                value => strings(value, public),
            }
        }
    }
    let (mut secret, mut public) = (Vec::new(), Vec::new());
    secrets_below(document, &mut secret, &mut public);
    // What the document also says openly may be quoted.
    let is_open = |text: &str| public.iter().any(|open| open.contains(text));
    for text in secret.into_iter().filter(|text| text.len() >= SHORTEST && !is_open(text)) {
        assert!(!message.contains(text), "the message quotes a secret: {message}");
    }
}
