//! What is known of the cluster at present.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use knmstate_api::NodeNetworkConfigurationPolicy;
use knmstate_client::watch::{Seen, Selection, follow};
use kube::{Api, Client, Resource, ResourceExt as _};
use tokio::{sync::watch, task::JoinSet};

use crate::world::SlimNode;

/// The policies, and the nodes that they may be for.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    pub policies: BTreeMap<String, Arc<NodeNetworkConfigurationPolicy>>,
    /// The labels of each node that takes part.
    pub nodes: BTreeMap<String, Arc<BTreeMap<String, String>>>,
}

/// The latest catalogue; nothing before all of it was read once.
pub type Latest = watch::Receiver<Option<Arc<Catalogue>>>;

/// Keeps a catalogue of the cluster, in tasks that end when dropped.
pub fn watch(client: &Client) -> (Latest, JoinSet<()>) {
    let (sender, latest) = watch::channel(None);
    let draft = Arc::new(Draft { catalogue: Mutex::default(), sender });
    let mut tasks = JoinSet::new();
    let to = draft.clone();
    tasks.spawn(follow(
        Api::all(client.clone()),
        Selection::All,
        "watch policies",
        |_| {},
        move |seen| {
            to.change(|draft| {
                take_in(draft.policies.get_or_insert_default(), seen, Arc::new);
            });
        },
    ));
    tasks.spawn(follow(
        Api::all(client.clone()),
        Selection::All,
        "watch nodes",
        |_| {},
        move |seen| {
            draft.change(|draft| {
                let labels = |node: SlimNode| Arc::new(node.metadata.labels.unwrap_or_default());
                take_in(draft.nodes.get_or_insert_default(), seen, labels);
            });
        },
    ));
    (latest, tasks)
}

#[derive(Debug)]
struct Draft {
    catalogue: Mutex<Parts>,
    sender: watch::Sender<Option<Arc<Catalogue>>>,
}

/// Each part is there once it was read.
#[derive(Debug, Default)]
struct Parts {
    policies: Option<BTreeMap<String, Arc<NodeNetworkConfigurationPolicy>>>,
    nodes: Option<BTreeMap<String, Arc<BTreeMap<String, String>>>>,
}

impl Draft {
    fn change(&self, change: impl FnOnce(&mut Parts)) {
        let mut parts = self.catalogue.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut parts);
        if let (Some(policies), Some(nodes)) = (&parts.policies, &parts.nodes) {
            let catalogue = Catalogue { policies: policies.clone(), nodes: nodes.clone() };
            self.sender.send_replace(Some(Arc::new(catalogue)));
        }
    }
}

/// Those that cannot be read are left out: nobody can be in conflict with what nobody understands.
fn take_in<K: Resource<DynamicType = ()>, T>(
    known: &mut BTreeMap<String, T>,
    seen: Seen<K>,
    keep: impl Fn(K) -> T,
) {
    match seen {
        Seen::All(all) => {
            let read = all.into_iter().filter_map(|object| Some((object.name_any(), object.0.ok()?)));
            *known = read.map(|(name, object)| (name, keep(object))).collect();
        }
        Seen::Changed(object) => {
            let name = object.name_any();
            if let Ok(object) = object.0 {
                known.insert(name, keep(object));
            }
        }
        Seen::Gone(object) => {
            known.remove(&object.name_any());
        }
    }
}
