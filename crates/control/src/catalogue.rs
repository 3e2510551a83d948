//! What is known of the cluster at present.

use std::{collections::BTreeMap, sync::Arc};

use knmstate_api::NodeNetworkConfigurationPolicy;
use tokio::sync::watch;

/// The policies, and the nodes that they may be for.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    pub policies: BTreeMap<String, Arc<NodeNetworkConfigurationPolicy>>,
    /// The labels of each node that takes part.
    pub nodes: BTreeMap<String, Arc<BTreeMap<String, String>>>,
}

/// The latest catalogue; nothing before all of it was read once.
pub type Latest = watch::Receiver<Option<Arc<Catalogue>>>;
