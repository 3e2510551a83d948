//! Wakes the rotation when one of its objects changes.

use std::{fmt::Debug, sync::Arc};

use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    core::v1::{ConfigMap, Secret},
};
use knmstate_client::watch::{Selection, follow};
use kube::{Api, Resource, core::DeserializeGuard};
use serde::de::DeserializeOwned;
use tokio::{sync::Notify, task::JoinSet};

use super::rotation::RotationOptions;

/// Notifies of every change of the two Secrets, the ConfigMap and the webhook configurations.
pub(super) fn notify(options: &RotationOptions, changed: &Arc<Notify>, watches: &mut JoinSet<()>) {
    let namespace = &options.names.namespace;
    for secret in [&options.authority, &options.names.service] {
        let api: Api<DeserializeGuard<Secret>> = Api::namespaced(options.client.clone(), namespace);
        watches.spawn(notify_of(api, secret.clone(), "watch the Secrets of the webhook", changed.clone()));
    }
    let maps: Api<DeserializeGuard<ConfigMap>> = Api::namespaced(options.client.clone(), namespace);
    watches.spawn(notify_of(maps, options.bundle.clone(), "watch the CA bundle", changed.clone()));
    let mutating: Api<DeserializeGuard<MutatingWebhookConfiguration>> = Api::all(options.client.clone());
    let validating: Api<DeserializeGuard<ValidatingWebhookConfiguration>> = Api::all(options.client.clone());
    let doing = "watch the webhook configurations";
    watches.spawn(notify_of(mutating, options.webhooks.clone(), doing, changed.clone()));
    watches.spawn(notify_of(validating, options.webhooks.clone(), doing, changed.clone()));
}

async fn notify_of<K>(api: Api<DeserializeGuard<K>>, name: String, doing: &'static str, changed: Arc<Notify>)
where
    K: Resource + DeserializeOwned + Clone + Debug,
{
    follow(api, Selection::Name(name), doing, |_| (), |_| changed.notify_one()).await;
}
