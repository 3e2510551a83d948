//! One of several controllers: all of them answer the API server, and one leads.

use std::{collections::BTreeMap, fmt, io, path::PathBuf, time::Duration};

use axum::Router;
use jiff::Timestamp;
use knmstate_client::{
    connection::connect,
    lease::{LeaderElector, LeaseOptions},
};
use knmstate_core::lease::LeaseTiming;
use kube::{Client, Config};
use tokio::{net::TcpListener, sync::watch, task::JoinSet};

use crate::{
    admission::{self, AdmissionServer, policy_index},
    certificates::{self, CertificateSource, RotationOptions, ServedCertificate, WebhookNames},
    controller_metrics::ControllerMetrics,
    leader, metrics,
    sources::SharedClusterState,
    tls::Tls,
    tls_listener::TlsListener,
};

/// What one controller process needs.
#[derive(Clone)]
pub struct ControllerOptions {
    /// As made by [`client`].
    pub client: Client,
    /// The namespace of the controller: of its lease, its Secrets and the pods of the handlers.
    pub namespace: String,
    /// Unique to the process, also among the restarts of one pod: writes of the previous process may still be on their
    /// way when the next one takes the lease.
    pub identity: String,
    /// The names of the objects that the controllers share.
    pub names: ObjectNames,
    /// How long the lease lasts without a renewal.
    pub lease: LeaseTiming,
    /// The clock.
    pub now: fn() -> Timestamp,
}

/// The names of the objects that all replicas share.
#[derive(Clone, Debug)]
pub struct ObjectNames {
    /// The Lease of the leader.
    pub lease: String,
    /// The Service of the webhook.
    pub service: String,
    /// The Secret of the certificate authority.
    pub authority: String,
    /// The MutatingWebhookConfiguration and the ValidatingWebhookConfiguration, which have the same name.
    pub webhooks: String,
}

/// The sockets of a controller, and its certificate.
#[derive(Debug)]
pub struct Listeners {
    /// Where the API server sends admission reviews; `None` to serve no webhook.
    pub webhook: Option<TcpListener>,
    /// Where Prometheus reads metrics; `None` to serve none.
    pub metrics: Option<TcpListener>,
    /// The certificate of both.
    pub source: CertificateSource,
    /// A file with a TLS profile, which may be absent and is read again when it changes.
    pub tls_profile: Option<PathBuf>,
}

impl fmt::Debug for ControllerOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ControllerOptions")
            .field("namespace", &self.namespace)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// A client without the retries of kube: the controller decides itself when to repeat a call.
pub fn client(config: Config) -> kube::Result<Client> {
    connect(config, Duration::from_secs(5))
}

/// Runs until `stop` becomes true, then releases the lease. Fails if TLS cannot be set up.
pub async fn run(
    options: ControllerOptions,
    listeners: Listeners,
    stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let cluster = SharedClusterState::default();
    let metrics = ControllerMetrics::default();
    let rotates_certificates = matches!(listeners.source, CertificateSource::OwnAuthority(_));
    let _servers = serve(&options, listeners, &cluster, &metrics, &stop).await?;
    lead_in_turn(&options, rotates_certificates, &cluster, &metrics, stop).await;
    Ok(())
}

/// Serves the webhook and the metrics, in tasks that end when dropped.
async fn serve(
    options: &ControllerOptions,
    listeners: Listeners,
    cluster: &SharedClusterState,
    controller_metrics: &ControllerMetrics,
    stop: &watch::Receiver<bool>,
) -> io::Result<JoinSet<()>> {
    let certificate = ServedCertificate::new();
    let mut tasks = JoinSet::new();
    let Listeners { webhook, metrics, source, tls_profile } = listeners;
    let tls = Tls::new(&certificate).map_err(io::Error::other)?;
    if let Some(file) = tls_profile {
        tls.load(&file).await.map_err(io::Error::other)?;
        tasks.spawn(tls.clone().follow(file));
    }
    if webhook.is_some() || metrics.is_some() {
        let (certificate, client, namespace) =
            (certificate.clone(), options.client.clone(), options.namespace.clone());
        tasks.spawn(async move { certificate.follow(source, client, &namespace).await });
    }
    if let Some(listener) = webhook {
        let (latest, mut watches) = policy_index::watch(&options.client);
        tasks.spawn(async move { while watches.join_next().await.is_some() {} });
        let admission = AdmissionServer::new(latest, options.now);
        let server = admission::serve(listener, tls.clone(), admission, Router::new(), stopped(stop.clone()));
        tasks.spawn(async move {
            if let Err(error) = server.await {
                tracing::error!("the admission webhook has stopped: {error}");
            }
        });
    }
    if let Some(listener) = metrics {
        let listener = TlsListener::start(listener, tls)?;
        let router = metrics::router(cluster.clone(), controller_metrics.clone(), certificate);
        let server = axum::serve(listener, router).with_graceful_shutdown(stopped(stop.clone()));
        tasks.spawn(async move {
            if let Err(error) = server.await {
                tracing::error!("the metrics server has stopped: {error}");
            }
        });
    }
    Ok(tasks)
}

async fn lead_in_turn(
    options: &ControllerOptions,
    rotates_certificates: bool,
    cluster: &SharedClusterState,
    metrics: &ControllerMetrics,
    mut stop: watch::Receiver<bool>,
) {
    let lease = LeaseOptions {
        namespace: options.namespace.clone(),
        name: options.names.lease.clone(),
        identity: options.identity.clone(),
        terms: options.lease,
        now: options.now,
    };
    let elector = LeaderElector::start(options.client.clone(), lease);
    let mut leadership = elector.leadership();
    let work = leader::LeaderOptions {
        client: options.client.clone(),
        namespace: options.namespace.clone(),
        now: options.now,
    };
    while !*stop.borrow() {
        tokio::select! {
            () = leadership.gained() => {}
            _ = stop.wait_for(|stop| *stop) => break,
        }
        metrics.set_leading(true);
        let mut certificates = JoinSet::new();
        if rotates_certificates {
            certificates.spawn(rotate_certificates(options.clone(), cluster.clone(), metrics.clone()));
        }
        leader::lead(&work, cluster, metrics, leadership.clone(), stopped(stop.clone())).await;
        certificates.shutdown().await;
        // The watches have ended, so the state would only age.
        cluster.forget();
        metrics.set_leading(false);
    }
    elector.release().await;
}

/// Rotates the certificates while this controller leads.
async fn rotate_certificates(
    options: ControllerOptions,
    cluster: SharedClusterState,
    metrics: ControllerMetrics,
) {
    let mut wanted = cluster.intervals();
    let Ok(Some(first)) = wanted.wait_for(Option::is_some).await.map(|known| *known) else { return };
    let (sender, intervals) = watch::channel(first);
    let names = options.names;
    let rotation = RotationOptions {
        client: options.client,
        names: WebhookNames { service: names.service, namespace: options.namespace },
        authority: names.authority,
        webhooks: names.webhooks,
        labels: BTreeMap::new(),
        metrics,
        now: options.now,
    };
    let follow = async {
        while wanted.changed().await.is_ok() {
            if let Some(now_wanted) = *wanted.borrow_and_update() {
                sender.send_if_modified(|known| std::mem::replace(known, now_wanted) != now_wanted);
            }
        }
    };
    tokio::join!(certificates::rotate(rotation, intervals), follow);
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}
