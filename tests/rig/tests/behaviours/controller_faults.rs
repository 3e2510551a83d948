//! What would stop a controller, or make kubelet restart it: a policy that takes long to check, and clients that occupy
//! its port.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Secret};
use knmstate_api::{
    NodeNetworkConfigurationEnactment as Enactment, NodeNetworkConfigurationPolicy as Policy, Permit,
};
use knmstate_operator::Settings;
use kube::Api;
use rig::{
    ApiServer, Lab, Output, binaries,
    process::Invocation,
    role::{RoleProcess, RoleSetup},
    wait,
};
use serde_json::{Value, json};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName, pem::PemObject as _},
    },
};

use crate::controller_listeners::SERVICE;

const LIMIT: Duration = Duration::from_mins(1);
const WEBHOOK: &str = "10.99.0.1:9443";
const HEALTH: &str = "10.99.0.1:8081";

/// A cluster with one node, whose API server calls the webhook of a controller once that runs.
struct Cluster {
    api: ApiServer,
    setup: RoleSetup,
    lab: Lab,
}

impl Cluster {
    async fn new() -> Result<Self> {
        let program = binaries::knmstate().await?;
        let lab = Lab::new().await?;
        let api = lab.api_server().start().await?;
        // No operator injects the CA bundle.
        let settings = Settings { controller_injects_ca_bundle: true, ..Settings::default() };
        api.install_product_objects(&settings).await?;
        api.kubectl_with(SERVICE, ["apply", "-f", "-"]).await?.success()?;
        api.add_ready_node("node1").await?;
        api.add_handler_pod("node1").await?;
        let setup = RoleSetup::controller(&lab, &api, program)
            .await?
            .arg(&format!("--webhook-address={WEBHOOK}"))
            .arg("--inject-ca-bundle")
            .arg(&format!("--health-address={HEALTH}"));
        Ok(Self { api, setup, lab })
    }

    async fn create(&self, name: &str, desired: &Value) -> Result<Output> {
        let policy = json!({
            "apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy", "metadata": {"name": name},
            "spec": {"desiredState": desired},
        });
        self.api.kubectl_with(&policy.to_string(), ["create", "-f", "-"]).await
    }

    /// Creates a policy that the webhook refuses, and returns what it says. Until the webhook is called, the policy is
    /// accepted.
    async fn refusal(&self, name: &str, desired: &Value) -> Result<String> {
        wait::until(LIMIT, "the webhook to refuse a policy", async || {
            self.api.kubectl(["delete", "--ignore-not-found", "nncp", name]).await?.success()?;
            let output = self.create(name, desired).await?;
            ensure!(!output.status.success(), "it was accepted\n{}", self.setup.logs(10));
            Ok(output.stderr())
        })
        .await
    }

    /// The status code of an HTTP request in the lab.
    async fn get(&self, url: &str) -> Result<String> {
        let curl =
            ["curl", "--silent", "--insecure", "--output", "/dev/null", "--write-out", "%{http_code}", url];
        let output = self.lab.network().enter(Invocation::new(curl)).run(LIMIT).await?;
        Ok(output.stdout())
    }
}

fn mtu(interface: &str) -> Value {
    json!({"interfaces": [{"name": interface, "type": "ethernet", "state": "up", "mtu": 1400}]})
}

fn misspelt() -> Value {
    json!({"interfaces": [{"name": "eth9", "type": "ethernet", "mtuu": 1400}]})
}

