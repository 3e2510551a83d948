//! `knmstate controller`: turns policies into orders for nodes.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use knmstate_control::{self as control, CertificateSource, ControllerOptions, Listeners, ObjectNames};
use knmstate_core::lease::LeaseTiming;
use knmstate_operator::Settings;

use super::{given, now, on_runtime};
use crate::{address::Address, cluster, logging, shutdown, version::version};

/// Decide for the whole cluster which node applies which policy, and when.
///
/// It also serves the admission webhooks for policies. Several may run: all of them serve, one leads.
#[derive(clap::Args, Clone, Debug)]
#[command(args_override_self = true)]
pub struct Args {
    /// The namespace of handlers and controllers.
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAME")]
    namespace: Option<String>,

    /// The same, under the name in manifests of kubernetes-nmstate.
    #[arg(long, env = "HANDLER_NAMESPACE", value_name = "NAME", hide = true)]
    handler_namespace: Option<String>,

    /// The prefix of the names of all objects, without the dash.
    #[arg(long, env = "HANDLER_PREFIX", value_name = "PREFIX")]
    prefix: Option<String>,

    /// The name of this replica; unique among the controllers.
    #[arg(long, env = "POD_NAME", value_name = "NAME", default_value = "controller")]
    pod_name: String,

    /// The address of the admission webhooks; 0 for none.
    #[arg(long, value_name = "ADDRESS", default_value = ":9443")]
    webhook_address: Address,

    /// The address of the metrics; 0 for none.
    #[arg(long, env = "METRICS_BIND_ADDRESS", value_name = "ADDRESS", default_value = ":8443")]
    metrics_address: Address,

    /// The address of /healthz and /readyz, without TLS; 0 for none.
    #[arg(long, value_name = "ADDRESS", default_value = "0")]
    health_address: Address,

    /// The Secret with the certificate to serve, if another component writes it, such as cert-manager or OpenShift.
    /// Without it, and without --certificate-dir, the controllers are their own certificate authority.
    #[arg(long, value_name = "NAME", conflicts_with = "certificate_dir")]
    certificate_secret: Option<String>,

    /// The directory with tls.crt and tls.key to serve, if another component writes them.
    #[arg(long, value_name = "DIR")]
    certificate_dir: Option<PathBuf>,

    /// Set the CA bundle of the webhook configurations, which otherwise the operator does. Only for controllers without an
    /// operator, with the rights of `knmstate manifests --controller-injects-ca-bundle`.
    #[arg(long, conflicts_with_all = ["certificate_secret", "certificate_dir"])]
    inject_ca_bundle: bool,

    /// The file with the TLS profile: JSON with ciphers, minTLSVersion and curves. It is read again
    /// when it changes. While there is no such file, TLS 1.2 and 1.3 are used with all safe ciphers.
    #[arg(long, env = "TLS_PROFILE_FILE", value_name = "FILE")]
    tls_profile: Option<PathBuf>,

    /// How long after its last renewal another controller takes over the lease, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(2..=300), hide = true)]
    lease_duration: u64,

    /// The kubeconfig file. Without it, the service account of the pod is used.
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<String>,

    /// How much is logged.
    #[arg(long = "v", value_enum, value_name = "LEVEL", default_value_t)]
    verbosity: logging::Verbosity,

    /// The format of the log.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    log_format: logging::Format,
}

pub fn run(args: Args) -> Result<()> {
    logging::start(args.log_format, args.verbosity, &[]).context("cannot set up logging")?;
    tracing::info!("knmstate {}", version());
    on_runtime(run_controller(args))
}

async fn run_controller(args: Args) -> Result<()> {
    let Some(namespace) = given(args.namespace).or(given(args.handler_namespace)) else {
        bail!("POD_NAMESPACE is mandatory: the namespace of handlers and controllers");
    };
    let settings =
        Settings { namespace: namespace.clone(), prefix: given(args.prefix), ..Settings::default() };
    let names = ObjectNames {
        lease: settings.leader_lease(),
        service: settings.webhook_service(),
        authority: settings.authority_secret(),
        bundle: settings.ca_bundle_config_map(),
        webhooks: settings.webhook_configuration(),
    };
    let source = match (args.certificate_secret, args.certificate_dir) {
        (Some(name), _) => CertificateSource::Secret(name),
        (None, Some(directory)) => CertificateSource::Directory(directory),
        (None, None) => CertificateSource::OwnAuthority(settings.certificate_secret()),
    };
    let stop = shutdown::on_request();
    let config = cluster::config(given(args.kubeconfig).map(PathBuf::from).as_deref()).await?;
    let client = control::client(config).context("cannot create a client of the API server")?;
    let listeners = Listeners {
        webhook: args.webhook_address.listen().await?,
        metrics: args.metrics_address.listen().await?,
        health: args.health_address.listen().await?,
        source,
        tls_profile: args.tls_profile.filter(|path| !path.as_os_str().is_empty()),
    };
    let identity = format!("{}_{}", args.pod_name, now().as_nanosecond());
    let lease = LeaseTiming::with_duration(Duration::from_secs(args.lease_duration));
    let options = ControllerOptions {
        client,
        namespace,
        identity,
        names,
        lease,
        injects_ca_bundle: args.inject_ca_bundle,
        now,
    };
    Ok(control::run(options, listeners, stop).await?)
}
