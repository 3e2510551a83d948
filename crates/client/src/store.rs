//! A cache of the objects of one kind, or of the parts of them that matter, kept up to date by the events of a watch.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt as _, core::DeserializeGuard};

use crate::watch::{ObjectEvent, is_older};

/// What identifies an object within a store.
pub trait StoreKey: Ord + Clone {
    fn of(metadata: &ObjectMeta) -> Self;
}

/// The name, for objects of the cluster or of a single namespace.
impl StoreKey for String {
    fn of(metadata: &ObjectMeta) -> Self {
        metadata.name.clone().unwrap_or_default()
    }
}

/// Namespace, if it has one, and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamespacedName {
    pub namespace: Option<String>,
    pub name: String,
}

impl StoreKey for NamespacedName {
    fn of(metadata: &ObjectMeta) -> Self {
        Self { namespace: metadata.namespace.clone(), name: metadata.name.clone().unwrap_or_default() }
    }
}

/// The objects that a watch has shown, by key. It reads like a map of the values that were kept of them.
///
/// An object that cannot be read keeps the value that it had before: an object that a newer version has written must
/// not look like a deleted one. Only its key is recorded, because the error quotes the object, which may hold secrets.
#[derive(Clone, Debug, PartialEq)]
pub struct Store<V, K = String> {
    values: BTreeMap<K, V>,
    versions: BTreeMap<K, String>,
    unreadable: BTreeSet<K>,
    is_listed: bool,
}

/// What an event has changed in a store.
#[derive(Debug, PartialEq)]
pub struct StoreChanges<V, K = String> {
    /// Whether the event was a list. Then everything that depends on all objects may have changed.
    pub listed: bool,
    /// The keys whose values differ, with the values before; the store has those after. Also those of objects that could
    /// not be read and now can, or are gone.
    pub changed: Vec<(K, Option<V>)>,
    /// Objects that could be read before, or did not exist, and cannot be read now.
    pub unreadable: Vec<K>,
}

impl<V, K> StoreChanges<V, K> {
    /// Whether nothing has changed; a list counts as a change.
    pub fn is_empty(&self) -> bool {
        !self.listed && self.changed.is_empty()
    }
}

impl<V, K> Default for Store<V, K> {
    fn default() -> Self {
        Self {
            values: BTreeMap::new(),
            versions: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            is_listed: false,
        }
    }
}

impl<V, K> Default for StoreChanges<V, K> {
    fn default() -> Self {
        Self { listed: false, changed: Vec::new(), unreadable: Vec::new() }
    }
}

impl<V, K> Deref for Store<V, K> {
    type Target = BTreeMap<K, V>;

    fn deref(&self) -> &Self::Target {
        &self.values
    }
}

impl<V: PartialEq, K: StoreKey> Store<V, K> {
    /// Whether all objects have been listed once. What is missing before that may exist.
    pub fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// The keys of the objects that exist and cannot be read. Those that could be read before still have a value.
    pub fn unreadable(&self) -> impl Iterator<Item = &K> {
        self.unreadable.iter()
    }

    /// Whether the object with this key exists and cannot be read, and so must not be taken for a deleted one.
    pub fn is_unreadable(&self, key: &K) -> bool {
        self.unreadable.contains(key)
    }

    /// The resource version of the object that the value with this key was read from; empty if there is none.
    pub fn version(&self, key: &K) -> &str {
        self.versions.get(key).map(String::as_str).unwrap_or_default()
    }

    /// Handles an event. `read` makes the value that is kept of an object, out of it and the value before; `None` if
    /// the object is none of those that are kept. Events that are older than what is known are ignored.
    pub fn apply<O: Resource>(
        &mut self,
        event: ObjectEvent<O>,
        mut read: impl FnMut(O, Option<&V>) -> Option<V>,
    ) -> StoreChanges<V, K> {
        let mut changes = StoreChanges::default();
        match event {
            ObjectEvent::All(all) => {
                self.is_listed = true;
                changes.listed = true;
                let listed: BTreeSet<K> = all.iter().map(|object| K::of(object.meta())).collect();
                let gone: Vec<K> = self.values.keys().filter(|key| !listed.contains(key)).cloned().collect();
                for key in gone {
                    self.remove(&key, &mut changes);
                }
                self.unreadable.retain(|key| listed.contains(key));
                for object in all {
                    self.update(object, &mut read, &mut changes);
                }
            }
            ObjectEvent::Changed(object) => {
                if !self.knows_newer(&object) {
                    self.update(object, &mut read, &mut changes);
                }
            }
            ObjectEvent::Gone(object) => {
                // Unless it was created again since.
                if !self.knows_newer(&object) {
                    let key = K::of(object.meta());
                    let was_unreadable = self.unreadable.remove(&key);
                    self.remove(&key, &mut changes);
                    if was_unreadable && changes.changed.is_empty() {
                        changes.changed.push((key, None));
                    }
                }
            }
        }
        changes
    }

