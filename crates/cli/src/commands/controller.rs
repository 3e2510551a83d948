//! `knmstate controller`: from policies to the orders of nodes.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use knmstate_control::{
    certificates::Source,
    controller::{self, Doors, ObjectNames, Options},
};
use knmstate_core::lease::Terms;
use knmstate_operator::Settings;

use super::{given, now, on_runtime};
use crate::{VERSION, address::Address, cluster, logging, shutdown};

/// Decide for the whole cluster which node carries out which policy, and when.
///
/// It also answers the API server's questions about policies. Several may run: all of them answer, one leads.
#[derive(clap::Args, Clone, Debug)]
#[command(args_override_self = true)]
pub struct Args {
    /// The namespace of handlers and controllers.
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAME")]
    namespace: Option<String>,

    /// The same, for manifests that say it so.
    #[arg(long, env = "HANDLER_NAMESPACE", value_name = "NAME", hide = true)]
    handler_namespace: Option<String>,

    /// What comes before the names of all objects, without the dash.
    #[arg(long, env = "HANDLER_PREFIX", value_name = "PREFIX")]
    prefix: Option<String>,

    /// The name of this controller among the others.
    #[arg(long, env = "POD_NAME", value_name = "NAME", default_value = "controller")]
    pod_name: String,

    /// Where the API server asks about policies; 0 for nowhere.
    #[arg(long, value_name = "ADDRESS", default_value = ":9443")]
    webhook_address: Address,

    /// Where metrics are served; 0 for nowhere.
    #[arg(long, env = "METRICS_BIND_ADDRESS", value_name = "ADDRESS", default_value = ":8443")]
    metrics_address: Address,

    /// The Secret with the certificate to serve, when something else keeps it, such as cert-manager or OpenShift.
    /// Without it, and without --certificate-dir, the controllers are their own certificate authority.
    #[arg(long, value_name = "NAME", conflicts_with = "certificate_dir")]
    certificate_secret: Option<String>,

    /// The folder with tls.crt and tls.key to serve, when something else keeps them.
    #[arg(long, value_name = "DIR")]
    certificate_dir: Option<PathBuf>,

    /// The file with the profile that TLS is spoken by: JSON with ciphers, minTLSVersion and curves. It is read again
    /// when it changes. While there is no such file, TLS 1.2 and 1.3 are spoken with all ciphers that are safe.
    #[arg(long, env = "TLS_PROFILE_FILE", value_name = "FILE")]
    tls_profile: Option<PathBuf>,

    /// How long after its last sign of life a leader is given up, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(2..=300), hide = true)]
    lease_duration: u64,

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
    tracing::info!("knmstate {VERSION}");
    on_runtime(control(args))
}

async fn control(args: Args) -> Result<()> {
    let Some(namespace) = given(args.namespace).or(given(args.handler_namespace)) else {
        bail!("POD_NAMESPACE is mandatory: the namespace of handlers and controllers");
    };
    let settings =
        Settings { namespace: namespace.clone(), prefix: given(args.prefix), ..Settings::default() };
    let names = ObjectNames {
        lease: settings.leader_lease(),
        service: settings.webhook_service(),
        authority: settings.authority_secret(),
        webhooks: settings.webhook_configuration(),
    };
    let source = match (args.certificate_secret, args.certificate_dir) {
        (Some(name), _) => Source::Secret(name),
        (None, Some(folder)) => Source::Folder(folder),
        (None, None) => Source::OwnAuthority(settings.certificate_secret()),
    };
    let stop = shutdown::on_request();
    let config = cluster::config(given(args.kubeconfig).map(PathBuf::from).as_deref()).await?;
    let client = controller::client(config).context("cannot make a client of the API server")?;
    let doors = Doors {
        webhook: args.webhook_address.listen().await?,
        metrics: args.metrics_address.listen().await?,
        source,
        tls_profile: args.tls_profile.filter(|path| !path.as_os_str().is_empty()),
    };
    let identity = format!("{}_{}", args.pod_name, now().as_nanosecond());
    let lease = Terms::lasting(Duration::from_secs(args.lease_duration));
    let options = Options { client, namespace, identity, names, lease, now };
    controller::run(options, doors, stop).await.context("cannot serve")
}
