//! An account and what it may do, as objects.

use k8s_openapi::api::{
    core::v1::ServiceAccount,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding, RoleRef, Subject},
};

use super::{Holdings, metadata, settings};
use crate::{Config, Object};

/// An account in the namespace of the operator. Account, roles and bindings have its name.
#[derive(Debug)]
pub struct Holder<'a> {
    config: &'a Config,
    /// Before the prefix.
    name: &'static str,
    holdings: Holdings,
}

impl<'a> Holder<'a> {
    pub fn new(config: &'a Config, name: &'static str, holdings: Holdings) -> Self {
        Self { config, name, holdings }
    }

    /// Account, roles and bindings.
    pub fn objects(&self) -> Vec<Object> {
        [vec![self.account()], self.roles(), self.bindings()].concat()
    }

    pub fn account(&self) -> Object {
        let mut metadata = metadata(self.config, Some(&self.config.operator_namespace), self.name);
        // Users of kubernetes-nmstate select its accounts by this label.
        metadata.labels.get_or_insert_default().insert("nmstate.io".to_owned(), String::new());
        ServiceAccount { metadata, ..ServiceAccount::default() }.into()
    }

    pub fn roles(&self) -> Vec<Object> {
        let everywhere = ClusterRole {
            metadata: metadata(self.config, None, self.name),
            rules: Some(self.holdings.everywhere.rules()),
            ..ClusterRole::default()
        };
        let in_namespaces = self.in_namespaces().map(|(name, namespace, rights)| Role {
            metadata: metadata(self.config, Some(namespace), &name),
            rules: Some(rights.rules()),
        });
        [everywhere.into()].into_iter().chain(in_namespaces.map(Object::from)).collect()
    }

    pub fn bindings(&self) -> Vec<Object> {
        let everywhere = ClusterRoleBinding {
            metadata: metadata(self.config, None, self.name),
            role_ref: self.role_ref("ClusterRole", self.name),
            subjects: Some(vec![self.subject()]),
        };
        let in_namespaces = self.in_namespaces().map(|(name, namespace, _)| RoleBinding {
            metadata: metadata(self.config, Some(namespace), &name),
            role_ref: self.role_ref("Role", &name),
            subjects: Some(vec![self.subject()]),
        });
        [everywhere.into()].into_iter().chain(in_namespaces.map(Object::from)).collect()
    }

    /// Two roles may be in one namespace: what is needed at home has another name than what operands need.
    fn in_namespaces(&self) -> impl Iterator<Item = (String, &str, &super::rules::Rights)> {
        let home = (self.name.to_owned(), self.config.operator_namespace.as_str(), &self.holdings.at_home);
        let others = self
            .holdings
            .in_namespaces
            .iter()
            .map(|(namespace, rights)| (format!("{}-operands", self.name), namespace.as_str(), rights));
        [home].into_iter().chain(others).filter(|(_, _, rights)| !rights.is_empty())
    }

    fn role_ref(&self, kind: &str, name: &str) -> RoleRef {
        RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: kind.to_owned(),
            name: settings(self.config).named(name),
        }
    }

    fn subject(&self) -> Subject {
        Subject {
            kind: "ServiceAccount".to_owned(),
            name: settings(self.config).named(self.name),
            namespace: Some(self.config.operator_namespace.clone()),
            api_group: None,
        }
    }
}
