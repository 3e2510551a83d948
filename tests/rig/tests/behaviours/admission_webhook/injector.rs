//! Copies the published CA bundle into the webhook configurations, in place of the operator and as late as a test wants.

use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::ConfigMap,
    },
};
use kube::{
    Client,
    api::{Patch, PatchParams},
};
use serde_json::Value;
use tokio::time::sleep;

use super::*;

const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Copies each new bundle after `delay`. It never returns.
pub async fn inject(client: Client, delay: Duration) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let mut injected = None;
    loop {
        sleep(POLL_INTERVAL).await;
        let published = maps.get("nmstate-ca-bundle").await.ok().and_then(|map| map.data);
        let Some(bundle) = published.and_then(|mut data| data.remove("ca-bundle.crt")) else { continue };
        if injected.as_ref() == Some(&bundle) && has(&client, &bundle).await {
            continue;
        }
        sleep(delay).await;
        match set(&client, &bundle).await {
            Ok(()) => injected = Some(bundle),
            Err(error) => eprintln!("the CA bundle was not injected: {error:#}"),
        }
    }
}

async fn has(client: &Client, bundle: &str) -> bool {
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let Ok(configuration) = validating.get("nmstate").await else { return false };
    let mut webhooks = configuration.webhooks.into_iter().flatten();
    webhooks.all(|webhook| {
        webhook.client_config.ca_bundle.is_some_and(|injected| injected.0 == bundle.as_bytes())
    })
}

async fn set(client: &Client, bundle: &str) -> Result<()> {
    let bytes = ByteString(bundle.as_bytes().to_vec());
    let patch = |webhooks: Vec<String>| -> Value {
        let webhook = |name| json!({"name": name, "clientConfig": {"caBundle": bytes}});
        json!({"webhooks": webhooks.into_iter().map(webhook).collect::<Vec<_>>()})
    };
    let parameters = PatchParams::default();
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let webhooks = mutating.get("nmstate").await?.webhooks.into_iter().flatten();
    let patched = patch(webhooks.map(|webhook| webhook.name).collect());
    mutating.patch("nmstate", &parameters, &Patch::Strategic(patched)).await?;
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let webhooks = validating.get("nmstate").await?.webhooks.into_iter().flatten();
    let patched = patch(webhooks.map(|webhook| webhook.name).collect());
    validating.patch("nmstate", &parameters, &Patch::Strategic(patched)).await?;
    Ok(())
}
