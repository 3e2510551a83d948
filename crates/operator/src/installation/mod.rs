//! The operator itself as objects: what a user installs. The operator creates everything else.
//!
//! Plain manifests, the Helm chart and the OLM bundle are generated from these, so that they cannot differ.

mod account_rights;
mod deployment;
mod namespaces;
mod network_policies;
mod rights;
mod service_account_roles;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knmstate_api::{crds, names};

pub use account_rights::{ScopedRights, checker_rights, operator_rights, remover_rights};
pub use deployment::{deployment, pod_spec};
pub use rights::{Right, Rights};
pub use service_account_roles::ServiceAccountRoles;

#[cfg(test)]
pub(crate) use account_rights::all_operands;

use crate::{Config, Group, Object, Settings, auto_create::AutoCreate};

/// The `app` label of the operator's own objects, as in kubernetes-nmstate; without the prefix.
const APP: &str = "kubernetes-nmstate-operator";
/// The name of the operator's own objects; without the prefix.
const NAME: &str = "nmstate-operator";

/// The default configuration with this image.
pub fn default_config(image: &str) -> Config {
    let retries = [
        ("NNCP_MAX_RETRIES", "5"),
        ("NNCP_MAX_BACKOFF_SECONDS", "30"),
        ("NNCP_INITIAL_BACKOFF_SECONDS", "1"),
    ];
    Config {
        namespace: "nmstate".to_owned(),
        prefix: None,
        operator_namespace: "nmstate".to_owned(),
        monitoring_namespace: "monitoring".to_owned(),
        image: image.to_owned(),
        pull_policy: "IfNotPresent".to_owned(),
        handler_environment: retries.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        auto_create: AutoCreate::default(),
    }
}

/// Everything that a user installs, in the order to apply it in. The groups have the names of the files that
/// kubernetes-nmstate releases.
pub fn groups(config: &Config) -> Vec<Group> {
    let group = |name, objects| Group { name, objects };
    let roles = ServiceAccountRoles::new(config, NAME, operator_rights(config));
    vec![
        group("definitions", crds::all().map(Object::from).into()),
        group("namespace", namespaces::namespaces(config)),
        group("service_account", vec![roles.account()]),
        group("role", roles.roles()),
        group("role_binding", roles.bindings()),
        group(
            "operator",
            [network_policies::network_policies(config), vec![deployment(config).into()]].concat(),
        ),
    ]
}

/// The names of objects that follow from the configuration.
fn settings(config: &Config) -> Settings {
    config.settings(false)
}

/// The metadata of one of the operator's own objects. It lacks the label by which the operator finds the objects that it
/// has created, because it must not remove itself.
fn metadata(config: &Config, namespace: Option<&str>, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(settings(config).named(name)),
        namespace: namespace.map(str::to_owned),
        labels: Some(label(config, names::APP_LABEL)),
        ..ObjectMeta::default()
    }
}

fn label(config: &Config, key: &str) -> BTreeMap<String, String> {
    [(key.to_owned(), settings(config).named(APP))].into()
}

#[cfg(test)]
mod tests;
