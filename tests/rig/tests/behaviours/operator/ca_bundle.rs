//! The CA bundle that the controllers publish arrives in the webhook configurations, by the operator alone.

use anyhow::{Result, ensure};
use knmstate_control::CertificateAuthority;
use rig::{BoundTo, request::Request};

use super::*;

const MAP: &str = "/api/v1/namespaces/nmstate/configmaps/nmstate-ca-bundle";
const CONFIGURATIONS: [&str; 2] = ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"];

impl Installation {
    /// The `caBundle` of every webhook, in base64.
    pub async fn ca_bundles(&self) -> Result<Vec<Value>> {
        let mut bundles = Vec::new();
        for kind in CONFIGURATIONS {
            let configuration = self.get(kind, "nmstate").await?;
            let webhooks = configuration["webhooks"].as_array().context("webhooks")?;
            bundles.extend(webhooks.iter().map(|webhook| webhook["clientConfig"]["caBundle"].clone()));
        }
        Ok(bundles)
    }

    async fn until_bundles_are(&self, what: &str, expected: &Value) -> Result<()> {
        self.until(what, async || {
            let bundles = self.ca_bundles().await?;
            ensure!(bundles == vec![expected.clone(); 4], "{bundles:?}");
            Ok(())
        })
        .await
    }

    /// Publishes with the controller's token, as the leader does.
    pub async fn publish(&self, text: &str) -> Result<()> {
        let token = self.api.token(NAMESPACE, "nmstate-controller", BoundTo::Nothing).await?;
        let controller = self.api.client_with_token(&token).await?;
        let answer = Request::merge(MAP, json!({"data": {"ca-bundle.crt": text}})).send(&controller).await?;
        ensure!(answer.status.is_success(), "{answer}");
        Ok(())
    }
}

pub fn certificate() -> Result<String> {
    let pair = CertificateAuthority::make(clock(), Duration::from_hours(1))?;
    Ok(String::from_utf8(pair.certificate)?)
}

#[expect(clippy::disallowed_methods, reason = "a test is a binary")]
fn clock() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

fn in_base64(text: &str) -> Result<Value> {
    Ok(serde_json::to_value(k8s_openapi::ByteString(text.as_bytes().to_vec()))?)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_controllers_publish_arrives_in_the_webhooks() -> Result<()> {
    let cluster = Installation::new().await?;
    let operator = cluster.start()?;
    cluster.create_nmstate(json!({})).await?;
    cluster.until_created().await?;
    cluster.until_bundles_are("no bundle", &Value::Null).await?;

    what_an_earlier_controller_wrote_stays(&cluster).await?;
    let (first, second) = (certificate()?, certificate()?);
    cluster.publish(&first).await?;
    cluster.until_bundles_are("the first bundle", &in_base64(&first)?).await?;
    let both = format!("{second}{first}");
    cluster.publish(&both).await?;
    cluster.until_bundles_are("both certificates", &in_base64(&both)?).await?;

    // What another client changes is reverted.
    let emptied = r#"[{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]"#;
    for kind in CONFIGURATIONS {
        cluster.api.kubectl(["patch", kind, "nmstate", "--type=json", "-p", emptied]).await?.success()?;
    }
    cluster.until_bundles_are("the bundle to be restored", &in_base64(&both)?).await?;
    // The operator finds what was published while it did not run.
    operator.stop().await?;
    cluster.publish(&second).await?;
    let _operator = cluster.start()?;
    cluster.until_bundles_are("the newest bundle", &in_base64(&second)?).await?;

    // Nothing but certificates gets there.
    cluster.publish("-----BEGIN PRIVATE KEY-----\naGVsbG8=\n-----END PRIVATE KEY-----\n").await?;
    cluster.until_bundles_are("no bundle", &Value::Null).await?;
    let rules = cluster.get(CONFIGURATIONS[0], "nmstate").await?["webhooks"][0]["rules"].clone();
    assert_eq!(rules[0]["resources"], json!(["nodenetworkconfigurationpolicies"]));
    Ok(())
}

/// After an upgrade the webhooks have the bundle of the earlier version, until the new controllers publish one.
async fn what_an_earlier_controller_wrote_stays(cluster: &Installation) -> Result<()> {
    let theirs = r#"[{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "dGhlaXJz"},
        {"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"}]"#;
    let patch = ["patch", CONFIGURATIONS[1], "nmstate", "--type=json", "-p", theirs];
    cluster.api.kubectl(patch).await?.success()?;
    cluster
        .until("the operator to apply it again", async || {
            let webhooks = cluster.get(CONFIGURATIONS[1], "nmstate").await?["webhooks"].clone();
            ensure!(webhooks[0]["failurePolicy"] == "Ignore", "{webhooks:#}");
            Ok(())
        })
        .await?;
    let null = Value::Null;
    assert_eq!(cluster.ca_bundles().await?, [null.clone(), null.clone(), null, json!("dGhlaXJz")]);
    Ok(())
}
