//! The `caBundle` of each webhook: the authorities that the API server trusts.

use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{
        MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
    },
};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::certificate::Certificate;

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

    /// The patch that sets the wanted bundles of the mutating webhooks; `None` if they have them.
    pub(super) fn mutating_patch(&self, wanted: impl Fn(&Bundle) -> Vec<Certificate>) -> Option<Value> {
        let version = self.mutating.as_ref()?.resource_version();
        patch(&self.mutating_bundles(), version.as_deref(), wanted)
    }

    /// The same for the validating ones.
    pub(super) fn validating_patch(&self, wanted: impl Fn(&Bundle) -> Vec<Certificate>) -> Option<Value> {
        let version = self.validating.as_ref()?.resource_version();
        patch(&self.validating_bundles(), version.as_deref(), wanted)
    }
}

fn bundle(webhook: &str, client: &WebhookClientConfig) -> Bundle {
    let certificates =
        client.ca_bundle.as_ref().map(|bytes| Certificate::read_all(&bytes.0)).unwrap_or_default();
    Bundle { webhook: webhook.to_owned(), certificates }
}

/// A strategic merge patch merges webhooks by name, so other fields stay. The resource version makes it fail if the object has changed. has changed.
fn patch(
    bundles: &[Bundle],
    version: Option<&str>,
    wanted: impl Fn(&Bundle) -> Vec<Certificate>,
) -> Option<Value> {
    let changed = bundles.iter().filter_map(|bundle| {
        let wanted = wanted(bundle);
        (wanted != bundle.certificates).then(|| {
            let text: String = wanted.iter().map(Certificate::pem).collect();
            json!({ "name": bundle.webhook, "clientConfig": { "caBundle": ByteString(text.into_bytes()) } })
        })
    });
    let changed: Vec<Value> = changed.collect();
    (!changed.is_empty()).then(|| json!({ "metadata": { "resourceVersion": version }, "webhooks": changed }))
}
