//! Where objects of any kind are found at the API server.

use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject},
    core::DynamicResourceScope,
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

/// Where objects of a kind are looked for: no further than they can be. To be listed, or to be watched.
pub fn of_kind<K>(client: &Client, kind: &Kind, namespace: &str) -> Api<K>
where
    K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
{
    if kind.at_home() {
        return Api::namespaced_with(client.clone(), namespace, &resource(kind));
    }
    Api::all_with(client.clone(), &resource(kind))
}