/// Half a megabyte, with a mistake in the last route.
fn many_routes() -> Value {
    let mut routes: Vec<Value> = (0..5000)
        .map(|index| {
            json!({"destination": format!("10.{}.{}.0/24", index / 250, index % 250), "next-hop-interface": "eth1",
                "next-hop-address": "192.0.2.1", "table-id": 254})
        })
        .collect();
    routes[4999]["metrik"] = json!(1);
    json!({"routes": {"config": routes}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_takes_long_to_check_delays_no_other_and_costs_no_lease() -> Result<()> {
    let cluster = Cluster::new().await?;
    // Without a controller they are accepted.
    cluster.create("heavy", &many_routes()).await?.success()?;
    cluster.create("light", &mtu("eth1")).await?.success()?;
    let _controller: RoleProcess = cluster.setup.start("a")?;

    let enactments: Api<Enactment> = Api::all(cluster.api.client());
    let applied = async |policy: &str| {
        wait::until(LIMIT, "the order of a policy", async || {
            let found =
                enactments.get(&format!("node1.{policy}")).await.with_context(|| cluster.setup.logs(10))?;
            let permit = found.spec.map(|order| order.permit);
            ensure!(permit == Some(Permit::Apply), "{permit:?}");
            Ok(())
        })
        .await
    };
    applied("light").await?;
    let policies: Api<Policy> = Api::all(cluster.api.client());
    let message = wait::until(LIMIT, "the policy with a mistake to be refused", async || {
        let heavy = policies.get("heavy").await?;
        ensure!(heavy.status.conditions.is_true("Degraded"), "{}", cluster.setup.logs(10));
        Ok(heavy.status.conditions.first_true().context("no condition")?.message.clone())
    })
    .await?;
    let expected = "desiredState: routes.config[4999].metrik: unknown key";
    ensure!(message.contains(expected), "{message}");

    // The webhook refuses it, too, and serves others meanwhile.
    cluster.refusal("misspelt", &misspelt()).await?;
    let refusal = cluster.refusal("again", &many_routes()).await?;
    ensure!(refusal.contains(expected), "{refusal}");
    cluster.create("later", &mtu("eth2")).await?.success()?;
    applied("later").await?;

    let leases: Api<Lease> = Api::namespaced(cluster.api.client(), &Settings::default().namespace);
    let lease = leases.get(&Settings::default().leader_lease()).await?.spec.context("no spec")?;
    ensure!(lease.lease_transitions == Some(0), "{lease:?}");
    ensure!(lease.holder_identity.as_deref().is_some_and(|holder| holder.starts_with("a_")), "{lease:?}");
    for path in ["healthz", "readyz"] {
        ensure!(cluster.get(&format!("http://{HEALTH}/{path}")).await? == "200", "{path}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_idle_connections_delay_neither_health_nor_admission() -> Result<()> {
    let cluster = Cluster::new().await?;
    let mut controller = cluster.setup.start("a")?;
    cluster.refusal("misspelt", &misspelt()).await?;

    let mut silent = Vec::new();
    let mut idle = Vec::new();
    let connector = connector(&cluster.api).await?;
    for _ in 0..300 {
        silent.push(cluster.lab.network().connect(WEBHOOK.parse()?).await?);
        // Long before an idle connection ends by itself.
        let accepted = timeout(Duration::from_secs(30), tls(&cluster, &connector)).await;
        idle.push(accepted.with_context(|| format!("after {} connections", idle.len()))??);
    }
    for url in [
        format!("http://{HEALTH}/healthz"),
        format!("http://{HEALTH}/readyz"),
        // Other clients may still ask there.
        format!("https://{WEBHOOK}/readyz"),
    ] {
        ensure!(cluster.get(&url).await? == "200", "{url}\n{}", cluster.setup.logs(10));
    }
    let output = cluster.create("misspelt", &misspelt()).await?;
    ensure!(output.stderr().contains("did you mean \"mtu\""), "{}", output.stderr());
    cluster.create("fine", &mtu("eth1")).await?.success()?;
    controller.check_running()
}

/// A client that trusts the authority of the controllers.
async fn connector(api: &ApiServer) -> Result<TlsConnector> {
    let settings = Settings::default();
    let secrets: Api<Secret> = Api::namespaced(api.client(), &settings.namespace);
    let secret = secrets.get(&settings.authority_secret()).await?;
    let authority = secret.data.as_ref().and_then(|data| data.get("ca.crt")).context("no authority")?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&authority.0)?)?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

async fn tls(cluster: &Cluster, connector: &TlsConnector) -> Result<TlsStream<TcpStream>> {
    let stream = cluster.lab.network().connect(WEBHOOK.parse()?).await?;
    Ok(connector.connect(ServerName::try_from("nmstate-webhook.nmstate.svc")?, stream).await?)
}
