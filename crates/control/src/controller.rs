//! One of several controllers: all of them answer the API server, and one leads.

use std::{collections::BTreeMap, fmt, io, path::PathBuf, time::Duration};

use axum::Router;
use jiff::Timestamp;
use knmstate_client::lease;
use knmstate_core::lease::Terms;
use kube::{Client, Config};
use tokio::{net::TcpListener, sync::watch, task::JoinSet};

use crate::{
    admission::{self, Questions},
    catalogue,
    certificates::{self, Serving, Source, authority::Names, keeper},
    leader,
    measures::Measures,
    metrics,
    sources::LiveWorld,
    tls::Tls,
    tls_listener::TlsListener,
};

/// What a controller works with.
#[derive(Clone)]
pub struct Options {
    pub client: Client,
    /// Its own namespace, where the lease is, and the pods of handlers.
    pub namespace: String,
    /// Different for every process, also for two lives of one pod: one that takes over the lease of its former self
    /// does so while the last writes of that one may still be on their way.
    pub identity: String,
    pub names: ObjectNames,
    pub lease: Terms,
    pub now: fn() -> Timestamp,
}

/// Objects that controllers share, by name.
#[derive(Clone, Debug)]
pub struct ObjectNames {
    pub lease: String,
    /// The Service of the webhook, and the Secret with its certificate.
    pub service: String,
    /// The Secret with the certificate authority.
    pub authority: String,
    /// Both webhook configurations.
    pub webhooks: String,
}

/// What it answers, and by which certificate.
#[derive(Debug)]
pub struct Doors {
    pub webhook: Option<TcpListener>,
    pub metrics: Option<TcpListener>,
    pub source: Source,
    /// The file with the profile that TLS is spoken by; it need not be there.
    pub tls_profile: Option<PathBuf>,
}

impl fmt::Debug for Options {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Options")
            .field("namespace", &self.namespace)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// A client that leaves it to us when to try again.
pub fn client(mut config: Config) -> kube::Result<Client> {
    config.connect_timeout = Some(Duration::from_secs(5));
    config.default_retry = false;
    Client::try_from(config)
}

/// Works until `stop` becomes true, and gives the lease back then.
pub async fn run(options: Options, doors: Doors, stop: watch::Receiver<bool>) -> io::Result<()> {
    let world = LiveWorld::default();
    let measures = Measures::default();
    let keeps_certificates = matches!(doors.source, Source::OwnAuthority(_));
    let _answering = answer(&options, doors, &world, &measures, &stop).await?;
    lead_in_turn(&options, keeps_certificates, &world, &measures, stop).await;
    Ok(())
}

/// Answers the API server and whoever reads the metrics, in tasks that end when dropped.
async fn answer(
    options: &Options,
    doors: Doors,
    world: &LiveWorld,
    measures: &Measures,
    stop: &watch::Receiver<bool>,
) -> io::Result<JoinSet<()>> {
    let serving = Serving::new();
    let mut tasks = JoinSet::new();
    let Doors { webhook, metrics, source, tls_profile } = doors;
    let tls = Tls::new(&serving).map_err(io::Error::other)?;
    if let Some(file) = tls_profile {
        tls.load(&file).await.map_err(io::Error::other)?;
        tasks.spawn(tls.clone().follow(file));
    }
    if webhook.is_some() || metrics.is_some() {
        let (serving, client, namespace) =
            (serving.clone(), options.client.clone(), options.namespace.clone());
        tasks.spawn(async move { serving.follow(source, client, &namespace).await });
    }
    if let Some(listener) = webhook {
        let (latest, mut watches) = catalogue::watch(&options.client);
        tasks.spawn(async move { while watches.join_next().await.is_some() {} });
        let questions = Questions::new(latest, options.now);
        let server = admission::serve(listener, tls.clone(), questions, Router::new(), stopped(stop.clone()));
        tasks.spawn(async move {
            if let Err(error) = server.await {
                tracing::error!("the webhook has stopped: {error}");
            }
        });
    }
    if let Some(listener) = metrics {
        let listener = TlsListener::start(listener, tls)?;
        let server = axum::serve(listener, metrics::router(world.clone(), measures.clone(), serving));
        let server = server.with_graceful_shutdown(stopped(stop.clone()));
        tasks.spawn(async move {
            if let Err(error) = server.await {
                tracing::error!("metrics are no longer served: {error}");
            }
        });
    }
    Ok(tasks)
}

async fn lead_in_turn(
    options: &Options,
    keeps_certificates: bool,
    world: &LiveWorld,
    measures: &Measures,
    mut stop: watch::Receiver<bool>,
) {
    let lease = lease::Options {
        namespace: options.namespace.clone(),
        name: options.names.lease.clone(),
        identity: options.identity.clone(),
        terms: options.lease,
        now: options.now,
    };
    let keeper = lease::Keeper::start(options.client.clone(), lease);
    let mut leadership = keeper.leadership();
    let work = leader::Options {
        client: options.client.clone(),
        namespace: options.namespace.clone(),
        now: options.now,
    };
    while !*stop.borrow() {
        tokio::select! {
            () = leadership.gained() => {}
            _ = stop.wait_for(|stop| *stop) => break,
        }
        measures.leads(true);
        let mut certificates = JoinSet::new();
        if keeps_certificates {
            certificates.spawn(keep_certificates(options.clone(), world.clone(), measures.clone()));
        }
        leader::lead(&work, world, measures, leadership.clone(), stopped(stop.clone())).await;
        certificates.shutdown().await;
        // What is not kept up to date any more is nobody's knowledge.
        world.forget();
        measures.leads(false);
    }
    keeper.give_back().await;
}

/// For as long as this controller leads.
async fn keep_certificates(options: Options, world: LiveWorld, measures: Measures) {
    let mut wanted = world.intervals();
    let Ok(Some(first)) = wanted.wait_for(Option::is_some).await.map(|known| *known) else { return };
    let (sender, intervals) = watch::channel(first);
    let names = options.names;
    let keeper = keeper::Options {
        client: options.client,
        names: Names { service: names.service, namespace: options.namespace },
        authority: names.authority,
        webhooks: names.webhooks,
        labels: BTreeMap::new(),
        measures,
        now: options.now,
    };
    let follow = async {
        while wanted.changed().await.is_ok() {
            if let Some(now_wanted) = *wanted.borrow_and_update() {
                sender.send_if_modified(|known| std::mem::replace(known, now_wanted) != now_wanted);
            }
        }
    };
    tokio::join!(certificates::keep(keeper, intervals), follow);
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}
