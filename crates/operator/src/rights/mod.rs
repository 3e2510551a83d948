//! One ServiceAccount for each role, with exactly the rights that its code uses.
//!
//! A right that no code uses only helps a thief of the token: add and remove rights together with the calls that need them.

pub(crate) mod controller;
pub(crate) mod handler;

use k8s_openapi::api::{
    core::v1::ServiceAccount,
    rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject},
};

use crate::{Object, Settings};

/// The ServiceAccount of one role, with its rights.
struct AccountObjects<'a> {
    settings: &'a Settings,
    /// Without the prefix.
    account: &'static str,
}

impl AccountObjects<'_> {
    fn account(&self) -> Object {
        let mut metadata = self.settings.metadata_in(&self.settings.namespace, self.account);
        // Users of kubernetes-nmstate select its accounts by this label.
        metadata.labels.get_or_insert_default().insert("nmstate.io".to_owned(), String::new());
        ServiceAccount { metadata, ..ServiceAccount::default() }.into()
    }

    /// Its rights in the whole cluster.
    fn cluster_wide(&self, rules: Vec<PolicyRule>) -> [Object; 2] {
        let metadata = self.settings.metadata(self.account);
        let binding = ClusterRoleBinding {
            metadata: metadata.clone(),
            role_ref: self.role_ref("ClusterRole", self.account),
            subjects: Some(vec![self.subject()]),
        };
        [ClusterRole { metadata, rules: Some(rules), ..ClusterRole::default() }.into(), binding.into()]
    }

    /// Its rights in one namespace.
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

pub(crate) const NMSTATE: &str = knmstate_api::names::GROUP;
pub(crate) const CORE: &str = "";
pub(crate) const READ: [&str; 3] = ["get", "list", "watch"];

/// Allows these verbs on these resources of a group.
pub(crate) fn allow(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

/// The same for objects of these names only. To list and watch them, a client has to select them by name.
pub(crate) fn allow_named(group: &str, resources: &[&str], names: Vec<String>, verbs: &[&str]) -> PolicyRule {
    PolicyRule { resource_names: Some(names), ..allow(group, resources, verbs) }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}
