//! `knmstate controller`: from policies to the orders of nodes.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use knmstate_control::{
    controller::{self, Options},
    sources::LiveWorld,
};
use tokio::sync::watch;

use super::{now, on_runtime};
use crate::{cluster, logging, shutdown};

/// Decide for the whole cluster: which node carries out which policy, and when. Several may run; one leads.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The namespace of handlers and controllers.
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAME")]
    namespace: Option<String>,

    /// The same, for manifests that say it so.
    #[arg(long, env = "HANDLER_NAMESPACE", value_name = "NAME", hide = true)]
    handler_namespace: Option<String>,

    /// The name of this controller among the others.
    #[arg(long, env = "POD_NAME", value_name = "NAME", default_value = "controller")]
    pod_name: String,

    /// How to reach the API server. Without it, as a pod does.
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<String>,

    /// How much is logged.
    #[arg(long = "v", value_enum, value_name = "LEVEL", default_value_t)]
    verbosity: logging::Verbosity,

    /// How the log looks.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    log_format: logging::Format,
}

pub fn run(args: Args) -> Result<()> {
    logging::start(args.log_format, args.verbosity, &[]).context("cannot set up logging")?;
    on_runtime(control(args))
}

async fn control(args: Args) -> Result<()> {
    let Some(namespace) =
        [args.namespace, args.handler_namespace].into_iter().flatten().find(|name| !name.is_empty())
    else {
        bail!("POD_NAMESPACE is mandatory: the namespace of handlers and controllers");
    };
    let (stopping, stop) = watch::channel(false);
    tokio::spawn(async move {
        shutdown::requested().await;
        stopping.send_replace(true);
        stopping.closed().await;
    });
    let kubeconfig = args.kubeconfig.filter(|path| !path.is_empty()).map(PathBuf::from);
    let config = cluster::config(kubeconfig.as_deref()).await?;
    let client = controller::client(config).context("cannot make a client of the API server")?;
    // A pod that is replaced may have the name of its predecessor, which may still be running.
    let identity = format!("{}_{}", args.pod_name, now().as_nanosecond());
    controller::run(Options { client, namespace, identity, now }, LiveWorld::default(), stop).await;
    Ok(())
}
