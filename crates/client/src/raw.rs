//! Objects out of raw JSON, each on its own: one that cannot be read does not take the others of its list with it.
//!
//! What is not needed is skipped without recursion, so that neither the depth nor the contents of one object matter to
//! the others. An error never quotes an object, which may hold secrets.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::core::{DeserializeGuard, Status, error_boundary::InvalidObject};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use serde_json::value::RawValue;
use thiserror::Error;

/// Why an object, or a part of one, cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unreadable {
    #[error("it is nested too deeply")]
    TooDeep,
    #[error("a field has an unexpected type or value")]
    UnexpectedValue,
}

impl Unreadable {
    fn of(error: &serde_json::Error) -> Self {
        // serde_json has no other sign of it.
        if error.to_string().starts_with("recursion limit exceeded") {
            Self::TooDeep
        } else {
            Self::UnexpectedValue
        }
    }
}

fn read<T: DeserializeOwned>(json: &str) -> Result<T, Unreadable> {
    serde_json::from_str(json).map_err(|error| Unreadable::of(&error))
}

/// A part of an object that is read on its own: where it cannot be, the rest of the object still can.
#[derive(Clone, Debug, PartialEq)]
pub struct Part<T>(pub Result<T, Unreadable>);

impl<T: Default> Default for Part<T> {
    fn default() -> Self {
        Self(Ok(T::default()))
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Part<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(read(Box::<RawValue>::deserialize(deserializer)?.get())))
    }
}

/// Reads the metadata of an object without its owners, finalizers and managers of fields: the latter are nested as deeply
/// as the fields that they are about. For serde's `deserialize_with`.
pub fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let metadata = SlimMetadata::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        generation: metadata.generation,
        creation_timestamp: metadata.creation_timestamp,
        deletion_timestamp: metadata.deletion_timestamp,
        labels: metadata.labels,
        annotations: metadata.annotations,
        ..ObjectMeta::default()
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimMetadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
}

/// Gives a type that has the field `metadata`, and only the other fields that are needed, the API path of the whole kind.
#[macro_export]
macro_rules! reads_like {
    ($slim:ty, $whole:ty) => {
        impl ::kube::Resource for $slim {
            type DynamicType = ();
            type Scope = <$whole as ::kube::Resource>::Scope;

            fn kind((): &()) -> ::std::borrow::Cow<'_, str> {
                <$whole as ::kube::Resource>::kind(&())
            }

            fn group((): &()) -> ::std::borrow::Cow<'_, str> {
                <$whole as ::kube::Resource>::group(&())
            }

            fn version((): &()) -> ::std::borrow::Cow<'_, str> {
                <$whole as ::kube::Resource>::version(&())
            }

            fn plural((): &()) -> ::std::borrow::Cow<'_, str> {
                <$whole as ::kube::Resource>::plural(&())
            }

            fn meta(&self) -> &::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

/// A page of a list.
pub(crate) struct Page<K> {
    /// The version of the list; empty if there is none.
    pub version: String,
    /// What the next page is asked for with, if there is one.
    pub next: Option<String>,
    pub objects: Vec<DeserializeGuard<K>>,
    /// How many objects are left out because not even their names can be read.
    pub left_out: usize,
}

#[derive(Deserialize)]
struct RawPage<'a> {
    #[serde(default)]
    metadata: PageMetadata,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    #[serde(default)]
    resource_version: Option<String>,
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

impl<K: DeserializeOwned> Page<K> {
    pub(crate) fn read(body: &[u8]) -> serde_json::Result<Self> {
        let RawPage { metadata, items } = serde_json::from_slice(body)?;
        let items = items.unwrap_or_default();
        let objects: Vec<_> = items.iter().filter_map(|item| object(item.get())).collect();
        Ok(Self {
            version: metadata.resource_version.unwrap_or_default(),
            next: metadata.next.filter(|token| !token.is_empty()),
            left_out: items.len() - objects.len(),
            objects,
        })
    }
}

/// What a line of a watch says.
pub(crate) enum Line<K> {
    Changed(DeserializeGuard<K>),
    Gone(DeserializeGuard<K>),
    /// Nothing has changed up to this version.
    Bookmark(String),
    Error(Box<Status>),
    /// An object that is left out because not even its name can be read.
    LeftOut,
    /// The stream has ended within the line.
    Incomplete,
}

#[derive(Deserialize)]
struct RawLine<'a> {
    #[serde(rename = "type", borrow)]
    type_: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

impl<K: DeserializeOwned> Line<K> {
    pub(crate) fn read(line: &[u8]) -> serde_json::Result<Self> {
        let RawLine { type_, object: raw } = match serde_json::from_slice(line) {
            Ok(line) => line,
            Err(error) if error.is_eof() => return Ok(Self::Incomplete),
            // An error without an event around it.
            Err(error) => return serde_json::from_slice(line).map(Self::Error).map_err(|_| error),
        };
        let raw = raw.get();
        Ok(match &*type_ {
            "ADDED" | "MODIFIED" => object(raw).map_or(Self::LeftOut, Self::Changed),
            "DELETED" => object(raw).map_or(Self::LeftOut, Self::Gone),
            "BOOKMARK" => Self::Bookmark(serde_json::from_str::<Bookmark>(raw)?.metadata.resource_version),
            "ERROR" => Self::Error(serde_json::from_str(raw)?),
            _ => return Err(serde_json::Error::custom("an unknown type of event")),
        })
    }
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: BookmarkMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMetadata {
    resource_version: String,
}

/// One object; if it cannot be read, what identifies it. `None` if not even that can be read.
fn object<K: DeserializeOwned>(json: &str) -> Option<DeserializeGuard<K>> {
    let why = match read(json) {
        Ok(object) => return Some(DeserializeGuard(Ok(object))),
        Err(why) => why,
    };
    let Identity { metadata } = serde_json::from_str(json).ok()?;
    let metadata = ObjectMeta {
        name: Some(metadata.name),
        namespace: metadata.namespace,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        generation: metadata.generation,
        labels: metadata.labels,
        ..ObjectMeta::default()
    };
    Some(DeserializeGuard(Err(InvalidObject { error: why.to_string(), metadata })))
}

#[derive(Deserialize)]
struct Identity {
    metadata: IdentityMetadata,
}

/// Without annotations: kubectl keeps a copy of the whole object in one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IdentityMetadata {
    name: String,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
}

#[cfg(test)]
mod tests;
