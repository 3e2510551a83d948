//! A MachineConfig around Ignition's document.

use serde_json::{Value, json};

use super::ignition::Config;

/// The MachineConfig of this name for a pool. By its name it comes into force in the order of names, after those of
/// OpenShift itself, which begin with 00 and 01.
pub(super) fn machine_config(name: &str, pool: &str, config: &Config) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": { "name": name, "labels": { "machineconfiguration.openshift.io/role": pool } },
        "spec": { "config": config },
    })
}
