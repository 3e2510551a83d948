//! `knmstate standalone`: the engine over a directory of policies, without Kubernetes.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, anyhow, bail, ensure};
use knmstate_agent::{
    Agent, AgentParts, DirectoryStore, DirectoryStoreOptions, EngineSettings, Health, Ledger,
    OUTCOMES_TARGET, OrderOutcome, PROBE_DNS_HOST, PolicyFiles, Prober, WORK_LOCK_FILE,
};
use knmstate_core::Retries;
use knmstate_host::{NetworkManagerHost, NetworkManagerOptions};
use nix::unistd::AccessFlags;

use super::{make_private_directory, on_runtime};
use crate::{
    dispatch::DispatchArgs,
    leases::LeaseArgs,
    logging::{self, Format, Verbosity},
    node_lock,
    outcome_table::{Row, table},
    persistence::PersistenceArgs,
    shutdown,
};

const EXIT_CODES: &str = "\
Exit codes: 0 every policy is applied, or was already; 1 a policy failed, or the
machine could not be worked on; 2 the arguments or a policy cannot be understood
(with --once nothing is changed then).";

/// Configure this machine by a directory of policies, without a cluster.
///
/// Every NodeNetworkConfigurationPolicy of the directory is applied as one guarded change: it is rolled back when the
/// machine would lose its default gateway, its name servers or what the policy's own probes ask for.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub struct Args {
    /// The directory of policies: files that end in .yaml, .yml or .json, in the order of their names.
    #[arg(long, value_name = "DIR")]
    policies: PathBuf,

    /// Apply the policies and end. Without this, the directory and the machine are watched until the end of the process.
    #[arg(long)]
    once: bool,

    /// Write the machine's NodeNetworkState and a NodeNetworkConfigurationEnactment per policy into this directory.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// The directory for the ledger of orders and the journal of an open change.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/knmstate")]
    state_dir: PathBuf,

    /// The name of this machine in what is written; its host name if not given.
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    node_name: Option<String>,

    /// A label by which policies select this machine, besides kubernetes.io/hostname. May be given several times.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,

    /// The name that name servers are asked for in order to see whether they answer.
    #[arg(long, value_name = "NAME", env = "PROBE_DNS_HOST", default_value = PROBE_DNS_HOST)]
    dns_probe_host: String,

    /// How often a change that fails is tried, at most.
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    max_attempts: u32,

    /// How long a change may stay unconfirmed before NetworkManager rolls it back, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 240, value_parser = clap::value_parser!(u64).range(5..=3600))]
    change_deadline: u64,

    #[command(flatten)]
    leases: LeaseArgs,

    #[command(flatten)]
    persistence: PersistenceArgs,

    #[command(flatten)]
    dispatch: DispatchArgs,

    /// How much is logged to standard error; with --once warn if not given, otherwise info.
    #[arg(long = "v", value_enum, value_name = "LEVEL")]
    verbosity: Option<Verbosity>,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    if key.is_empty() { Err("the key is missing".to_owned()) } else { Ok((key.to_owned(), value.to_owned())) }
}

