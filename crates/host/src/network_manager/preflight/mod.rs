//! What can be said about a document before anything is touched, and nmstate does not say, or says too late: it tries
//! what cannot work for 15 to 140 seconds.
//!
//! One question per file. What is certain is refused, with the key and what to do; where it is not certain whether
//! something works, that is a warning, and the change is made. `check` needs nothing but the document and the state of
//! the machine. What depends on what the machine can do (`abilities`) is only asked when something is to be changed:
//! what is already so needs no ability.

mod addresses;
mod bases;
mod functions;
mod missing;
mod mtu;
mod names;
mod plugins;
mod ports;
mod routes;
mod versions;
mod vlans;

use knmstate_document::{NetworkState, interface_name};
use std::collections::BTreeMap;

pub(super) use versions::Version;

use names::World;

use super::kinds;
use crate::error::HostError;
use crate::host::Warning;

/// What is known about NetworkManager and the kernel.
#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    /// `None` when it is missing or cannot be parsed.
    pub(super) network_manager: Option<Version>,
    /// NetworkManager says that it has its plugin for Open vSwitch. `None` when it does not say anything about plugins.
    pub(super) open_vswitch: Option<bool>,
    /// Open vSwitch answers where nmstate asks it.
    pub(super) open_vswitch_runs: bool,
    /// The kernel cannot move the packets of Open vSwitch.
    pub(super) lacks_datapath: bool,
    /// NetworkManager says that it can switch forwarding for one interface.
    pub(super) forwarding: bool,
    /// Which interfaces forward IPv4 now, as far as it is known.
    pub(super) forwards: BTreeMap<String, bool>,
    /// The NICs that can have virtual functions.
    pub(super) with_functions: Vec<String>,
}

impl Facts {
    /// With what is not NetworkManager's, as far as the document is about it.
    pub(super) async fn with_those_of_the_kernel(self, desired: &NetworkState) -> Self {
        let world = World { desired, current: desired };
        let is_asked_for = world.wanted().any(plugins::is_of_open_vswitch);
        Self {
            open_vswitch_runs: is_asked_for && plugins::open_vswitch_runs().await,
            lacks_datapath: is_asked_for && !kinds::kernel_has_open_vswitch(),
            forwards: versions::forwards(desired.interfaces().map(interface_name)),
            with_functions: functions::capable(desired.interfaces().map(interface_name)),
            ..self
        }
    }
}

/// Refuses what cannot work on a machine in the state `current`, without regard to its abilities. `desired` in
/// nmstate's own spelling.
pub(super) fn check(desired: &NetworkState, current: &NetworkState) -> Result<Vec<Warning>, HostError> {
    let world = World { desired, current };
    missing::check(world)?;
    bases::check(world)?;
    vlans::check(world)?;
    let mut warnings = ports::check(world)?;
    warnings.extend(mtu::check(world)?);
    warnings.extend(addresses::check(world)?);
    warnings.extend(routes::check(world)?);
    Ok(warnings)
}

/// Refuses what this machine cannot do. Only the interfaces of `difference` are checked: the others are as desired.
pub(super) fn abilities(
    desired: &NetworkState,
    current: &NetworkState,
    difference: &NetworkState,
    facts: &Facts,
) -> Result<Vec<Warning>, HostError> {
    let mut warnings = Vec::new();
    let changed = |name: &str| difference.interfaces().any(|interface| interface_name(interface) == name);
    let world = World { desired, current };
    for interface in world.wanted().filter(|interface| changed(interface_name(interface))) {
        warnings.extend(plugins::check(interface, facts)?);
        functions::check(interface, current, facts)?;
        warnings.extend(versions::check(interface, current, facts)?);
    }
    Ok(warnings)
}

/// The NICs that will be there when the virtual functions of the document are.
pub(super) fn functions_to_come(desired: &NetworkState, current: &NetworkState) -> Vec<String> {
    functions::to_come(World { desired, current })
}
