//! Admission as a real API server asks for it: through a Service, over TLS, trusting nobody but the bundle that the
//! keeper of the certificates gives it; and the keeper with no more than the controller's rights.

mod policies;
mod rotation;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use knmstate_api::NodeNetworkConfigurationPolicy as Policy;
use knmstate_control::{
    admission::{self, Questions},
    catalogue::Catalogue,
    certificates::{self, Intervals, Serving, Source, authority::Names, keeper},
    measures::Measures,
    tls::Tls,
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

/// The Service as a cluster has it, with the lab's own address behind it; and exactly the rights that certificates need.
const CLUSTER: &str = include_str!("cluster.yaml");

/// A cluster whose API server asks our webhook.
struct Trial {
    api: ApiServer,
    catalogue: watch::Sender<Option<Arc<Catalogue>>>,
    lab: Lab,
    _parts: JoinSet<()>,
}

impl Trial {
    async fn new(intervals: Intervals) -> Result<Self> {
        Self::after(intervals, "").await
    }

    /// One that finds these objects when it is started.
    async fn after(intervals: Intervals, objects: &str) -> Result<Self> {
        let lab = Lab::new().await?;
        let api = lab.api_server().start().await?;
        api.install_crds().await?;
        api.kubectl_with(&format!("{CLUSTER}\n---\n{objects}"), ["apply", "-f", "-"]).await?.success()?;
        let token = api.token(NAMESPACE, "controller", BoundTo::Nothing).await?;
        let client = api.client_with_token(&token).await?;

        let serving = Serving::new();
        let (catalogue, latest) = watch::channel(None);
        let mut parts = JoinSet::new();
        let listener = lab.network().listen(ADDRESS.parse()?).await?;
        let server = admission::serve(
            listener,
            Tls::new(&serving)?,
            Questions::new(latest, clock),
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
            serving.follow(Source::OwnAuthority(SERVICE.to_owned()), following, NAMESPACE).await;
        });
        let options = keeper::Options {
            client,
            names: Names { service: SERVICE.to_owned(), namespace: NAMESPACE.to_owned() },
            authority: "nmstate-ca".to_owned(),
            webhooks: "nmstate".to_owned(),
            labels: BTreeMap::from([("app.kubernetes.io/part-of".to_owned(), "tests".to_owned())]),
            measures: Measures::default(),
            now: clock,
        };
        parts.spawn(async move {
            // Held as long as the keeper runs: nobody changes them.
            let (_wanted, intervals) = watch::channel(intervals);
            certificates::keep(options, intervals).await;
        });
        let trial = Self { api, catalogue, lab, _parts: parts };
        trial.is_asked().await?;
        Ok(trial)
    }

    /// Waits until the API server asks the webhook, and believes it.
    async fn is_asked(&self) -> Result<()> {
        wait::until(LIMIT, "an answer of the webhook", async || {
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

    /// Lets the webhook know what the API server has, as the controller's watches do.
    async fn refresh_catalogue(&self, nodes: &[&str]) -> Result<()> {
        let policies: Api<Policy> = Api::all(self.api.client());
        let policies = policies.list(&ListParams::default()).await?;
        let named = policies.into_iter().map(|policy| (policy.name_any(), Arc::new(policy)));
        let nodes = nodes.iter().map(|node| ((*node).to_owned(), Arc::new(BTreeMap::new())));
        self.catalogue
            .send_replace(Some(Arc::new(Catalogue { policies: named.collect(), nodes: nodes.collect() })));
        Ok(())
    }
}

fn manifest(name: &str, spec: &Value) -> String {
    json!({
        "apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy", "metadata": { "name": name }, "spec": spec,
    })
    .to_string()
}

/// What the webhook has noted of a policy.
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

/// What kubectl says, which has to contain all of this.
fn says(output: &rig::Output, expected: &[&str]) -> Result<()> {
    ensure!(!output.status.success(), "it was not refused: {}", output.stdout());
    let said = output.stderr();
    for words in expected {
        ensure!(said.contains(words), "{words:?} is not in {said}");
    }
    Ok(())
}
