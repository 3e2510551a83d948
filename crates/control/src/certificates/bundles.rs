//! The CA bundle as the controllers publish it, and the `caBundle` of each webhook: the authorities that the API server
//! trusts.

use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{
            MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
        },
        core::v1::ConfigMap,
    },
};
use knmstate_api::names::CA_BUNDLE_KEY;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::certificate::Certificate;

/// The certificates in the ConfigMap.
pub(super) fn published(map: &ConfigMap) -> Vec<Certificate> {
    let text = map.data.as_ref().and_then(|data| data.get(CA_BUNDLE_KEY));
    text.map(|text| Certificate::read_all(text.as_bytes())).unwrap_or_default()
}

/// The patch that publishes a bundle. The resource version makes it fail if the object has changed.
pub(super) fn publication(bundle: &[Certificate], version: Option<&str>) -> Value {
    json!({ "metadata": { "resourceVersion": version }, "data": { CA_BUNDLE_KEY: text(bundle) } })
}

fn text(bundle: &[Certificate]) -> String {
    bundle.iter().map(Certificate::pem).collect()
}

/// The bundle of one webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bundle {
    pub webhook: String,
    pub certificates: Vec<Certificate>,
}

/// The webhook configurations; `None` if one does not exist.
#[derive(Clone, Debug, Default)]
pub(super) struct Webhooks {
    pub mutating: Option<MutatingWebhookConfiguration>,
    pub validating: Option<ValidatingWebhookConfiguration>,
}

impl Webhooks {
    pub(super) fn bundles(&self) -> Vec<Bundle> {
        let mut bundles = self.mutating_bundles();
        bundles.extend(self.validating_bundles());
        bundles
    }

    fn mutating_bundles(&self) -> Vec<Bundle> {
        let webhooks = self.mutating.iter().flat_map(|configuration| configuration.webhooks.iter().flatten());
        webhooks.map(|webhook| bundle(&webhook.name, &webhook.client_config)).collect()
    }

    fn validating_bundles(&self) -> Vec<Bundle> {
        let webhooks =
            self.validating.iter().flat_map(|configuration| configuration.webhooks.iter().flatten());
        webhooks.map(|webhook| bundle(&webhook.name, &webhook.client_config)).collect()
    }

    /// The patch that sets the bundle of the mutating webhooks; `None` if they have it.
    pub(super) fn mutating_patch(&self, wanted: &[Certificate]) -> Option<Value> {
        let version = self.mutating.as_ref()?.resource_version();
        patch(&self.mutating_bundles(), version.as_deref(), wanted)
    }

    /// The same for the validating ones.
    pub(super) fn validating_patch(&self, wanted: &[Certificate]) -> Option<Value> {
        let version = self.validating.as_ref()?.resource_version();
        patch(&self.validating_bundles(), version.as_deref(), wanted)
    }
}

fn bundle(webhook: &str, client: &WebhookClientConfig) -> Bundle {
    let certificates =
        client.ca_bundle.as_ref().map(|bytes| Certificate::read_all(&bytes.0)).unwrap_or_default();
    Bundle { webhook: webhook.to_owned(), certificates }
}

/// A strategic merge patch merges webhooks by name, so other fields stay. The resource version makes it fail if the object
/// has changed.
fn patch(bundles: &[Bundle], version: Option<&str>, wanted: &[Certificate]) -> Option<Value> {
    let bytes = ByteString(text(wanted).into_bytes());
    let changed = bundles.iter().filter(|bundle| bundle.certificates != wanted);
    let changed: Vec<Value> = changed
        .map(|bundle| json!({ "name": bundle.webhook, "clientConfig": { "caBundle": bytes } }))
        .collect();
    (!changed.is_empty()).then(|| json!({ "metadata": { "resourceVersion": version }, "webhooks": changed }))
}
