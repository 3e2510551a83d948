//! `knmstate operator`: from an NMState to everything that a cluster needs.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use knmstate_core::lease::LeaseTiming;
use knmstate_operator::{
    self as operator, AutoCreate, AutoCreateMode, Config, OperatorOptions, installation,
};

use super::{given, now, on_runtime};
use crate::{address::Address, cluster, logging, shutdown, version::version};

/// Install and maintain what an NMState asks for: rights, guards, the controller and a handler on every node.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    place: Place,

    /// The image of handlers and controller.
    #[arg(long, env = "RELATED_IMAGE_HANDLER_IMAGE", value_name = "IMAGE")]
    image: Option<String>,

    /// When nodes pull that image: Always, IfNotPresent or Never.
    #[arg(long, env = "HANDLER_IMAGE_PULL_POLICY", value_name = "POLICY", default_value = "IfNotPresent")]
    pull_policy: String,

    /// The namespace of Prometheus, which may read the metrics.
    #[arg(long, env = "MONITORING_NAMESPACE", value_name = "NAME", default_value = "monitoring")]
    monitoring_namespace: String,

    /// Whether an NMState is made where there is none: always, never, or auto, which is on the platforms of
    /// --auto-create-platforms alone.
    #[arg(long, env = "AUTO_CREATE", value_name = "MODE", default_value = "auto", value_parser = str::parse::<AutoCreateMode>)]
    auto_create: AutoCreateMode,

    /// The platforms on which an NMState is created automatically, as OpenShift's Infrastructure names them.
    #[arg(
        long,
        env = "AUTO_CREATE_PLATFORMS",
        value_name = "NAMES",
        default_value = "BareMetal",
        value_delimiter = ','
    )]
    auto_create_platforms: Vec<String>,

    /// How often handlers try a policy before it fails.
    #[arg(long, env = "NNCP_MAX_RETRIES", value_name = "COUNT", default_value = "5")]
    max_retries: String,

    /// The longest time between two attempts of handlers, in seconds.
    #[arg(long, env = "NNCP_MAX_BACKOFF_SECONDS", value_name = "SECONDS", default_value = "30")]
    max_backoff: String,

    /// The time between the first two attempts of handlers, in seconds.
    #[arg(long, env = "NNCP_INITIAL_BACKOFF_SECONDS", value_name = "SECONDS", default_value = "1")]
    initial_backoff: String,

    /// The name of this replica; unique among the operators.
    #[arg(long, env = "POD_NAME", value_name = "NAME", default_value = "operator")]
    pod_name: String,

    /// The address of /healthz and /readyz; 0 for none.
    #[arg(long, value_name = "ADDRESS", default_value = ":8081")]
    health_address: Address,

    /// How long after its last renewal another operator takes over the lease, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(2..=300), hide = true)]
    lease_duration: u64,

    /// How much is logged.
    #[arg(long = "v", value_enum, value_name = "LEVEL", default_value_t)]
    verbosity: logging::Verbosity,

    /// The format of the log.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    log_format: logging::Format,
}

/// The cluster, and the namespaces in it.
#[derive(clap::Args, Clone, Debug)]
pub struct Place {
    /// The namespace of handlers and controller [default: nmstate]
    #[arg(long, env = "HANDLER_NAMESPACE", value_name = "NAME")]
    handler_namespace: Option<String>,

    /// The namespace of the operator [default: that of handlers and controller]
    #[arg(long, env = "OPERATOR_NAMESPACE", value_name = "NAME")]
    operator_namespace: Option<String>,

    /// The prefix of the names of all objects, without the dash.
    #[arg(long, env = "HANDLER_PREFIX", value_name = "PREFIX")]
    prefix: Option<String>,

    /// The kubeconfig file. Without it, the service account of the pod is used.
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<String>,
}

impl Place {
    /// The default configuration of an operator there.
    pub fn config(&self) -> Config {
        let namespace = given(self.handler_namespace.clone()).unwrap_or_else(|| "nmstate".to_owned());
        Config {
            operator_namespace: given(self.operator_namespace.clone()).unwrap_or_else(|| namespace.clone()),
            namespace,
            prefix: given(self.prefix.clone()),
            ..installation::default_config("")
        }
    }

    pub async fn client(&self) -> Result<kube::Client> {
        kube::Client::try_from(self.client_config().await?).context("cannot make a client of the API server")
    }

    async fn client_config(&self) -> Result<kube::Config> {
        let kubeconfig = given(self.kubeconfig.clone()).map(PathBuf::from);
        cluster::config(kubeconfig.as_deref()).await
    }
}

impl Args {
    fn config(&self) -> Result<Config> {
        let Some(image) = given(self.image.clone()) else {
            bail!("RELATED_IMAGE_HANDLER_IMAGE is mandatory: the image of handlers and controller");
        };
        if !["Always", "IfNotPresent", "Never"].contains(&self.pull_policy.as_str()) {
            bail!(
                "HANDLER_IMAGE_PULL_POLICY is {:?}, which is none of Always, IfNotPresent and Never",
                self.pull_policy
            );
        }
        let handlers = [
            ("NNCP_MAX_RETRIES", &self.max_retries),
            ("NNCP_MAX_BACKOFF_SECONDS", &self.max_backoff),
            ("NNCP_INITIAL_BACKOFF_SECONDS", &self.initial_backoff),
        ];
        let platforms = self.auto_create_platforms.iter().map(|name| name.trim().to_owned());
        Ok(Config {
            image,
            pull_policy: self.pull_policy.clone(),
            monitoring_namespace: self.monitoring_namespace.clone(),
            handler_environment: handlers.map(|(name, value)| (name.to_owned(), value.clone())).into(),
            auto_create: AutoCreate {
                mode: self.auto_create,
                platforms: platforms.filter(|name| !name.is_empty()).collect(),
            },
            ..self.place.config()
        })
    }
}

pub fn run(args: Args) -> Result<()> {
    logging::start(args.log_format, args.verbosity, &[]).context("cannot set up logging")?;
    tracing::info!("knmstate {}", version());
    on_runtime(operate(args))
}

async fn operate(args: Args) -> Result<()> {
    let config = args.config()?;
    let stop = shutdown::on_request();
    let client_config = args.place.client_config().await?;
    let client = operator::client(client_config).context("cannot make a client of the API server")?;
    let health = args.health_address.listen().await?;
    let identity = format!("{}_{}", args.pod_name, now().as_nanosecond());
    let lease = LeaseTiming::with_duration(Duration::from_secs(args.lease_duration));
    let options = OperatorOptions { client, config, identity, lease, now };
    Ok(operator::run(options, health, stop).await?)
}
