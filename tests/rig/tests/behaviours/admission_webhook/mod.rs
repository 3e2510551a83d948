//! The webhook as a real API server calls it: through a Service and over TLS. The API server trusts only the CA bundle
//! that the certificate keeper publishes, and the keeper has only the rights of the controller.

mod injector;
mod policies;
mod rotation;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use knmstate_api::NodeNetworkConfigurationPolicy as Policy;
use knmstate_control::{
    AdmissionServer, CertificateSource, ControllerMetrics, PolicyIndex, RotationIntervals, RotationOptions,
    ServedCertificate, Tls, WebhookNames, rotate_certificates, serve_admission,
};
use kube::{Api, ResourceExt as _, api::ListParams};
use rig::{ApiServer, BoundTo, Lab, wait};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinSet};

const LIMIT: Duration = Duration::from_secs(30);
const NAMESPACE: &str = "nmstate";
const SERVICE: &str = "nmstate-webhook";
/// Where the webhook listens in the lab.
const ADDRESS: &str = "10.99.0.1:9443";

/// The Service, with an address of the lab as its endpoint, and exactly the rights that the certificates need.
const CLUSTER: &str = include_str!("cluster.yaml");

/// A cluster whose API server calls our webhook.
struct WebhookFixture {
    api: ApiServer,
    policy_index: watch::Sender<Option<Arc<PolicyIndex>>>,
    lab: Lab,
    _parts: JoinSet<()>,
}

impl WebhookFixture {
    async fn new(intervals: RotationIntervals) -> Result<Self> {
        Self::after(intervals, Duration::ZERO, "").await
    }

    /// The same, with an operator that is late by `delay`, and with these objects in the cluster before the webhook starts.
    async fn after(intervals: RotationIntervals, delay: Duration, objects: &str) -> Result<Self> {
        let lab = Lab::new().await?;
        let api = lab.api_server().start().await?;
        api.install_crds().await?;
        api.kubectl_with(&format!("{CLUSTER}\n---\n{objects}"), ["apply", "-f", "-"]).await?.success()?;
        let token = api.token(NAMESPACE, "controller", BoundTo::Nothing).await?;
        let client = api.client_with_token(&token).await?;

        let serving = ServedCertificate::new();
        let (policy_index, latest) = watch::channel(None);
        let mut parts = JoinSet::new();
        let listener = lab.network().listen(ADDRESS.parse()?).await?;
        let server = serve_admission(
            listener,
            Tls::new(&serving)?,
            AdmissionServer::new(latest, clock),
            axum::Router::new(),
            std::future::pending(),
        );
        parts.spawn(async move {
            if let Err(error) = server.await {
                eprintln!("the webhook has stopped: {error}");
            }
        });
        let following = client.clone();
        parts.spawn(async move {
            serving.follow(CertificateSource::OwnAuthority(SERVICE.to_owned()), following, NAMESPACE).await;
        });
        let options = RotationOptions {
            client,
            names: WebhookNames { service: SERVICE.to_owned(), namespace: NAMESPACE.to_owned() },
            authority: "nmstate-ca".to_owned(),
            bundle: "nmstate-ca-bundle".to_owned(),
            webhooks: "nmstate".to_owned(),
            injects: false,
            labels: BTreeMap::from([("app.kubernetes.io/part-of".to_owned(), "tests".to_owned())]),
            metrics: ControllerMetrics::default(),
            now: clock,
        };
        parts.spawn(async move {
            // Kept as long as the keeper runs, because the channel closes with its sender.
            let (_wanted, intervals) = watch::channel(intervals);
            rotate_certificates(options, intervals).await;
        });
        parts.spawn(injector::inject(api.client(), delay));
        let fixture = Self { api, policy_index, lab, _parts: parts };
        fixture.wait_until_called().await?;
        Ok(fixture)
    }

    /// Waits until the API server calls the webhook and trusts its certificate.
    async fn wait_until_called(&self) -> Result<()> {
        wait::until(LIMIT, "an answer from the webhook", async || {
            let arguments = ["create", "--dry-run=server", "-o", "json", "-f", "-"];
            let answer = self.api.kubectl_with(&manifest("probe", &json!({})), arguments).await?.json()?;
            timestamp(&answer).map(|_| ())
        })
        .await
    }

    async fn apply(&self, name: &str, spec: &Value) -> Result<rig::Output> {
        self.api.kubectl_with(&manifest(name, spec), ["apply", "--server-side", "-f", "-"]).await
    }

    async fn policy(&self, name: &str) -> Result<Value> {
        self.api.kubectl(["get", "nncp", name, "-o", "json"]).await?.json()
    }

    /// Passes the policies of the API server to the webhook, as the controller's watches do.
    async fn refresh_policy_index(&self, nodes: &[&str]) -> Result<()> {
        let policies: Api<Policy> = Api::all(self.api.client());
        let policies = policies.list(&ListParams::default()).await?;
        let named = policies.into_iter().map(|policy| (policy.name_any(), Arc::new(policy)));
        let nodes = nodes.iter().map(|node| ((*node).to_owned(), Arc::new(BTreeMap::new())));
        self.policy_index
            .send_replace(Some(Arc::new(PolicyIndex { policies: named.collect(), nodes: nodes.collect() })));
        Ok(())
    }
}

fn manifest(name: &str, spec: &Value) -> String {
    json!({
        "apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy", "metadata": { "name": name }, "spec": spec,
    })
    .to_string()
}

/// The timestamp that the webhook has written to a policy.
fn timestamp(policy: &Value) -> Result<i128> {
    let annotation = policy.pointer("/metadata/annotations/nmstate.io~1webhook-mutating-timestamp");
    let text = annotation.and_then(Value::as_str).context("the policy has no timestamp")?;
    Ok(text.parse()?)
}

fn mtu(mtu: u16) -> Value {
    json!({ "desiredState": { "interfaces": [{ "name": "eth1", "type": "ethernet", "state": "up", "mtu": mtu }] } })
}

#[expect(clippy::disallowed_methods, reason = "a test is a binary")]
fn clock() -> Timestamp {
    Timestamp::now()
}

/// Checks that kubectl was refused with all of these texts.
fn refused_with(output: &rig::Output, expected: &[&str]) -> Result<()> {
    ensure!(!output.status.success(), "it was not refused: {}", output.stdout());
    let errors = output.stderr();
    for text in expected {
        ensure!(errors.contains(text), "{text:?} is not in {errors}");
    }
    Ok(())
}
