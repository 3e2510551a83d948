//! `knmstate handler`: the agent of one node of a cluster.

mod args;

use std::{convert::Infallible, fs, io, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail};
use knmstate_agent::{
    Agent, AgentParts, EngineSettings, Health, KubeApiEndpoint, KubernetesStore, KubernetesStoreOptions,
    Ledger, Prober, Store as _, WORK_LOCK_FILE,
};
use knmstate_host::{NetworkManagerHost, NetworkManagerOptions};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::{sleep, timeout},
};

pub use self::args::Args;
use self::args::Settings;
use super::{make_private_directory, now, on_runtime};
use crate::{cluster, logging, node_lock, version::version};

/// How long the work may take to end when it is asked to, and what is left to be logged after that: less than kubelet's
/// usual patience.
const WORK_END: Duration = Duration::from_secs(7);
const LAST_WORDS: Duration = Duration::from_secs(3);
/// How long to wait before trying again to listen at the health address, which another handler may still hold.
const HEALTH_PAUSE: Duration = Duration::from_secs(5);

pub fn run(args: Args) -> Result<()> {
    let (format, verbosity) = args.logging();
    logging::start(format, verbosity, &[]).context("cannot set up logging")?;
    tracing::info!("knmstate {}", version());
    let settings = args.settings()?;
    on_runtime(handle(settings))
}

async fn handle(settings: Settings) -> Result<()> {
    let stop = on_signal()?;
    set_aside(&settings.readiness_file)?;
    // One that waits for its turn is well, too.
    let health = Health::default();
    let mut serving = tokio::spawn(serve_health(settings.health_address, health.clone()));
    let result = tokio::select! {
        result = take_turn(&settings, &health, stop) => result,
        // Kubelet would end the process anyway, and only later.
        end = &mut serving => match end {
            Ok(Err(error)) => Err(error),
            Err(_) => Err(anyhow!("the health endpoint has panicked")),
        },
    };
    serving.abort();
    result
}

/// Waits until no other handler works on this node, and works until the request to stop.
async fn take_turn(settings: &Settings, health: &Health, stop: watch::Receiver<bool>) -> Result<()> {
    let mut ended = stop.clone();
    let _lock = tokio::select! {
        lock = node_lock::acquire(settings.lock_file.clone()) => lock,
        _ = ended.wait_for(|stop| *stop) => return Ok(()),
    };
    make_private_directory(&settings.state_dir)?;
    let config = cluster::config(settings.kubeconfig.as_deref()).await?;
    let store = KubernetesStore::start(KubernetesStoreOptions {
        config: config.clone(),
        node: settings.node.clone(),
        relationship_labels: settings.labels.clone(),
        now,
    })
    .context("cannot make a client of the API server")?;

    let work = Box::pin(work(settings, config, store.clone(), health, stop.clone()));
    let result = until_stopped(stop, work).await;
    health.set_ready(false);
    set_aside(&settings.readiness_file)?;
    if !store.flush(LAST_WORDS).await {
        tracing::warn!("not all results were delivered; the rest is delivered after the next start");
    }
    result
}

/// The work of the handler, until it is asked to stop and has come to a point where it can.
async fn work(
    settings: &Settings,
    config: kube::Config,
    store: KubernetesStore,
    health: &Health,
    mut stop: watch::Receiver<bool>,
) -> Result<()> {
    let state = &settings.state_dir;
    let ledger = Ledger::open(state.join("orders"))
        .with_context(|| format!("cannot read the orders in {}", state.display()))?;
    let options = NetworkManagerOptions {
        memory_only: settings.memory_only,
        allow_dispatch_scripts: settings.allow_dispatch_scripts,
        ..NetworkManagerOptions::new(state.join("journal"))
    };
    let host =
        NetworkManagerHost::start(options).await.context("cannot watch the network of this machine")?;
    let threads = host.clone();
    health.monitor(move || threads.hung_threads());
    let api = Arc::new(KubeApiEndpoint::new(config, settings.node.clone()));
    let prober = Prober::new(host.clone(), Some(api), settings.probe_dns_host.clone());
    let engine = EngineSettings {
        retries: settings.retries,
        leases: settings.lease_wait,
        report_percent: settings.report_percent,
        work_lock: Some(state.join(WORK_LOCK_FILE)),
        ..EngineSettings::new(settings.node.clone())
    };
    let agent =
        Agent::new(AgentParts { host, store, prober, ledger, settings: engine, health: health.clone() })
            .await;

    let mut observed = agent.observed();
    let say_when_ready = async {
        // The sender lives as long as the agent.
        let _ = observed.wait_for(Option::is_some).await;
        health.set_ready(true);
        // A disk that is full is no reason to leave the node alone.
        if let Err(error) = fs::write(&settings.readiness_file, "") {
            tracing::warn!("cannot write {}: {error}", settings.readiness_file.display());
        }
        tracing::info!(node = settings.node, "ready");
        std::future::pending::<Infallible>().await
    };
    let stopped = async {
        let _ = stop.wait_for(|stop| *stop).await;
    };
    tokio::select! {
        end = agent.run(stopped) => Ok(end?),
        never = say_when_ready => match never {},
    }
}

/// Runs the work to its end; once it is asked to stop, no longer than it may take.
async fn until_stopped(
    mut stop: watch::Receiver<bool>,
    work: impl Future<Output = Result<()>>,
) -> Result<()> {
    tokio::pin!(work);
    tokio::select! {
        result = &mut work => return result,
        _ = stop.wait_for(|stop| *stop) => {}
    }
    tracing::info!("asked to stop");
    timeout(WORK_END, work).await.unwrap_or_else(|_| {
        tracing::warn!("work is still going on; what it has changed is taken back by the machine itself");
        Ok(())
    })
}

/// Becomes true at the first SIGTERM or SIGINT.
fn on_signal() -> Result<watch::Receiver<bool>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen to signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen to signals")?;
    let (sender, stop) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        sender.send_replace(true);
        sender.closed().await;
    });
    Ok(stop)
}

/// A port that is taken is a pity, and no reason to leave the node alone. Returns only when it no longer answers.
async fn serve_health(address: SocketAddr, health: Health) -> Result<Infallible> {
    let mut logged = false;
    loop {
        match knmstate_agent::serve_health(address, health.clone()).await {
            Ok(mut serving) => {
                tracing::info!(address = %serving.address, "answering /healthz and /readyz");
                serving.ended().await;
                bail!("the health endpoint has ended");
            }
            Err(error) if !logged => {
                tracing::warn!("cannot answer /healthz at {address}: {error}; it will be tried again");
                logged = true;
            }
            Err(_) => {}
        }
        sleep(HEALTH_PAUSE).await;
    }
}

/// Removes the file of an earlier run, from which a probe could conclude that this one is ready.
fn set_aside(readiness_file: &Path) -> Result<()> {
    match fs::remove_file(readiness_file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", readiness_file.display()))
        }
        _ => Ok(()),
    }
}
