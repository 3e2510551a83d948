//! The watches that keep the view.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::{core::v1::Node, discovery::v1::EndpointSlice};
use knmstate_api::NMState;
use knmstate_client::watch::{Seen as Event, Selection, follow};
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject},
    core::DeserializeGuard,
};
use tokio::task::JoinSet;

use super::{
    addresses::of_kind,
    view::{Found, Seen, View, key, node_facts},
};
use crate::{
    Settings,
    catalogue::{KINDS, Kind},
    facts::Facts,
    operands::managed_by,
};

/// The watches, for as long as this lives.
pub struct Watches {
    client: Client,
    namespace: String,
    ours: Selection,
    view: View,
    running: JoinSet<()>,
    kinds: BTreeSet<Kind>,
}

impl Watches {
    /// Watches what every cluster has.
    pub fn start(client: &Client, settings: &Settings, view: &View) -> Self {
        let (label, value) = managed_by(settings);
        let mut watches = Self {
            client: client.clone(),
            namespace: settings.namespace.clone(),
            ours: Selection::Label(format!("{label}={value}")),
            view: view.clone(),
            running: JoinSet::new(),
            kinds: BTreeSet::new(),
        };
        watches.running.spawn(nmstates(client.clone(), view.clone()));
        watches.running.spawn(nodes(client.clone(), view.clone()));
        watches.running.spawn(api_ports(client.clone(), view.clone()));
        watches.include(&Facts::default());
        watches
    }

    /// Watches the kinds, too, that this cluster has besides. They may come later than we do.
    pub fn include(&mut self, facts: &Facts) {
        for kind in KINDS.iter().filter(|kind| facts.has(kind)) {
            if self.kinds.insert(*kind) {
                let api = of_kind(&self.client, kind, &self.namespace);
                self.running.spawn(objects(api, *kind, self.ours.clone(), self.view.clone()));
            }
        }
    }

    /// Whether everything was seen once: what has not been seen would be taken for missing.
    pub fn are_complete(&self) -> bool {
        let seen = self.view.lock();
        seen.nmstates.is_some()
            && seen.nodes.is_some()
            && seen.api_ports.is_some()
            && self.kinds.iter().all(|kind| seen.objects.contains_key(kind))
    }
}

async fn nmstates(client: Client, view: View) {
    let api: Api<DeserializeGuard<NMState>> = Api::all(client);
    follow(
        api,
        Selection::All,
        "watch NMStates",
        |_| {},
        |event| {
            view.note(|seen| keep(&mut seen.nmstates, event, |object| Some(object.clone())));
        },
    )
    .await;
}

async fn nodes(client: Client, view: View) {
    // Of nodes, which say much of themselves, only the little is kept that matters here.
    let nodes = Api::all_with(client, &ApiResource::erase::<Node>(&()));
    follow(
        nodes,
        Selection::All,
        "watch nodes",
        |_| {},
        |event| {
            view.note(|seen| keep(&mut seen.nodes, event, |node| Some(node_facts(node))));
        },
    )
    .await;
}

/// The API server's own Service says where it really listens.
async fn api_ports(client: Client, view: View) {
    let api: Api<DeserializeGuard<EndpointSlice>> = Api::namespaced(client, "default");
    let of_api = Selection::Label("kubernetes.io/service-name=kubernetes".to_owned());
    follow(
        api,
        of_api,
        "watch the addresses of the API server",
        |_| {},
        |event| {
            view.note(|seen| keep(&mut seen.api_ports, event, |slice| Some(ports(slice))));
        },
    )
    .await;
}

fn ports(slice: &EndpointSlice) -> BTreeSet<u16> {
    let ports = slice.ports.iter().flatten().filter_map(|port| port.port);
    ports.filter_map(|port| u16::try_from(port).ok()).collect()
}

async fn objects(api: Api<DeserializeGuard<DynamicObject>>, kind: Kind, ours: Selection, view: View) {
    follow(
        api,
        ours,
        "watch what was made",
        |_| {},
        |event| {
            view.note(|seen| note_object(seen, &kind, event));
        },
    )
    .await;
}

fn note_object(seen: &mut Seen, kind: &Kind, event: Event<DynamicObject>) -> bool {
    let known = seen.objects.entry(*kind).or_default();
    match event {
        Event::All(all) => {
            let found = all.into_iter().filter_map(|object| object.0.ok());
            let new: BTreeMap<_, _> =
                found.map(|object| (key(kind, &object), Found::new(kind, &object))).collect();
            *known = new;
            // Also when it is empty: it is now known to be.
            true
        }
        Event::Changed(object) => {
            let Ok(object) = object.0 else { return false };
            let found = Found::new(kind, &object);
            known.insert(key(kind, &object), found.clone()) != Some(found)
        }
        Event::Gone(object) => known.remove(&key(kind, &object)).is_some(),
    }
}

/// Keeps what matters of the objects of one kind, by name. Says whether anything is new.
fn keep<K: Resource, T: PartialEq>(
    known: &mut Option<BTreeMap<String, T>>,
    event: Event<K>,
    of: impl Fn(&K) -> Option<T>,
) -> bool {
    let name = |object: &DeserializeGuard<K>| object.meta().name.clone().unwrap_or_default();
    let read = |object: DeserializeGuard<K>| object.0.ok().and_then(|object| of(&object));
    match event {
        Event::All(all) => {
            let new = all.into_iter().filter_map(|object| Some((name(&object), read(object)?))).collect();
            *known = Some(new);
            true
        }
        Event::Changed(object) => {
            let name = name(&object);
            let Some(new) = read(object) else { return false };
            let known = known.get_or_insert_default();
            let is_news = known.get(&name) != Some(&new);
            known.insert(name, new);
            is_news
        }
        Event::Gone(object) => known.as_mut().and_then(|known| known.remove(&name(&object))).is_some(),
    }
}
