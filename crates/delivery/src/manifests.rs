//! Plain manifests: one file for `kubectl apply`, and the same in the files that kubernetes-nmstate releases, for scripts
//! that fetch those.

use anyhow::Result;
use knmstate_api::{NMState, NMStateSpec};
use knmstate_operator::{Object, installation};
use serde_json::{Value, json};

use crate::{File, NMSTATE, definitions, documents, image};

pub fn files() -> Result<Vec<File>> {
    let groups = installation::groups(&installation::default_config(&image()));
    let all: Vec<&Object> = groups.iter().flat_map(|group| &group.objects).collect();
    let mut files = vec![
        File::new("", "knmstate.yaml", documents(&all)?),
        File::new("", "nmstate.io_v1_nmstate_cr.yaml", documents(&[nmstate()?])?),
        File::new("", "nmstate.io_v1_nodenetworkconfigurationpolicy_cr.yaml", documents(&[policy()])?),
    ];
    // kubernetes-nmstate releases this definition alone: the operator applies the others.
    files.extend(definitions("")?.into_iter().filter(|file| file.path.ends_with("nmstate.io_nmstates.yaml")));
    for group in groups.iter().filter(|group| group.name != "definitions") {
        files.push(File::new("", &format!("{}.yaml", group.name), documents(&group.objects)?));
    }
    Ok(files)
}

/// An NMState that leaves everything to its defaults.
pub fn nmstate() -> Result<Value> {
    let mut nmstate = serde_json::to_value(NMState::new(NMSTATE, NMStateSpec::default()))?;
    if let Some(object) = nmstate.as_object_mut() {
        // The API server sets the defaults, so that a later version can change them.
        object.retain(|key, _| ["apiVersion", "kind", "metadata"].contains(&key.as_str()));
    }
    Ok(nmstate)
}

/// A policy to start from.
fn policy() -> Value {
    let bridge = |name: &str, port: &str| {
        json!({
            "name": name,
            "type": "linux-bridge",
            "state": "up",
            "bridge": {"options": {"stp": {"enabled": false}}, "port": [{"name": port}]},
        })
    };
    json!({
        "apiVersion": "nmstate.io/v1",
        "kind": "NodeNetworkConfigurationPolicy",
        "metadata": {"name": "two-bridges"},
        "spec": {"desiredState": {"interfaces": [bridge("br0", "eth1"), bridge("br1", "eth2")]}},
    })
}
