//! Where the operator and its operands are.

use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use super::settings;
use crate::{Config, Object, namespace};

/// One, or two where the operands have a namespace of their own. That one is made here, too, because the operator may
/// write nothing outside of namespaces that it was given.
pub fn namespaces(config: &Config) -> Vec<Object> {
    let operands = namespace::namespace(&settings(config)).into();
    if config.operator_namespace == config.namespace {
        return vec![operands];
    }
    vec![alone(config).into(), operands]
}

/// The operator itself needs nothing of its machine.
fn alone(config: &Config) -> Namespace {
    let name = &config.operator_namespace;
    let mut labels = super::label(config, knmstate_api::names::APP_LABEL);
    labels.insert("name".to_owned(), name.clone());
    for mode in ["audit", "enforce", "warn"] {
        labels.insert(format!("pod-security.kubernetes.io/{mode}"), "restricted".to_owned());
    }
    let metadata = ObjectMeta { name: Some(name.clone()), labels: Some(labels), ..ObjectMeta::default() };
    Namespace { metadata, ..Namespace::default() }
}
