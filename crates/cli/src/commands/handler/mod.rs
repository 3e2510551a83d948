//! `knmstate handler`: the agent of one node of a cluster.

mod args;
mod lock;

use std::{fs, io, net::SocketAddr, os::unix::fs::DirBuilderExt as _, path::Path, time::Duration};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use knmstate_agent::{
    health::{self, Health},
    store::Store,
    stores::kubernetes::{self, KubernetesStore},
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::{sleep, timeout},
};

pub use self::args::Args;
use self::args::Settings;
use crate::logging;

/// How long the work may take to end when it is asked to, and what is left to be told after that: less than kubelet's
/// usual patience.
const WORK_END: Duration = Duration::from_secs(7);
const LAST_WORDS: Duration = Duration::from_secs(3);
/// How long to wait before trying again to listen at the health address, which another handler may still hold.
const HEALTH_PAUSE: Duration = Duration::from_secs(5);

pub fn run(args: Args) -> Result<()> {
    let (format, verbosity) = args.logging();
    logging::start(format, verbosity).context("cannot set up logging")?;
    let settings = args.settings()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(handle(settings));
    // What still blocks a thread is not waited for.
    runtime.shutdown_background();
    result
}

async fn handle(settings: Settings) -> Result<()> {
    let stop = on_signal()?;
    set_aside(&settings.readiness_file)?;
    // One that waits for its turn is well, too.
    let health = Health::default();
    let serving = tokio::spawn(serve_health(settings.health_address, health.clone()));
    let mut ended = stop.clone();
    let _lock = tokio::select! {
        lock = lock::acquire(settings.lock_file.clone()) => lock,
        _ = ended.wait_for(|stop| *stop) => return Ok(()),
    };
    make_private_folder(&settings.state_dir)?;
    let store = KubernetesStore::start(kubernetes::Options {
        config: config(settings.kubeconfig.as_deref()).await?,
        node: settings.node.clone(),
        relationship_labels: settings.labels.clone(),
        now,
    })
    .context("cannot make a client of the API server")?;

    let work = work(&settings, &store, &health, stop.clone());
    let result = until_stopped(stop, work).await;
    health.set_ready(false);
    set_aside(&settings.readiness_file)?;
    if !store.flush(LAST_WORDS).await {
        tracing::warn!("not everything could be told; the rest is told after the next start");
    }
    serving.abort();
    result
}

/// The work of the handler, until it is asked to stop and has come to a point where it can.
///
/// INTEGRATION: this is the one place where the report, the engine and the probes are started, on `store` and on a
/// host with its journal in `settings.state_dir.join("journal")`. Each loop shows that it is alive by
/// `health.expect(name, limit)`. Ready is said after the network was read for the first time.
async fn work(
    settings: &Settings,
    _store: &impl Store,
    health: &Health,
    mut stop: watch::Receiver<bool>,
) -> Result<()> {
    health.set_ready(true);
    fs::write(&settings.readiness_file, "").context("cannot write the readiness file")?;
    tracing::info!(node = settings.node, "ready");
    // Whoever sends this is gone only with the process.
    let _ = stop.wait_for(|stop| *stop).await;
    Ok(())
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

async fn config(kubeconfig: Option<&Path>) -> Result<kube::Config> {
    let Some(path) = kubeconfig else {
        return kube::Config::incluster()
            .context("this is no pod of a cluster: name a kubeconfig by --kubeconfig");
    };
    let read = async {
        let kubeconfig = Kubeconfig::read_from(path)?;
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await
    };
    read.await.with_context(|| format!("cannot use the kubeconfig {}", path.display()))
}

/// A port that is taken is a pity, and no reason to leave the node alone.
async fn serve_health(address: SocketAddr, health: Health) {
    let mut told = false;
    loop {
        match health::serve(address, health.clone()).await {
            Ok(serving) => {
                tracing::info!(address = %serving.address, "answering /healthz and /readyz");
                return std::future::pending().await;
            }
            Err(error) if !told => {
                tracing::warn!("cannot answer /healthz at {address}: {error}; it will be tried again");
                told = true;
            }
            Err(_) => {}
        }
        sleep(HEALTH_PAUSE).await;
    }
}

/// Nobody is to read from a file of an earlier run that this one is ready.
fn set_aside(readiness_file: &Path) -> Result<()> {
    match fs::remove_file(readiness_file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", readiness_file.display()))
        }
        _ => Ok(()),
    }
}

/// What is kept there may hold secrets of the network.
fn make_private_folder(path: &Path) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .with_context(|| format!("cannot make the folder {} (--state-dir)", path.display()))
}

#[expect(clippy::disallowed_methods, reason = "this is the binary, where time comes in")]
fn now() -> Timestamp {
    Timestamp::now()
}
