//! The namespaces of the operator and of its operands.

use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use super::settings;
use crate::{Config, Object, namespace};

/// One, or two if the operands have a namespace of their own. That one is installed as well, because the operator may only
/// write in namespaces that its roles name.
pub(crate) fn namespaces(config: &Config) -> Vec<Object> {
    let operands = namespace::namespace(&settings(config)).into();
    if config.operator_namespace == config.namespace {
        return vec![operands];
    }
    vec![alone(config).into(), operands]
}

/// A namespace for the operator alone, which runs unprivileged.
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
