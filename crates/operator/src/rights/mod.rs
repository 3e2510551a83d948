//! Who may do what: one ServiceAccount for each role, with exactly what its code calls.
//!
//! A right that no code uses is a gift to whoever steals a token; so whoever adds a call adds its right here, and whoever
//! removes one removes it.

pub mod controller;
pub mod handler;

use k8s_openapi::api::{
    core::v1::ServiceAccount,
    rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject},
};

use crate::{Object, Settings};

/// The rights of one role of the program.
struct Holder<'a> {
    settings: &'a Settings,
    /// Before the prefix.
    account: &'static str,
}

impl Holder<'_> {
    fn account(&self) -> Object {
        let mut metadata = self.settings.metadata_in(&self.settings.namespace, self.account);
        // Users of kubernetes-nmstate select its accounts by this label.
        metadata.labels.get_or_insert_default().insert("nmstate.io".to_owned(), String::new());
        ServiceAccount { metadata, ..ServiceAccount::default() }.into()
    }

    /// What it may do in the whole cluster.
    fn everywhere(&self, rules: Vec<PolicyRule>) -> [Object; 2] {
        let metadata = self.settings.metadata(self.account);
        let binding = ClusterRoleBinding {
            metadata: metadata.clone(),
            role_ref: self.role_ref("ClusterRole", self.account),
            subjects: Some(vec![self.subject()]),
        };
        [ClusterRole { metadata, rules: Some(rules), ..ClusterRole::default() }.into(), binding.into()]
    }

    /// What it may do in one namespace.
    fn in_namespace(&self, namespace: &str, name: &str, rules: Vec<PolicyRule>) -> [Object; 2] {
        let metadata = self.settings.metadata_in(namespace, name);
        let binding = RoleBinding {
            metadata: metadata.clone(),
            role_ref: self.role_ref("Role", name),
            subjects: Some(vec![self.subject()]),
        };
        [Role { metadata, rules: Some(rules) }.into(), binding.into()]
    }

    fn role_ref(&self, kind: &str, name: &str) -> RoleRef {
        RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: kind.to_owned(),
            name: self.settings.named(name),
        }
    }

    fn subject(&self) -> Subject {
        Subject {
            kind: "ServiceAccount".to_owned(),
            name: self.settings.named(self.account),
            namespace: Some(self.settings.namespace.clone()),
            api_group: None,
        }
    }
}

pub const NMSTATE: &str = knmstate_api::names::GROUP;
pub const CORE: &str = "";
pub const READ: [&str; 3] = ["get", "list", "watch"];

/// Lets these verbs be used on these resources of a group.
pub fn allow(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

/// The same, but only for objects of these names. To list and watch them they have to be selected by name.
pub fn allow_named(group: &str, resources: &[&str], names: Vec<String>, verbs: &[&str]) -> PolicyRule {
    PolicyRule { resource_names: Some(names), ..allow(group, resources, verbs) }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}
