//! The calls of nmstate, one at a time.

use knmstate_document::{NetworkState, Place, secrets::Scrubber};
use std::time::Duration;

use knmstate_offline::parser;
use nmstate::{NetworkState as Document, NmstateError};
use serde_json::Value;
use tokio::time::timeout;

use super::ageing;
use super::classify::{self, CallPhase};
use super::service::whole_seconds;
use crate::error::HostError;
use crate::host::Operation;

/// Reads the state with its secrets: a comparison or a way back without them would not be one.
pub(super) async fn read(limit: Duration) -> Result<Document, HostError> {
    let mut state = Document::new();
    state.set_include_secrets(true);
    match timeout(limit, Box::pin(state.retrieve_async())).await {
        Ok(Ok(_)) => {
            ageing::as_set(&mut state).await;
            Ok(state)
        }
        Ok(Err(error)) => Err(classify::nmstate(&error, CallPhase::Reading, &[], &Scrubber::default())),
        Err(_) => Err(HostError::Timeout { operation: Operation::Observe, after: limit }),
    }
}

/// The document in our own words, secrets hidden.
pub(super) fn shown(mut state: Document) -> Result<NetworkState, HostError> {
    state.hide_secrets();
    let value = to_value(&state)?;
    Ok(NetworkState::parse(value)?)
}

pub(super) fn to_value(state: &Document) -> Result<Value, HostError> {
    serde_json::to_value(state).map_err(|_| HostError::Failed {
        place: Place::document(),
        why: "nmstate gave a state that cannot be written down".to_owned(),
    })
}

/// The document with its secrets, in nmstate's words where people may choose between several: options of bonds may
/// also be asked for by the numbers that the kernel's own files have.
pub(super) fn spelled(document: &Document) -> Result<NetworkState, HostError> {
    Ok(NetworkState::parse(to_value(document)?)?)
}

/// A document out of the journal or out of our own words.
pub(super) fn parse(value: &Value, scrubber: &Scrubber) -> Result<Document, HostError> {
    serde_json::from_value(value.clone())
        .map_err(|error| HostError::invalid(parser::find(value), scrubber.clean(&error.to_string())))
}

/// A document that is to be applied without being made permanent.
pub(super) fn uncommitted(mut desired: Document, deadline: Duration, memory_only: bool) -> Document {
    desired.set_commit(false).set_timeout(whole_seconds(deadline)).set_memory_only(memory_only);
    desired
}

/// What is not as desired, secrets hidden; empty when everything is. Routes and rules are compared by our own rule,
/// because nmstate takes one that leaves out a default for different.
pub(super) fn difference(
    document: &Document,
    current: &Document,
) -> Result<Result<NetworkState, NmstateError>, HostError> {
    let found = shown(current.clone())?;
    let unmet = spelled(document)?.unmet_in(&found);
    let mut difference = match document.gen_diff(current) {
        Ok(difference) => difference,
        Err(error) => return Ok(Err(error)),
    };
    difference.routes = nmstate::Routes::default();
    difference.rules = nmstate::RouteRules::default();
    // nmstate takes them for changed whenever the machine has more of them than was asked for.
    difference.ovsdb = None;
    difference.ovn = nmstate::OvnConfiguration::default();
    if difference.is_empty() {
        return Ok(Ok(unmet));
    }
    let difference = shown(difference)?.without_what_is_met(&found);
    if difference.sections().is_empty() {
        return Ok(Ok(unmet));
    }
    Ok(Ok(difference.with_sections_of(&unmet, &["routes", "route-rules", "ovs-db", "ovn"])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn options_of_a_bond_may_be_numbers() {
        let bond = |mode: Value, options: Value| {
            json!({ "interfaces": [{ "name": "bond0", "type": "bond", "state": "up",
                "link-aggregation": { "mode": mode, "options": options, "port": [] } }] })
        };
        let current = bond(
            json!("balance-tlb"),
            json!({ "tlb_dynamic_lb": true, "all_slaves_active": "delivered", "miimon": 140, "primary_reselect": "always" }),
        );
        let current = parse(&current, &Scrubber::default()).expect("a state");
        for (mode, options, differs) in [
            (json!("balance-tlb"), json!({ "tlb_dynamic_lb": 1 }), false),
            (json!(5), json!({ "tlb_dynamic_lb": "1", "all_slaves_active": 1 }), false),
            (json!("5"), json!({ "primary_reselect": 0, "miimon": "140" }), false),
            (json!("balance-tlb"), json!({ "tlb_dynamic_lb": 0 }), true),
            (json!("balance-tlb"), json!({ "all_slaves_active": "0" }), true),
            (json!("balance-rr"), json!({ "miimon": 140 }), true),
        ] {
            let desired = bond(mode, options);
            let document = parse(&desired, &Scrubber::default()).expect("a document");
            let difference = difference(&document, &current).expect("an answer").expect("a difference");
            assert_eq!(!difference.sections().is_empty(), differs, "{desired}: {}", difference.into_value());
        }
    }
}
