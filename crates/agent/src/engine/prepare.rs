//! Resolves the captures and defaults of an order against the current state of the node.

use std::{collections::BTreeMap, time::Duration};

use knmstate_api::{NodeNetworkConfigurationEnactmentSpec, State};
use knmstate_core::{
    bridge_defaults,
    probes::{self, AddressLease, ApiAccess, Probe},
};
use knmstate_document::Document;
use knmstate_host::{Abilities, HostError, NetworkState, Place};
use knmstate_offline::{captures::resolve, features};
use serde_json::Value;

use super::EngineSettings;

/// An order that is ready to be applied.
#[derive(Clone, Debug)]
pub(crate) struct PreparedOrder {
    pub policy: String,
    pub desired: NetworkState,
    /// The states that its captures resolved to.
    pub captured: BTreeMap<String, State>,
    pub features: Vec<String>,
    /// Remarks for the admin, which the enactment shows.
    pub notes: Vec<String>,
    pub probes: Vec<Probe>,
    /// The dynamic addresses that it asks for.
    pub leases: Vec<AddressLease>,
    pub transaction_deadline: Duration,
    pub probe_deadline: Duration,
}

/// Prepares an order. `known` has the captures that were resolved earlier: each is resolved once. Fails when a capture
/// or the resulting state is invalid.
pub(crate) fn prepare(
    policy: &str,
    spec: &NodeNetworkConfigurationEnactmentSpec,
    known: &BTreeMap<String, Document>,
    current: &NetworkState,
    abilities: Abilities,
    settings: &EngineSettings,
    api: ApiAccess,
) -> Result<PreparedOrder, HostError> {
    let desired = spec.desired_state.clone().unwrap_or_default();
    let resolved = resolve(&desired.0, &spec.capture, current, known)?;
    let (desired, notes) = if settings.bridge_defaults {
        with_bridge_defaults(resolved.desired, abilities)?
    } else {
        (resolved.desired, Vec::new())
    };

    let deadlines = spec.deadlines.clone().unwrap_or_default();
    let transaction_deadline =
        deadlines.transaction.map_or(settings.transaction, knmstate_api::Duration::as_std);
    // Probes end before NetworkManager rolls the change back.
    let probe_deadline = deadlines
        .probes
        .map_or(settings.probes, knmstate_api::Duration::as_std)
        .min(transaction_deadline / 10 * 9);
    let probes =
        probes::select(&spec.probes, desired.sections(), api, Some(probe_deadline)).map_err(|invalid| {
            HostError::Invalid { place: Place::key(format!("probes[{}]", invalid.probe)), why: invalid.why }
        })?;
    Ok(PreparedOrder {
        policy: policy.to_owned(),
        captured: resolved.captured.into_iter().map(|(name, state)| (name, State(state))).collect(),
        features: features(&desired, current),
        leases: probes::requested_leases(desired.sections()),
        desired,
        notes,
        probes,
        transaction_deadline,
        probe_deadline,
    })
}

/// Makes ports of bridges VLAN trunks unless the state has another setting, where the kernel supports that.
fn with_bridge_defaults(
    desired: NetworkState,
    abilities: Abilities,
) -> Result<(NetworkState, Vec<String>), HostError> {
    let Value::Object(mut filled) = desired.clone().into_value() else { return Ok((desired, Vec::new())) };
    let bridges = bridge_defaults::fill(&mut filled);
    if bridges.is_empty() {
        return Ok((desired, Vec::new()));
    }
    if !abilities.bridge_vlan_filtering {
        let note = format!(
            "{}: plain bridge without VLANs on its ports, because the kernel of this node has no VLAN filtering on bridges",
            bridges.join(", ")
        );
        return Ok((desired, vec![note]));
    }
    Ok((NetworkState::parse(Value::Object(filled))?, Vec::new()))
}
