//! From an order to what it means on this node, now.

use std::{collections::BTreeMap, time::Duration};

use knmstate_api::{NodeNetworkConfigurationEnactmentSpec, State};
use knmstate_core::{
    bridge_defaults,
    document::Document,
    probes::{self, ApiAccess, Lease, Probe, Surroundings},
};
use knmstate_host::{Abilities, HostError, NetworkState, Place, captures::resolve, features};
use serde_json::Value;

use super::Settings;

/// An order with everything filled in.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub policy: String,
    pub desired: NetworkState,
    /// What its captures resolved to.
    pub captured: BTreeMap<String, State>,
    pub features: Vec<String>,
    /// What a person should know about it.
    pub notes: Vec<String>,
    pub probes: Vec<Probe>,
    /// The addresses that it asks others for.
    pub leases: Vec<Lease>,
    pub transaction_deadline: Duration,
    pub probe_deadline: Duration,
}

pub(crate) fn prepare(
    policy: &str,
    spec: &NodeNetworkConfigurationEnactmentSpec,
    known: &BTreeMap<String, Document>,
    current: &NetworkState,
    abilities: Abilities,
    settings: &Settings,
    api: ApiAccess,
) -> Result<Prepared, HostError> {
    let wanted = spec.desired_state.clone().unwrap_or_default();
    let resolved = resolve(&wanted.0, &spec.capture, current, known)?;
    let (desired, notes) = if settings.bridge_defaults {
        with_bridge_defaults(resolved.desired, abilities)?
    } else {
        (resolved.desired, Vec::new())
    };

    let deadlines = spec.deadlines.clone().unwrap_or_default();
    let transaction_deadline =
        deadlines.transaction.map_or(settings.transaction, knmstate_api::Duration::as_std);
    // Probes end before the machine takes the change back by itself.
    let probe_deadline = deadlines
        .probes
        .map_or(settings.probes, knmstate_api::Duration::as_std)
        .min(transaction_deadline / 10 * 9);
    let probes = probes::select(&spec.probes, desired.sections(), Surroundings { api }, Some(probe_deadline))
        .map_err(|malformed| HostError::Invalid {
            place: Place::key(format!("probes[{}]", malformed.probe)),
            why: malformed.why,
        })?;
    Ok(Prepared {
        policy: policy.to_owned(),
        captured: resolved.captured.into_iter().map(|(name, state)| (name, State(state))).collect(),
        features: features(&desired, current),
        leases: probes::asked(desired.sections()),
        desired,
        notes,
        probes,
        transaction_deadline,
        probe_deadline,
    })
}

/// Ports of bridges become trunks unless they say otherwise, where the kernel can do that.
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
