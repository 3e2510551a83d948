//! The namespace of handlers and controller.

use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use crate::Settings;

/// The pods of the handlers use the network of their nodes, which only the level `privileged` of pod security allows.
pub(crate) fn namespace(settings: &Settings) -> Namespace {
    let mut metadata = ObjectMeta { name: Some(settings.namespace.clone()), ..settings.metadata("") };
    let labels = metadata.labels.get_or_insert_default();
    labels.insert("name".to_owned(), settings.namespace.clone());
    for mode in ["audit", "enforce", "warn"] {
        labels.insert(format!("pod-security.kubernetes.io/{mode}"), "privileged".to_owned());
    }
    Namespace { metadata, ..Namespace::default() }
}
