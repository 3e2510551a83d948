//! The operator itself, as objects to be applied: what a user installs. Everything else is made by the operator.
//!
//! Plain manifests, the Helm chart and the OLM bundle are written from these, so that they cannot differ.

mod deployment;
mod holder;
mod namespaces;
mod network_policies;
mod rights;
pub mod rules;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knmstate_api::{crds, names};

pub use deployment::{deployment, pod_spec};
pub use holder::Holder;
pub use rights::{Holdings, all_operands, of_checker, of_operator, of_remover};

use crate::{Config, Group, Object, Settings, platform::Gate};

/// The name that the operator's own objects are found by, as in kubernetes-nmstate; before the prefix.
const APP: &str = "kubernetes-nmstate-operator";
/// What the operator's own objects are called; before the prefix.
const NAME: &str = "nmstate-operator";

/// What an installation is when nobody asks for anything else.
pub fn usual(image: &str) -> Config {
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
        gate: Gate::default(),
    }
}

/// Everything that is installed, in the order to apply it in. The groups are called as the files are in which
/// kubernetes-nmstate delivers the same.
pub fn groups(config: &Config) -> Vec<Group> {
    let group = |name, objects| Group { name, objects };
    let holder = Holder::new(config, NAME, of_operator(config));
    vec![
        group("definitions", crds::all().map(Object::from).into()),
        group("namespace", namespaces::namespaces(config)),
        group("service_account", vec![holder.account()]),
        group("role", holder.roles()),
        group("role_binding", holder.bindings()),
        group(
            "operator",
            [network_policies::network_policies(config), vec![deployment(config).into()]].concat(),
        ),
    ]
}

/// The names that follow from the configuration.
fn settings(config: &Config) -> Settings {
    config.settings(false)
}

/// The metadata of an object of the operator's own. It has none of the labels by which the operator knows what it has
/// made: it must not remove itself.
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
