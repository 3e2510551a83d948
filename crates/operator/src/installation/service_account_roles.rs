//! A ServiceAccount with its roles and bindings.

use k8s_openapi::api::{
    core::v1::ServiceAccount,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding, RoleRef, Subject},
};

use super::{ScopedRights, metadata, settings};
use crate::{Config, Object};

/// A ServiceAccount in the namespace of the operator, with its rights. Account, roles and bindings have the same name.
#[derive(Debug)]
pub struct ServiceAccountRoles<'a> {
    config: &'a Config,
    /// Without the prefix.
    name: &'static str,
    rights: ScopedRights,
}

impl<'a> ServiceAccountRoles<'a> {
    pub fn new(config: &'a Config, name: &'static str, rights: ScopedRights) -> Self {
        Self { config, name, rights }
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
        let cluster_wide = ClusterRole {
            metadata: metadata(self.config, None, self.name),
            rules: Some(self.rights.cluster_wide.rules()),
            ..ClusterRole::default()
        };
        let in_namespaces = self.in_namespaces().map(|(name, namespace, rights)| Role {
            metadata: metadata(self.config, Some(namespace), &name),
            rules: Some(rights.rules()),
        });
        [cluster_wide.into()].into_iter().chain(in_namespaces.map(Object::from)).collect()
    }

    pub fn bindings(&self) -> Vec<Object> {
        let cluster_wide = ClusterRoleBinding {
            metadata: metadata(self.config, None, self.name),
            role_ref: self.role_ref("ClusterRole", self.name),
            subjects: Some(vec![self.subject()]),
        };
        let in_namespaces = self.in_namespaces().map(|(name, namespace, _)| RoleBinding {
            metadata: metadata(self.config, Some(namespace), &name),
            role_ref: self.role_ref("Role", &name),
            subjects: Some(vec![self.subject()]),
        });
        [cluster_wide.into()].into_iter().chain(in_namespaces.map(Object::from)).collect()
    }

    /// Two roles may be in one namespace, so the one for the operands has another name than the account's own.
    fn in_namespaces(&self) -> impl Iterator<Item = (String, &str, &super::rights::Rights)> {
        let home =
            (self.name.to_owned(), self.config.operator_namespace.as_str(), &self.rights.in_own_namespace);
        let others = self
            .rights
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