pub fn run(args: Args, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    // The table has the result of each policy.
    let (verbosity, silenced) =
        if args.once { (Verbosity::Warn, &[OUTCOMES_TARGET][..]) } else { (Verbosity::Info, &[][..]) };
    logging::start(Format::Text, args.verbosity.unwrap_or(verbosity), silenced)
        .context("cannot set up logging")?;
    on_runtime(go(args, out)).map_err(|error| {
        let is_forbidden = |cause: &io::Error| cause.kind() == io::ErrorKind::PermissionDenied;
        if !is_root() && error.chain().filter_map(|cause| cause.downcast_ref()).any(is_forbidden) {
            anyhow!("{error:#}; run knmstate as root")
        } else {
            error
        }
    })
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

async fn go(args: Args, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let node = match &args.node_name {
        Some(name) => name.clone(),
        None => nix::unistd::gethostname()
            .context("cannot read the host name; give --node-name")?
            .to_string_lossy()
            .into_owned(),
    };
    let mut labels: BTreeMap<_, _> = [("kubernetes.io/hostname".to_owned(), node.clone())].into();
    labels.extend(args.labels);

    let (state, policies) = (&args.state_dir, &args.policies);
    let ledger = Ledger::open(state.join("orders"))
        .with_context(|| format!("cannot read the orders in {}", state.display()))?;
    let options = DirectoryStoreOptions {
        policies: policies.clone(),
        output: args.output.clone(),
        node: node.clone(),
        labels,
    };
    let store = match DirectoryStore::open(options, &ledger) {
        Ok(store) => store,
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            let policies = policies.display();
            return refuse(&[format!(
                "{policies} is not a directory; --policies names the directory of the policies"
            )]);
        }
        Err(error) => {
            let policies = policies.display();
            return refuse(&[format!("cannot read the directory of policies, {policies}: {error}")]);
        }
    };
    let files = store.policy_files();
    if args.once && !files.errors.is_empty() {
        let errors = files.errors.iter().map(ToString::to_string);
        return refuse(&errors.chain(["nothing was changed".to_owned()]).collect::<Vec<_>>());
    }
    ensure!(is_root(), "only root may change the network of this machine; run knmstate as root");
    make_private_directory(state)?;
    if let Some(directory) = &args.output {
        make_output_directory(directory)?;
    }
    let lock = state.join("lock");
    let Some(_lock) =
        node_lock::try_acquire(&lock).await.with_context(|| format!("cannot use {}", lock.display()))?
    else {
        bail!(
            "another knmstate is at work on this machine and holds {}; stop it first (if it is the service: \
             systemctl stop knmstate)",
            lock.display()
        );
    };

    let memory_only = args.persistence.is_memory_only();
    let host = NetworkManagerHost::start(NetworkManagerOptions {
        memory_only,
        allow_dispatch_scripts: args.dispatch.are_allowed(),
        ..NetworkManagerOptions::new(state.join("journal"))
    })
    .await
    .context("cannot watch the network of this machine")?;
    let settings = EngineSettings {
        retries: Retries { max_attempts: args.max_attempts, ..Retries::default() },
        transaction: Duration::from_secs(args.change_deadline),
        leases: args.leases.wait(),
        work_lock: Some(state.join(WORK_LOCK_FILE)),
        ..EngineSettings::new(node)
    };
    let prober = Prober::new(host.clone(), None, args.dns_probe_host);
    let agent = Agent::new(AgentParts {
        host,
        store: store.clone(),
        prober,
        ledger,
        settings,
        health: Health::default(),
    })
    .await;

    if !args.once {
        tracing::info!("watching the policies in {} and the network of this machine", policies.display());
        let follow = async { store.follow().await.context("cannot watch the directory of policies") };
        tokio::select! {
            end = follow => match end? {},
            end = agent.run(shutdown::requested()) => end?,
        }
        return Ok(ExitCode::SUCCESS);
    }

    let stop = async {
        shutdown::requested().await;
        // Nothing is left to be done when even this cannot be written.
        let _ = writeln!(io::stderr(), "knmstate: asked to end; what is half done is rolled back first");
    };
    let outcomes = agent.run_once(stop).await?;
    print_outcomes(&outcomes, &files, &store.not_selected(), policies, out)?;
    let failed = outcomes.iter().any(|outcome| outcome.result.is_err());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Prints one row per policy, also for those that do not select this node.
fn print_outcomes(
    outcomes: &[OrderOutcome],
    files: &PolicyFiles,
    not_selected: &[String],
    policies: &Path,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let rows: Vec<Row<'_>> = outcomes
        .iter()
        .map(|outcome| {
            let file = files.policies.get(&outcome.policy).map(|(file, _)| &**file);
            Row::of(outcome, file)
        })
        .chain(not_selected.iter().map(|policy| Row::not_selected(policy)))
        .collect();
    if rows.is_empty() {
        let policies = policies.display();
        writeln!(out, "there is no policy in {policies}: no file that ends in .yaml, .yml or .json")?;
    } else {
        out.write_all(table(&rows).as_bytes())?;
    }
    Ok(out.flush()?)
}

/// Prints why the arguments or policies are refused. Nothing has been changed.
fn refuse(reasons: &[String]) -> anyhow::Result<ExitCode> {
    for reason in reasons {
        writeln!(io::stderr(), "knmstate: {reason}")?;
    }
    Ok(ExitCode::from(2))
}

/// Created, and checked to be writable, before anything is changed, because the caller relies on the report.
fn make_output_directory(directory: &Path) -> anyhow::Result<()> {
    let make = || -> io::Result<()> {
        fs::create_dir_all(directory)?;
        Ok(nix::unistd::access(directory, AccessFlags::W_OK)?)
    };
    make().with_context(|| format!("cannot write into the directory {} (--output)", directory.display()))
}
