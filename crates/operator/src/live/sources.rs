//! The watches that keep the view.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    Resource as _,
    api::{core::v1::Node, discovery::v1::EndpointSlice},
};
use knmstate_api::NMState;
use knmstate_client::watch::{Seen as Event, Selection, follow};
use kube::{Api, Client, Resource, api::DynamicObject, core::DeserializeGuard};
use tokio::task::JoinSet;

use super::{
    addresses::watched,
    view::{Found, Seen, View, key, node_facts},
};
use crate::Settings;
use crate::{
    catalogue::{KINDS, Kind},
    operands::managed_by,
};

/// Watches everything that matters, for as long as the set lives.
pub fn watch(client: &Client, settings: &Settings, view: &View) -> JoinSet<()> {
    let mut watches = JoinSet::new();
    watches.spawn(nmstates(client.clone(), view.clone()));
    watches.spawn(nodes(client.clone(), view.clone()));
    watches.spawn(api_ports(client.clone(), view.clone()));
    let (label, value) = managed_by(settings);
    let ours = Selection::Label(format!("{label}={value}"));
    for kind in KINDS.iter().filter(|kind| kind.everywhere) {
        watches.spawn(objects(client.clone(), *kind, ours.clone(), view.clone()));
    }
    watches
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
    let kind = Kind {
        api_version: Node::API_VERSION,
        kind: Node::KIND,
        plural: "nodes",
        namespaced: false,
        everywhere: true,
    };
    follow(
        watched(&client, &kind),
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

async fn objects(client: Client, kind: Kind, ours: Selection, view: View) {
    follow(
        watched(&client, &kind),
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
