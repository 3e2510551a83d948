//! What was typed or set, and what it means.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

use anyhow::{Result, bail};
use knmstate_agent::PROBE_DNS_HOST;
use knmstate_api::names::relationship;
use knmstate_core::{Retries, pace::PERCENT};

use crate::{
    commands::given, dispatch::DispatchArgs, leases::LeaseArgs, logging, persistence::PersistenceArgs,
};

/// Look after the network of this node: report it, and carry out its orders.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The name of this node.
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node_name: Option<String>,

    /// The file by which the handlers of a node, if there are several, agree on one.
    #[arg(long, env = "NMSTATE_INSTANCE_NODE_LOCK_FILE", value_name = "FILE")]
    lock_file: Option<String>,

    /// The name that the DNS probe asks for [default: root-servers.net]
    #[arg(long, env = "PROBE_DNS_HOST", value_name = "NAME")]
    probe_dns_host: Option<String>,

    /// How often an order is tried before it has failed [default: 5]
    #[arg(long, env = "NNCP_MAX_RETRIES", value_name = "COUNT")]
    max_retries: Option<String>,

    /// The longest time between two attempts [default: 30]
    #[arg(long, env = "NNCP_MAX_BACKOFF_SECONDS", value_name = "SECONDS")]
    max_backoff: Option<String>,

    /// The time between the first two attempts [default: 1]
    #[arg(long, env = "NNCP_INITIAL_BACKOFF_SECONDS", value_name = "SECONDS")]
    initial_backoff: Option<String>,

    /// The component in the labels of this node's state.
    #[arg(long, env = "COMPONENT", value_name = "NAME")]
    component: Option<String>,

    /// The product in the labels of this node's state.
    #[arg(long, env = "PART_OF", value_name = "NAME")]
    part_of: Option<String>,

    /// The product's version in the labels of this node's state.
    #[arg(long, env = "VERSION", value_name = "VERSION")]
    product_version: Option<String>,

    /// The manager in the labels of this node's state.
    #[arg(long, env = "MANAGED_BY", value_name = "NAME")]
    managed_by: Option<String>,

    /// How much is logged.
    #[arg(long = "v", value_enum, value_name = "LEVEL", default_value_t)]
    verbosity: logging::Verbosity,

    /// How the log looks.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    log_format: logging::Format,

    /// How to reach the API server. Without it, as a pod does.
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<String>,

    /// Where orders and the way back of a change are kept over a restart.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/knmstate")]
    state_dir: PathBuf,

    /// Where /healthz and /readyz are answered.
    // Handlers share the host's network: a port that Kubernetes, its usual network and monitoring agents do not use,
    // and that is neither in the range of node ports nor in the one that the kernel hands out.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:28088")]
    health_address: SocketAddr,

    /// The file that is there as long as the handler is ready.
    #[arg(long, value_name = "FILE", default_value = "/tmp/healthy")]
    readiness_file: PathBuf,

    /// How much CPU time reading the network may cost in the long run, in hundredths of a core. With less, a network that
    /// never stops changing is reported less often.
    #[arg(long, value_name = "PERCENT", default_value_t = PERCENT, value_parser = clap::value_parser!(u32).range(1..=100))]
    report_cpu: u32,

    #[command(flatten)]
    leases: LeaseArgs,

    #[command(flatten)]
    persistence: PersistenceArgs,

    #[command(flatten)]
    dispatch: DispatchArgs,

    #[command(flatten)]
    zap: ZapArgs,
}

/// Flags of kubernetes-nmstate's logger, which existing manifests pass.
#[derive(clap::Args, Clone, Debug)]
struct ZapArgs {
    #[arg(long = "zap-devel", hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    devel: Option<String>,
    #[arg(long = "zap-encoder", hide = true)]
    encoder: Option<String>,
    #[arg(long = "zap-log-level", hide = true)]
    log_level: Option<String>,
    #[arg(long = "zap-stacktrace-level", hide = true)]
    stacktrace_level: Option<String>,
    #[arg(long = "zap-time-encoding", hide = true)]
    time_encoding: Option<String>,
}

/// What a handler is to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub node: String,
    pub lock_file: PathBuf,
    pub probe_dns_host: String,
    pub retries: Retries,
    pub labels: BTreeMap<String, String>,
    pub kubeconfig: Option<PathBuf>,
    pub state_dir: PathBuf,
    pub health_address: SocketAddr,
    pub readiness_file: PathBuf,
    pub report_percent: u32,
    pub lease_wait: Duration,
    pub memory_only: bool,
    pub allow_dispatch_scripts: bool,
}

impl Args {
    pub fn logging(&self) -> (logging::Format, logging::Verbosity) {
        (self.log_format, self.verbosity)
    }

