//! Plans a change: what has to be done for a desired state, before anything is touched.

use std::path::Path;

use knmstate_document::{NetworkState, Place, RouteList, interface_name, is_absent, secrets::Scrubber};
use knmstate_offline::parser;
use nmstate::{NetworkState as Document, NmstateError};
use serde_json::{Map, Value, json};

use super::classify::{self, CallPhase};
use super::profiles::that_bring_up;
use super::scripts::{self, Script};
use super::service::Service;
use super::{kinds, memory_only, nmstate_calls, preflight};
use crate::error::HostError;
use crate::host::Warning;

/// How changes are made on this machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChangeRules {
    pub(super) memory_only: bool,
    pub(super) allow_dispatch_scripts: bool,
}

/// A change that was planned and not yet applied.
pub(super) struct PlannedChange {
    pub(super) document: Document,
    pub(super) difference: NetworkState,
    pub(super) before: NetworkState,
    pub(super) revert: Value,
    pub(super) touched: Vec<String>,
    pub(super) scripts: Vec<Script>,
    pub(super) scrubber: Scrubber,
}

/// What is to be done about a machine that is as `current`, secrets and all; `None` when everything is as desired. And
/// what a person should know in either case.
pub(super) async fn plan_change(
    service: &Service,
    desired: &NetworkState,
    current: Document,
    rules: ChangeRules,
) -> Result<(Option<PlannedChange>, Vec<Warning>), HostError> {
    let memory_only = rules.memory_only;
    let in_memory = if memory_only { Some(memory_only::document(desired)?) } else { None };
    let desired = in_memory.as_ref().unwrap_or(desired);
    let mut scrubber = Scrubber::default();
    let value = desired.clone().into_value();
    scrubber.learn(&value);
    let document = nmstate_calls::parse(&value, &scrubber)?;
    scrubber.learn(&nmstate_calls::to_value(&current)?);
    let before = nmstate_calls::shown(current.clone())?;

    let mut touched: Vec<String> =
        desired.interfaces().map(|interface| interface_name(interface).to_owned()).collect();
    let refused = |error: NmstateError, touched: &[String]| match classify::nmstate(
        &error,
        CallPhase::Checking,
        touched,
        &scrubber,
    ) {
        HostError::Invalid { place, why } => {
            HostError::Invalid { place: parser::find_with_types(desired, &before).unwrap_or(place), why }
        }
        other => other,
    };
    let spelled = nmstate_calls::spelled(&document)?;
    scripts::check(&spelled, &before, rules.allow_dispatch_scripts)?;
    let mut warnings = preflight::check(&spelled, &before)?;
    let to_come = preflight::functions_to_come(&spelled, &before);
    let current = with_nics(current, &to_come)?;
    document.validate(Some(&current)).map_err(|error| refused(error, &touched))?;
    let difference =
        nmstate_calls::difference(&document, &current)?.map_err(|error| refused(error, &touched))?;
    let difference = without_what_is_gone(difference, &before, service, memory_only).await?;
    if difference.sections().is_empty() {
        return Ok((None, warnings));
    }
    let facts = service.facts().await.with_those_of_the_kernel(&spelled).await;
    warnings.extend(preflight::abilities(&spelled, &before, &difference, &facts)?);
    kinds::check(desired, &before).await?;
    let revert = document.generate_revert(&current).map_err(|error| refused(error, &touched))?;
    let revert = NetworkState::parse(nmstate_calls::to_value(&revert)?)?
        .without_interfaces(|interface| to_come.iter().any(|name| name == interface_name(interface)))
        .into_value();
    // A change of one interface may reach into others: its ports, those that it is the controller of.
    for interface in NetworkState::parse(revert.clone())?.interfaces() {
        let name = interface_name(interface);
        if !touched.iter().any(|known| known == name) {
            touched.push(name.to_owned());
        }
    }
    for route in desired.routes(RouteList::Config) {
        if let Some(via) = route.get("next-hop-interface").and_then(Value::as_str)
            && !touched.iter().any(|known| known == via)
        {
            touched.push(via.to_owned());
        }
    }
    let scripts = scripts::before(Path::new(scripts::DIRECTORY), &spelled, &touched)?;
    Ok((Some(PlannedChange { document, difference, before, revert, touched, scripts, scrubber }), warnings))
}

/// The state as it will be with some more NICs, which are not used yet.
fn with_nics(mut state: Document, names: &[String]) -> Result<Document, HostError> {
    for name in names {
        let nic = json!({ "name": name, "type": "ethernet", "state": "down" });
        state.append_interface_data(serde_json::from_value(nic).map_err(|error| {
            HostError::invalid(Place::interface(name), format!("it cannot be a virtual function: {error}"))
        })?);
    }
    Ok(state)
}

/// The difference without the interfaces that are to be gone and are: nmstate lists them all the same. As long as
/// NetworkManager has a profile for one, which it may bring up some day, it is not gone. In memory profiles are not
/// removed but held back, and one that is will not be brought up.
async fn without_what_is_gone(
    difference: NetworkState,
    before: &NetworkState,
    service: &Service,
    memory_only: bool,
) -> Result<NetworkState, HostError> {
    let is_nowhere = |interface: &Map<String, Value>| {
        is_absent(interface) && before.interface(interface_name(interface)).is_none()
    };
    if !difference.interfaces().any(is_nowhere) {
        return Ok(difference);
    }
    let profiles = service.profiles().await?;
    let has_profile = |name: &str| {
        if memory_only {
            !that_bring_up(&profiles, name).is_empty()
        } else {
            profiles.iter().any(|profile| profile.interface.as_deref() == Some(name))
        }
    };
    Ok(difference
        .without_interfaces(|interface| is_nowhere(interface) && !has_profile(interface_name(interface))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// nmstate's own checks alone would refuse what nmstate can apply.
    #[test]
    fn virtual_functions_can_be_made_and_used_in_one_document() {
        let parse = |value: Value| serde_json::from_value::<Document>(value).expect("a document");
        let current = parse(json!({ "interfaces": [
            { "name": "eth1", "type": "ethernet", "state": "up", "ethernet": { "sr-iov": { "total-vfs": 0, "max-vfs": 8 } } },
        ] }));
        let desired = parse(json!({ "interfaces": [
            { "name": "eth1", "type": "ethernet", "state": "up", "ethernet": { "sr-iov": { "total-vfs": 2 } } },
            { "name": "eth1v0", "type": "ethernet", "state": "up", "mtu": 1400 },
            { "name": "bond0", "type": "bond", "state": "up",
              "link-aggregation": { "mode": "active-backup", "port": ["eth1v0"] } },
        ] }));
        assert!(desired.validate(Some(&current)).is_err(), "it does not know what will be");
        let expected = with_nics(current, &["eth1v0".to_owned()]).expect("a state");
        desired.validate(Some(&expected)).expect("it can be applied");
        desired.generate_revert(&expected).expect("it can be undone");
    }
}
