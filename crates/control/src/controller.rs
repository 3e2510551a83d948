//! One of several controllers: all of them answer the API server, and one leads.

use std::{collections::BTreeMap, fmt, future::IntoFuture as _, io, path::PathBuf, time::Duration};

use axum::Router;
use jiff::Timestamp;
use knmstate_client::{
    connection::connect,
    lease::{LeaderElector, LeaseOptions},
    parts::{PartEnded, Parts},
    progress::Progress,
};
use knmstate_core::lease::LeaseTiming;
use kube::{Client, Config};
use tokio::{net::TcpListener, sync::watch};

use crate::{
    admission::{self, AdmissionServer, policy_index},
    certificates::{self, CertificateSource, RotationOptions, ServedCertificate, WebhookNames},
    controller_metrics::ControllerMetrics,
    health::{Health, PlainListener},
    known_checks::KnownChecks,
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
    /// Whether the leader sets the `caBundle` of the webhooks, because there is no operator that does.
    pub injects_ca_bundle: bool,
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
    /// The ConfigMap of the CA bundle.
    pub bundle: String,
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
    /// Where kubelet checks whether the controller is healthy; `None` to serve nothing for it.
    pub health: Option<TcpListener>,
    /// The certificate of webhook and metrics.
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

/// Why a controller has ended without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    #[error("cannot serve: {0}")]
    Serve(#[from] io::Error),
    #[error(transparent)]
    Part(#[from] PartEnded),
}

/// Runs until `stop` becomes true, then releases the lease. Fails if TLS cannot be set up, or if a part of the process
/// ends.
pub async fn run(
    options: ControllerOptions,
    listeners: Listeners,
    stop: watch::Receiver<bool>,
) -> Result<(), ControllerError> {
    let shared = SharedParts::default();
    let rotates_certificates = matches!(listeners.source, CertificateSource::OwnAuthority(_));
    let mut parts = serve(&options, listeners, &shared, &stop).await?;
    let asked_to_stop = stop.clone();
    let leading = lead_in_turn(&options, rotates_certificates, &shared, stop);
    Ok(unless_a_part_ends(&mut parts, &asked_to_stop, leading).await?)
}

/// Does the work, and fails as soon as a part ends that was not asked to.
async fn unless_a_part_ends(
    parts: &mut Parts,
    stop: &watch::Receiver<bool>,
    work: impl Future<Output = Result<(), PartEnded>>,
) -> Result<(), PartEnded> {
    let ended = async {
        loop {
            let ended = parts.ended().await;
            if !*stop.borrow() {
                return ended;
            }
        }
    };
    tokio::select! {
        result = work => result,
        ended = ended => Err(ended),
    }
}

/// What the parts of a controller share.
#[derive(Clone, Debug, Default)]
struct SharedParts {
    cluster: SharedClusterState,
    metrics: ControllerMetrics,
    known_checks: KnownChecks,
    progress: Progress,
}

/// Serves the webhook, the metrics and the health, in parts that end when dropped.
async fn serve(
    options: &ControllerOptions,
    listeners: Listeners,
    shared: &SharedParts,
    stop: &watch::Receiver<bool>,
) -> io::Result<Parts> {
    let certificate = ServedCertificate::new();
    let mut parts = Parts::default();
    let Listeners { webhook, metrics, health, source, tls_profile } = listeners;
    let tls = Tls::new(&certificate).map_err(io::Error::other)?;
    if let Some(file) = tls_profile {
        tls.load(&file).await.map_err(io::Error::other)?;
        parts.spawn("watch of the TLS profile", tls.clone().follow(file));
    }
    let needs_certificate = webhook.is_some() || metrics.is_some();
    if needs_certificate {
        let (certificate, client, namespace) =
            (certificate.clone(), options.client.clone(), options.namespace.clone());
        parts.spawn("watch of the certificate", async move {
            certificate.follow(source, client, &namespace).await;
        });
    }
    if let Some(listener) = health {
        let certificate = needs_certificate.then(|| certificate.clone());
        let router = Health { progress: shared.progress.clone(), certificate }.router();
        // Until the end of the process, so that kubelet does not count a controller that is stopping as dead.
        parts.spawn("health server", ended(axum::serve(PlainListener::new(listener), router).into_future()));
    }
    if let Some(listener) = webhook {
        let latest = policy_index::watch(&options.client, &mut parts);
        let admission = AdmissionServer::new(latest, options.now).sharing(shared.known_checks.clone());
        let server = admission::serve(listener, tls.clone(), admission, Router::new(), stopped(stop.clone()));
        parts.spawn("admission webhook", ended(server));
    }
    if let Some(listener) = metrics {
        let router = metrics::router(shared.cluster.clone(), shared.metrics.clone(), certificate);
        let server = axum::serve(TlsListener::new(listener, tls), router)
            .with_graceful_shutdown(stopped(stop.clone()))
            .into_future();
        parts.spawn("metrics server", ended(server));
    }
    Ok(parts)
}

async fn ended(server: impl Future<Output = io::Result<()>>) {
    if let Err(error) = server.await {
        tracing::error!("a server has stopped: {error}");
    }
}

async fn lead_in_turn(
    options: &ControllerOptions,
    rotates_certificates: bool,
    shared: &SharedParts,
    mut stop: watch::Receiver<bool>,
) -> Result<(), PartEnded> {
    let lease = LeaseOptions {
        namespace: options.namespace.clone(),
        name: options.names.lease.clone(),
        identity: options.identity.clone(),
        terms: options.lease,
        now: options.now,
    };
    let mut elector = LeaderElector::start(options.client.clone(), lease, shared.progress.clone());
    let mut leadership = elector.leadership();
    let work = leader::LeaderOptions {
        client: options.client.clone(),
        namespace: options.namespace.clone(),
        now: options.now,
        known_checks: shared.known_checks.clone(),
        progress: shared.progress.clone(),
    };
    while !*stop.borrow() {
        tokio::select! {
            () = leadership.gained() => {}
            ended = elector.ended() => return Err(ended),
            _ = stop.wait_for(|stop| *stop) => break,
        }
        shared.metrics.set_leading(true);
        let mut certificates = Parts::default();
        if rotates_certificates {
            certificates
                .spawn("rotation of the certificates", rotate_certificates(options.clone(), shared.clone()));
        }
        let leading =
            leader::lead(&work, &shared.cluster, &shared.metrics, leadership.clone(), stopped(stop.clone()));
        let result = tokio::select! {
            result = leading => result,
            ended = certificates.ended() => Err(ended),
            ended = elector.ended() => Err(ended),
        };
        drop(certificates);
        // The watches have ended, so the state would only age.
        shared.cluster.forget();
        shared.metrics.set_leading(false);
        result?;
    }
    elector.release().await;
    Ok(())
}

/// Rotates the certificates while this controller leads.
async fn rotate_certificates(options: ControllerOptions, shared: SharedParts) {
    let mut wanted = shared.cluster.intervals();
    let Ok(Some(first)) = wanted.wait_for(Option::is_some).await.map(|known| *known) else { return };
    let (sender, intervals) = watch::channel(first);
    let names = options.names;
    let rotation = RotationOptions {
        client: options.client,
        names: WebhookNames { service: names.service, namespace: options.namespace },
        authority: names.authority,
        bundle: names.bundle,
        webhooks: names.webhooks,
        injects: options.injects_ca_bundle,
        labels: BTreeMap::new(),
        metrics: shared.metrics,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_process_ends_with_a_part_of_it_unless_it_was_asked_to_stop() {
        let (asked, stop) = watch::channel(false);
        let work = || async {
            stop.clone().wait_for(|stop| *stop).await.expect("the sender lives");
            tokio::task::yield_now().await;
            Ok(())
        };
        let mut parts = Parts::default();
        parts.spawn("server", stopped(stop.clone()));
        parts.spawn("watch", async { panic!("as a test wants it") });
        let ended = unless_a_part_ends(&mut parts, &stop, work()).await;
        assert_eq!(ended, Err(PartEnded { name: "watch", panicked: true }));
        asked.send_replace(true);
        assert_eq!(unless_a_part_ends(&mut parts, &stop, work()).await, Ok(()), "its servers end, too");
    }
}