    pub fn settings(self) -> Result<Settings> {
        let Some(node) = given(self.node_name) else {
            bail!("NODE_NAME is mandatory: the name of the node that this handler looks after");
        };
        let Some(lock_file) = given(self.lock_file) else {
            bail!(
                "NMSTATE_INSTANCE_NODE_LOCK_FILE is mandatory: a file on the node, the same for all its handlers"
            );
        };
        self.zap.warn_if_given();
        let labels = [
            (relationship::COMPONENT, self.component),
            (relationship::PART_OF, self.part_of),
            (relationship::VERSION, self.product_version),
            (relationship::MANAGED_BY, self.managed_by),
        ];
        Ok(Settings {
            node,
            lock_file: lock_file.into(),
            probe_dns_host: given(self.probe_dns_host).unwrap_or_else(|| PROBE_DNS_HOST.to_owned()),
            retries: Retries {
                max_attempts: number("NNCP_MAX_RETRIES", self.max_retries, 5),
                first_pause: seconds("NNCP_INITIAL_BACKOFF_SECONDS", self.initial_backoff, 1),
                longest_pause: seconds("NNCP_MAX_BACKOFF_SECONDS", self.max_backoff, 30),
            },
            labels: labels
                .into_iter()
                .filter_map(|(key, value)| Some((key.to_owned(), given(value)?)))
                .collect(),
            kubeconfig: given(self.kubeconfig).map(PathBuf::from),
            state_dir: self.state_dir,
            health_address: self.health_address,
            readiness_file: self.readiness_file,
            report_percent: self.report_cpu,
            lease_wait: self.leases.wait(),
            memory_only: self.persistence.is_memory_only(),
            allow_dispatch_scripts: self.dispatch.are_allowed(),
        })
    }
}

impl ZapArgs {
    fn warn_if_given(&self) {
        let flags = [
            ("--zap-devel", &self.devel),
            ("--zap-encoder", &self.encoder),
            ("--zap-log-level", &self.log_level),
            ("--zap-stacktrace-level", &self.stacktrace_level),
            ("--zap-time-encoding", &self.time_encoding),
        ];
        let given: Vec<&str> =
            flags.into_iter().filter(|(_, value)| value.is_some()).map(|(flag, _)| flag).collect();
        if !given.is_empty() {
            tracing::warn!("no longer used: {}; see --v and --log-format", given.join(", "));
        }
    }
}

fn seconds(name: &str, value: Option<String>, default: u32) -> Duration {
    Duration::from_secs(number(name, value, default).into())
}

/// A number, or the default for what is none, as users of kubernetes-nmstate know it; but not in silence.
fn number<T: FromStr + std::fmt::Display + Copy>(name: &str, value: Option<String>, default: T) -> T {
    let Some(value) = given(value) else { return default };
    value.trim().parse().unwrap_or_else(|_| {
        tracing::warn!("{name} is {value:?}, which is no number that fits: {default} is used");
        default
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn parse(args: &[&str]) -> Result<Settings> {
        let needed = ["handler", "--node-name=n", "--lock-file=/run/lock"];
        Cli::try_parse_from(needed.iter().chain(args))?.args.settings()
    }

    #[test]
    fn without_a_node_or_a_lock_file_it_does_not_start() {
        for (args, words) in [
            (["--node-name=", "--lock-file=/run/lock"], "NODE_NAME is mandatory"),
            (["--node-name=n", "--lock-file="], "NMSTATE_INSTANCE_NODE_LOCK_FILE is mandatory"),
        ] {
            let cli =
                Cli::try_parse_from(["handler"].iter().chain(&args)).unwrap_or_else(|why| panic!("{why}"));
            let said = cli.args.settings().unwrap_err().to_string();
            assert!(said.starts_with(words), "{said}");
        }
    }

    #[test]
    fn a_number_that_is_none_is_the_default() {
        let most = |value: &str| {
            parse(&[&format!("--max-retries={value}")]).map(|settings| settings.retries.max_attempts)
        };
        for (value, expected) in [("7", 7), (" 7 ", 7), ("many", 5), ("-1", 5), ("1.5", 5), ("", 5)] {
            assert_eq!(most(value).unwrap(), expected, "{value:?}");
        }
        let usual = Retries {
            max_attempts: 5,
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(30),
        };
        assert_eq!(parse(&[]).unwrap().retries, usual);
    }

    #[test]
    fn the_arguments_of_existing_manifests_are_taken() {
        for args in [
            &["--zap-time-encoding=iso8601"][..],
            &["--zap-time-encoding=iso8601", "--v", "debug"],
            &[
                "--zap-devel",
                "--zap-encoder=json",
                "--zap-log-level",
                "debug",
                "--zap-stacktrace-level=error",
            ],
            &["--zap-devel=true", "--v=info"],
        ] {
            assert_eq!(parse(args).unwrap(), parse(&[]).unwrap(), "{args:?}");
        }
        assert!(parse(&["--v=loud"]).is_err());
    }

    #[test]
    fn dispatch_scripts_are_refused_unless_the_flag_is_given() {
        assert!(!parse(&[]).unwrap().allow_dispatch_scripts);
        assert!(parse(&["--allow-dispatch-scripts"]).unwrap().allow_dispatch_scripts);
    }

    #[test]
    fn only_labels_with_a_value_are_set() {
        let labels = parse(&["--part-of=product", "--managed-by="]).unwrap().labels;
        assert_eq!(labels, [("app.kubernetes.io/part-of".to_owned(), "product".to_owned())].into());
    }
}