    /// Notes what a write has made of an object, before the watch shows it. It is ignored if something newer is known,
    /// or if the object is not in the store.
    pub fn written(&mut self, key: &K, version: String, change: impl FnOnce(&mut V)) {
        if let Some(value) = self.values.get_mut(key)
            && !self.versions.get(key).is_some_and(|known| is_older(&version, known))
        {
            change(value);
            self.versions.insert(key.clone(), version);
        }
    }

    fn knows_newer<O: Resource>(&self, object: &DeserializeGuard<O>) -> bool {
        let known = self.versions.get(&K::of(object.meta()));
        known.is_some_and(|known| is_older(&object.resource_version().unwrap_or_default(), known))
    }

    fn update<O: Resource>(
        &mut self,
        object: DeserializeGuard<O>,
        read: &mut impl FnMut(O, Option<&V>) -> Option<V>,
        changes: &mut StoreChanges<V, K>,
    ) {
        let key = K::of(object.meta());
        let version = object.resource_version().unwrap_or_default();
        let Ok(object) = object.0 else {
            if self.unreadable.insert(key.clone()) {
                changes.unreadable.push(key);
            }
            return;
        };
        let was_unreadable = self.unreadable.remove(&key);
        let Some(value) = read(object, self.values.get(&key)) else { return self.remove(&key, changes) };
        self.versions.insert(key.clone(), version);
        if was_unreadable || self.values.get(&key) != Some(&value) {
            let before = self.values.insert(key.clone(), value);
            changes.changed.push((key, before));
        }
    }

    fn remove(&mut self, key: &K, changes: &mut StoreChanges<V, K>) {
        self.versions.remove(key);
        if let Some(before) = self.values.remove(key) {
            changes.changed.push((key.clone(), Some(before)));
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::error_boundary::InvalidObject;

    use super::*;

    fn metadata(name: &str, version: u64) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("n".to_owned()),
            resource_version: Some(version.to_string()),
            ..ObjectMeta::default()
        }
    }

    fn object(name: &str, version: u64, text: &str) -> DeserializeGuard<ConfigMap> {
        let data = Some([("text".to_owned(), text.to_owned())].into());
        DeserializeGuard(Ok(ConfigMap { metadata: metadata(name, version), data, ..ConfigMap::default() }))
    }

    fn unreadable(name: &str, version: u64) -> DeserializeGuard<ConfigMap> {
        DeserializeGuard(Err(InvalidObject {
            error: "hunter2".to_owned(),
            metadata: metadata(name, version),
        }))
    }

    /// Its text, unless that is empty.
    fn text(object: ConfigMap, _: Option<&String>) -> Option<String> {
        object.data?.remove("text").filter(|text| !text.is_empty())
    }

    /// Handles an event, and returns the keys that it has changed.
    fn apply(store: &mut Store<String>, event: ObjectEvent<ConfigMap>) -> Vec<String> {
        store.apply(event, text).changed.into_iter().map(|(key, _)| key).collect()
    }

