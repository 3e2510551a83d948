//! The policies and nodes of the cluster, for the validation of a new policy.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use knmstate_api::NodeNetworkConfigurationPolicy;
use knmstate_client::{
    parts::Parts,
    store::Store,
    watch::{Selection, follow},
};
use kube::{Api, Client};
use tokio::sync::watch;

use crate::cluster_state::SlimNode;

/// All policies, and the labels of all nodes.
#[derive(Clone, Debug, Default)]
pub struct PolicyIndex {
    /// By name; without those that cannot be parsed.
    pub policies: BTreeMap<String, Arc<NodeNetworkConfigurationPolicy>>,
    /// The labels of each node.
    pub nodes: BTreeMap<String, Arc<BTreeMap<String, String>>>,
}

/// The latest index; `None` until all policies and nodes have been listed once.
pub(crate) type Latest = watch::Receiver<Option<Arc<PolicyIndex>>>;

/// Keeps an index of the cluster up to date, in `parts` of the process.
pub(crate) fn watch(client: &Client, parts: &mut Parts) -> Latest {
    let (sender, latest) = watch::channel(None);
    let draft = Arc::new(Draft { index: Mutex::default(), sender });
    let to = draft.clone();
    let policies = follow(
        Api::all(client.clone()),
        Selection::All,
        "watch policies",
        |_| {},
        move |event| {
            to.change(|draft| {
                // One that this version cannot read is not in the index: no conflict with it can be found.
                draft.policies.apply(event, |policy, _| Some(Arc::new(policy)));
            });
        },
    );
    parts.spawn("watch policies for admission", policies);
    let nodes = follow(
        Api::all(client.clone()),
        Selection::All,
        "watch nodes",
        |_| {},
        move |event| {
            draft.change(|draft| {
                let labels = |node: SlimNode| Arc::new(node.metadata.labels.unwrap_or_default());
                draft.nodes.apply(event, |node, _| Some(labels(node)));
            });
        },
    );
    parts.spawn("watch nodes for admission", nodes);
    latest
}

#[derive(Debug)]
struct Draft {
    index: Mutex<Stores>,
    sender: watch::Sender<Option<Arc<PolicyIndex>>>,
}

#[derive(Debug, Default)]
struct Stores {
    policies: Store<Arc<NodeNetworkConfigurationPolicy>>,
    nodes: Store<Arc<BTreeMap<String, String>>>,
}

impl Draft {
    fn change(&self, change: impl FnOnce(&mut Stores)) {
        let mut parts = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut parts);
        if parts.policies.is_listed() && parts.nodes.is_listed() {
            let index = PolicyIndex { policies: (*parts.policies).clone(), nodes: (*parts.nodes).clone() };
            self.sender.send_replace(Some(Arc::new(index)));
        }
    }
}
