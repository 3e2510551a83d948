//! Waking the keeper when somebody touches what it keeps.

use std::{fmt::Debug, sync::Arc};

use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    core::v1::Secret,
};
use knmstate_client::watch::{Selection, follow};
use kube::{Api, Resource, core::DeserializeGuard};
use serde::de::DeserializeOwned;
use tokio::{sync::Notify, task::JoinSet};

use super::keeper::Options;

/// Notifies of every change of the two Secrets and the webhook configurations.
pub(super) fn on_changes(options: &Options, changed: &Arc<Notify>, watches: &mut JoinSet<()>) {
    let namespace = &options.names.namespace;
    for secret in [&options.authority, &options.names.service] {
        let api: Api<DeserializeGuard<Secret>> = Api::namespaced(options.client.clone(), namespace);
        watches.spawn(on_changes_of(
            api,
            secret.clone(),
            "watch the Secrets of the webhook",
            changed.clone(),
        ));
    }
    let mutating: Api<DeserializeGuard<MutatingWebhookConfiguration>> = Api::all(options.client.clone());
    let validating: Api<DeserializeGuard<ValidatingWebhookConfiguration>> = Api::all(options.client.clone());
    let doing = "watch the webhook configurations";
    watches.spawn(on_changes_of(mutating, options.webhooks.clone(), doing, changed.clone()));
    watches.spawn(on_changes_of(validating, options.webhooks.clone(), doing, changed.clone()));
}

async fn on_changes_of<K>(
    api: Api<DeserializeGuard<K>>,
    name: String,
    doing: &'static str,
    changed: Arc<Notify>,
) where
    K: Resource + DeserializeOwned + Clone + Debug,
{
    follow(api, Selection::Name(name), doing, |_| (), |_| changed.notify_one()).await;
}