    fn texts(store: &Store<String>) -> String {
        store.iter().map(|(name, text)| format!("{name}={text}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_store_has_what_was_listed_and_changed_and_not_deleted() {
        let mut store = Store::default();
        assert!(!store.is_listed());
        let listed = ObjectEvent::All(vec![object("a", 1, "x"), object("b", 2, "y")]);
        assert_eq!(apply(&mut store, listed), ["a", "b"]);
        assert!(store.is_listed());
        assert_eq!(apply(&mut store, ObjectEvent::Changed(object("a", 3, "x"))).len(), 0, "the same again");
        let changes = store.apply(ObjectEvent::Changed(object("a", 4, "z")), text);
        assert_eq!(changes.changed, [("a".to_owned(), Some("x".to_owned()))]);
        assert_eq!(apply(&mut store, ObjectEvent::Gone(object("b", 5, "y"))), ["b"]);
        assert_eq!(texts(&store), "a=z");
        // A list replaces everything, also by an older version, as after a backup was restored.
        let listed = ObjectEvent::All(vec![object("c", 2, "w"), object("a", 2, "x")]);
        assert_eq!(apply(&mut store, listed), ["c", "a"]);
        assert_eq!(apply(&mut store, ObjectEvent::All(Vec::new())), ["a", "c"]);
        let nothing = store.apply(ObjectEvent::All(Vec::new()), text);
        assert!(nothing.listed && !nothing.is_empty(), "an empty list is an answer");
    }

    #[test]
    fn an_event_that_is_older_than_what_is_known_is_ignored() {
        let mut store = Store::default();
        apply(&mut store, ObjectEvent::Changed(object("a", 5, "x")));
        store.written(&"a".to_owned(), "10".to_owned(), |text| "written".clone_into(text));
        store.written(&"a".to_owned(), "7".to_owned(), |text| "late".clone_into(text));
        store.written(&"b".to_owned(), "10".to_owned(), |text| "gone".clone_into(text));
        assert_eq!(apply(&mut store, ObjectEvent::Changed(object("a", 9, "y"))).len(), 0);
        assert_eq!(apply(&mut store, ObjectEvent::Gone(object("a", 8, "x"))).len(), 0);
        assert_eq!(texts(&store), "a=written");
        assert_eq!(apply(&mut store, ObjectEvent::Gone(object("a", 11, "x"))), ["a"]);
        assert_eq!(
            apply(&mut store, ObjectEvent::Changed(object("a", 6, "x"))),
            ["a"],
            "another one of its name"
        );
    }

    #[test]
    fn an_object_that_cannot_be_read_keeps_its_value_and_is_named_once() {
        let mut store = Store::default();
        apply(&mut store, ObjectEvent::All(vec![object("a", 1, "x")]));
        let changes = store.apply(ObjectEvent::Changed(unreadable("a", 2)), text);
        assert_eq!((changes.changed.len(), changes.unreadable), (0, vec!["a".to_owned()]));
        let all = vec![unreadable("a", 2), unreadable("b", 3)];
        let changes = store.apply(ObjectEvent::All(all), text);
        assert_eq!((changes.changed.len(), changes.unreadable), (0, vec!["b".to_owned()]));
        assert_eq!(store.unreadable().collect::<Vec<_>>(), ["a", "b"]);
        assert!(store.is_unreadable(&"b".to_owned()) && !store.is_unreadable(&"c".to_owned()));
        assert_eq!(texts(&store), "a=x");
        apply(&mut store, ObjectEvent::Changed(object("a", 4, "y")));
        let changes = store.apply(ObjectEvent::Changed(unreadable("a", 5)), text);
        assert_eq!(changes.unreadable, ["a"], "again after it could be read");
        assert!(!format!("{store:?}").contains("hunter2"));
        assert_eq!(
            apply(&mut store, ObjectEvent::Changed(object("a", 6, "y"))),
            ["a"],
            "it can be read again"
        );
        apply(&mut store, ObjectEvent::Changed(unreadable("a", 7)));
        assert_eq!(apply(&mut store, ObjectEvent::Gone(unreadable("a", 8))), ["a"]);
        assert_eq!(
            apply(&mut store, ObjectEvent::Gone(unreadable("b", 9))),
            ["b"],
            "although it had no value"
        );
        assert_eq!(store.unreadable().count(), 0);
    }

    #[test]
    fn an_object_that_is_not_kept_is_removed() {
        let mut store = Store::default();
        apply(&mut store, ObjectEvent::Changed(object("a", 1, "x")));
        assert_eq!(apply(&mut store, ObjectEvent::Changed(object("a", 2, ""))), ["a"]);
        assert!(store.is_empty());
    }

    #[test]
    fn a_key_may_have_a_namespace() {
        let mut store: Store<String, NamespacedName> = Store::default();
        store.apply(ObjectEvent::Changed(object("a", 1, "x")), text);
        let key = NamespacedName { namespace: Some("n".to_owned()), name: "a".to_owned() };
        assert_eq!(store.get(&key).map(String::as_str), Some("x"));
    }
}
