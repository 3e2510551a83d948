//! The watches that keep the snapshot up to date.

use std::collections::BTreeSet;

use super::{
    addresses::of_kind,
    view::{ObservedObject, View, node_info},
};
use crate::{
    Settings,
    cluster::ClusterInfo,
    kinds::{KINDS, Kind},
    operands::managed_by,
};
use k8s_openapi::api::{core::v1::Node, discovery::v1::EndpointSlice};
use knmstate_api::NMState;
use knmstate_client::{
    parts::{PartEnded, Parts},
    store::Store,
    watch::{Selection, follow},
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
    core::DeserializeGuard,
};

/// The running watches, which end when this is dropped.
pub(crate) struct Watches {
    client: Client,
    namespace: String,
    ours: Selection,
    view: View,
    running: Parts,
    kinds: BTreeSet<Kind>,
}

impl Watches {
    /// Watches the kinds that every cluster has.
    pub(crate) fn start(client: &Client, settings: &Settings, view: &View) -> Self {
        let (label, value) = managed_by(settings);
        let mut watches = Self {
            client: client.clone(),
            namespace: settings.namespace.clone(),
            ours: Selection::Label(format!("{label}={value}")),
            view: view.clone(),
            running: Parts::default(),
            kinds: BTreeSet::new(),
        };
        watches.running.spawn("watch of NMStates", nmstates(client.clone(), view.clone()));
        watches.running.spawn("watch of nodes", nodes(client.clone(), view.clone()));
        watches.running.spawn("watch of the API server's addresses", api_ports(client.clone(), view.clone()));
        watches.include(&ClusterInfo::default());
        watches
    }

    /// Also watches the other kinds that this cluster has. They may be installed after the operator was started.
    pub(crate) fn include(&mut self, cluster: &ClusterInfo) {
        for kind in KINDS.iter().filter(|kind| cluster.has(kind)) {
            if self.kinds.insert(*kind) {
                let api = of_kind(&self.client, kind, &self.namespace);
                let watch = objects(api, *kind, self.ours.clone(), self.view.clone());
                self.running.spawn("watch of the operator's objects", watch);
            }
        }
    }

    /// Waits until a watch has ended, which it does only by a mistake.
    pub(crate) async fn ended(&mut self) -> PartEnded {
        self.running.ended().await
    }

    /// Whether everything was listed once: what was not would be taken for missing.
    pub(crate) fn are_complete(&self) -> bool {
        let snapshot = self.view.lock();
        snapshot.nmstates.is_listed()
            && snapshot.nodes.is_listed()
            && snapshot.api_ports.is_listed()
            && self.kinds.iter().all(|kind| snapshot.objects.get(kind).is_some_and(Store::is_listed))
    }
}

async fn nmstates(client: Client, view: View) {
    let api: Api<DeserializeGuard<NMState>> = Api::all(client);
    let handle = |event| {
        view.change(|snapshot| !snapshot.nmstates.apply(event, |nmstate, _| Some(nmstate)).is_empty());
    };
    follow(api, Selection::All, "watch NMStates", |_| {}, handle).await;
}

async fn nodes(client: Client, view: View) {
    // Most of a Node, which is large, does not matter here.
    let nodes = Api::all_with(client, &ApiResource::erase::<Node>(&()));
    let handle = |event| {
        view.change(|snapshot| !snapshot.nodes.apply(event, |node, _| Some(node_info(&node))).is_empty());
    };
    follow(nodes, Selection::All, "watch nodes", |_| {}, handle).await;
}

/// The endpoints of the API server's own Service have the ports that it listens on.
async fn api_ports(client: Client, view: View) {
    let api: Api<DeserializeGuard<EndpointSlice>> = Api::namespaced(client, "default");
    let of_api = Selection::Label("kubernetes.io/service-name=kubernetes".to_owned());
    let handle = |event| {
        view.change(|snapshot| !snapshot.api_ports.apply(event, |slice, _| Some(ports(&slice))).is_empty());
    };
    follow(api, of_api, "watch the addresses of the API server", |_| {}, handle).await;
}

fn ports(slice: &EndpointSlice) -> BTreeSet<u16> {
    let ports = slice.ports.iter().flatten().filter_map(|port| port.port);
    ports.filter_map(|port| u16::try_from(port).ok()).collect()
}

async fn objects(api: Api<DeserializeGuard<DynamicObject>>, kind: Kind, ours: Selection, view: View) {
    let handle = |event| {
        view.change(|snapshot| {
            let objects = snapshot.objects.entry(kind).or_default();
            !objects.apply(event, |object, _| Some(ObservedObject::new(&kind, &object))).is_empty()
        });
    };
    follow(api, ours, "watch what was made", |_| {}, handle).await;
}
