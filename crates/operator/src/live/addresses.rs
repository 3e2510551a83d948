//! Where objects of any kind are found at the API server.

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
    core::DeserializeGuard,
};

use crate::{
    Object,
    catalogue::{Kind, kind_of},
};

/// One object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub kind: Kind,
    pub namespace: Option<String>,
    pub name: String,
}

impl Key {
    /// `None` for an object of a kind that is not in the catalogue.
    pub fn of(object: &Object) -> Option<Self> {
        Some(Self {
            kind: *kind_of(object.api_version(), object.kind())?,
            namespace: object.namespace().map(str::to_owned),
            name: object.name().to_owned(),
        })
    }

    /// In words, such as `ClusterRole nmstate-handler`.
    pub fn words(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{} {namespace}/{}", self.kind.kind, self.name),
            None => format!("{} {}", self.kind.kind, self.name),
        }
    }

    pub fn api(&self, client: &Client) -> Api<DynamicObject> {
        let resource = resource(&self.kind);
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        }
    }
}

pub fn resource(kind: &Kind) -> ApiResource {
    ApiResource {
        group: kind.group().to_owned(),
        version: kind.version().to_owned(),
        api_version: kind.api_version.to_owned(),
        kind: kind.kind.to_owned(),
        plural: kind.plural.to_owned(),
    }
}

/// All objects of a kind, in all namespaces.
pub fn all(client: &Client, kind: &Kind) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &resource(kind))
}

/// The same, for a watch.
pub fn watched(client: &Client, kind: &Kind) -> Api<DeserializeGuard<DynamicObject>> {
    Api::all_with(client.clone(), &resource(kind))
}
