//! Plain manifests: one file for `kubectl apply`, and the same in the files that kubernetes-nmstate delivers, for scripts
//! that fetch those.

use anyhow::Result;
use knmstate_api::{NMState, NMStateSpec};
use knmstate_operator::{Object, installation};

use crate::{File, NMSTATE, documents, image};

pub const FOLDER: &str = "manifests";

pub fn files() -> Result<Vec<File>> {
    let groups = installation::groups(&installation::usual(&image()));
    let all: Vec<&Object> = groups.iter().flat_map(|group| &group.objects).collect();
    let mut files = vec![
        File::new(FOLDER, "knmstate.yaml", documents(&all)?),
        File::new(FOLDER, "nmstate.yaml", documents(&[nmstate()?])?),
    ];
    for group in &groups {
        if group.name == "definitions" {
            // Theirs has this one; the operator makes the others.
            let name = "nmstates.nmstate.io";
            let first: Vec<_> = group.objects.iter().filter(|object| object.name() == name).collect();
            files.push(File::new(FOLDER, "nmstate.io_nmstates.yaml", documents(&first)?));
        } else {
            files.push(File::new(FOLDER, &format!("{}.yaml", group.name), documents(&group.objects)?));
        }
    }
    Ok(files)
}

/// An NMState that leaves everything to its defaults.
pub fn nmstate() -> Result<serde_json::Value> {
    let mut nmstate = serde_json::to_value(NMState::new(NMSTATE, NMStateSpec::default()))?;
    if let Some(object) = nmstate.as_object_mut() {
        // They are the API server's, and should show when they change.
        object.retain(|key, _| ["apiVersion", "kind", "metadata"].contains(&key.as_str()));
    }
    Ok(nmstate)
}
