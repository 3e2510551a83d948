//! Writes the results as files that look like the objects of a cluster.

use std::{fs, io, path::PathBuf};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knmstate_api::{
    NodeNetworkConfigurationEnactment, NodeNetworkConfigurationEnactmentStatus, NodeNetworkState,
    NodeNetworkStateSpec, names,
};

use knmstate_files::{
    durable::{self, Readers},
    yaml,
};

use crate::store::ReportedNetwork;

/// The directory for the objects of one node. Without one they are not written.
#[derive(Clone, Debug)]
pub(super) struct Output {
    pub directory: Option<PathBuf>,
    pub node: String,
}

impl Output {
    pub(super) fn write_enactment(
        &self,
        policy: &str,
        status: &NodeNetworkConfigurationEnactmentStatus,
    ) -> io::Result<()> {
        let Some(path) = self.enactment(policy) else { return Ok(()) };
        let name = names::enactment_name(&self.node, policy);
        let node = names::node_label(&self.node);
        let labels = [(names::NODE_LABEL, &*node), (names::POLICY_LABEL, policy)];
        let metadata = ObjectMeta {
            name: Some(name),
            labels: Some(labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()),
            ..ObjectMeta::default()
        };
        // Without the order: its desired state may hold secrets, and all users may read this file.
        let enactment = NodeNetworkConfigurationEnactment { metadata, spec: None, status: status.clone() };
        replace(&path, &yaml::document(&enactment)?)
    }

    pub(super) fn remove_enactment(&self, policy: &str) -> io::Result<()> {
        self.enactment(policy).map_or(Ok(()), |path| durable::remove(&path))
    }

    pub(super) fn write_state(&self, network: &ReportedNetwork, now: Timestamp) -> io::Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let path = directory.join(format!("nns-{}.yaml", self.node));
        let before = fs::read_to_string(&path).ok();
        let before: Option<NodeNetworkState> = before.and_then(|text| serde_saphyr::from_str(&text).ok());
        let published = before.map(|state| state.status).unwrap_or_default();
        let metadata = ObjectMeta { name: Some(self.node.clone()), ..ObjectMeta::default() };
        let spec =
            NodeNetworkStateSpec { node_name: Some(self.node.clone()), ..NodeNetworkStateSpec::default() };
        let status = network.status(&published, now);
        let state = NodeNetworkState { metadata, spec, status };
        replace(&path, &yaml::document(&state)?)
    }

    fn enactment(&self, policy: &str) -> Option<PathBuf> {
        let name = names::enactment_name(&self.node, policy);
        Some(self.directory.as_ref()?.join(format!("nnce-{name}.yaml")))
    }
}

/// Writes a file, unless it has this text already.
fn replace(path: &std::path::Path, text: &str) -> io::Result<()> {
    if fs::read_to_string(path).is_ok_and(|current| current == text) {
        return Ok(());
    }
    durable::replace(path, text.as_bytes(), Readers::All)
}
