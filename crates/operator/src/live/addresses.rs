//! API paths of objects of any kind.

use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject},
    core::DynamicResourceScope,
};

use crate::{
    Object,
    kinds::{Kind, kind_of},
};

/// The identity of one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub kind: Kind,
    pub namespace: Option<String>,
    pub name: String,
}

impl Key {
    /// `None` for an object of a kind that is not in [`crate::kinds`].
    pub(crate) fn of(object: &Object) -> Option<Self> {
        Some(Self {
            kind: *kind_of(object.api_version(), object.kind())?,
            namespace: object.namespace().map(str::to_owned),
            name: object.name().to_owned(),
        })
    }

    /// For messages, such as `ClusterRole nmstate-handler`.
    pub(crate) fn description(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{} {namespace}/{}", self.kind.kind, self.name),
            None => format!("{} {}", self.kind.kind, self.name),
        }
    }

    pub(crate) fn api(&self, client: &Client) -> Api<DynamicObject> {
        let resource = resource(&self.kind);
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        }
    }
}

pub(crate) fn resource(kind: &Kind) -> ApiResource {
    ApiResource {
        group: kind.group().to_owned(),
        version: kind.version().to_owned(),
        api_version: kind.api_version.to_owned(),
        kind: kind.kind.to_owned(),
        plural: kind.plural.to_owned(),
    }
}

/// The API to list or watch objects of a kind, limited to the namespace of the operands if all of them are there.
pub(crate) fn of_kind<K>(client: &Client, kind: &Kind, namespace: &str) -> Api<K>
where
    K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
{
    if kind.only_in_operand_namespace() {
        return Api::namespaced_with(client.clone(), namespace, &resource(kind));
    }
    Api::all_with(client.clone(), &resource(kind))
}
