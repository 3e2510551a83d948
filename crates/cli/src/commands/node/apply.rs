//! A state out of a file, in one guarded change.

use std::{
    convert::Infallible,
    fs,
    io::{self, Read as _},
    path::PathBuf,
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use knmstate_agent::{
    ApiEndpoint, ChangeRequest, Conclusion, DirectChange, KubeApiEndpoint, PROBE_DNS_HOST, Prober,
};
use knmstate_core::probes::ApiAccess;
use tokio::sync::watch;

use super::{
    answer::Answer,
    machine::{Machine, MachineArgs, Rules},
};
use crate::{cluster, dispatch::DispatchArgs, persistence::PersistenceArgs, shutdown};

/// Where a document is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    Standard,
    File(PathBuf),
}

impl FromStr for Input {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(if text == "-" { Self::Standard } else { Self::File(text.into()) })
    }
}

impl Input {
    /// The text, or what is wrong.
    pub fn read(&self) -> Result<String, String> {
        let read = || match self {
            Self::Standard => {
                let mut text = String::new();
                io::stdin().read_to_string(&mut text).map(|_| text)
            }
            Self::File(path) => fs::read_to_string(path),
        };
        read().map_err(|error| format!("{} cannot be read: {error}", self.name()))
    }

    pub fn name(&self) -> String {
        match self {
            Self::Standard => "standard input".to_owned(),
            Self::File(path) => path.display().to_string(),
        }
    }
}

/// How a state is applied.
#[derive(clap::Args, Clone, Debug)]
pub struct ApplyArgs {
    /// Leave the change open, to be committed or rolled back by its checkpoint.
    #[arg(long)]
    no_commit: bool,

    /// How long the change may stay uncommitted before NetworkManager itself takes it back, in seconds: while it is
    /// made, and with --no-commit once more from then on.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(5..=3600))]
    timeout: u64,

    /// Run probes before and after the change, which is the default.
    #[arg(long, overrides_with = "no_probes")]
    probes: bool,

    /// Run no probes: nothing but NetworkManager's own check decides whether the change is good.
    #[arg(long)]
    no_probes: bool,

    /// Also ask the API server of this file whether it is reached, and whether the node is Ready, if it was before.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The name of this machine in that cluster; its host name if not given.
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    node_name: Option<String>,

    /// The name that name servers are asked for in order to see whether they answer.
    #[arg(long, value_name = "NAME", env = "PROBE_DNS_HOST", default_value = PROBE_DNS_HOST)]
    dns_probe_host: String,

    #[command(flatten)]
    persistence: PersistenceArgs,

    #[command(flatten)]
    dispatch: DispatchArgs,
}

impl ApplyArgs {
    /// Whether changes are to be kept in memory.
    pub fn is_memory_only(&self) -> bool {
        self.persistence.is_memory_only()
    }
}

/// Applies what the file says, on disk or in memory.
pub async fn apply_as(
    file: &Input,
    how: &ApplyArgs,
    machine: &MachineArgs,
    memory_only: bool,
) -> Result<Answer> {
    let request = match file.read().and_then(|text| {
        ChangeRequest::parse(&text).map_err(|why| format!("{}: {why}; nothing was changed", file.name()))
    }) {
        Ok(request) => request,
        Err(why) => return Ok(Answer::not_understood(why)),
    };
    let endpoint = match &how.kubeconfig {
        Some(path) => Some(api_endpoint(path, how.node_name.clone()).await?),
        None => None,
    };
    let rules = Rules { memory_only, allow_dispatch_scripts: how.dispatch.are_allowed() };
    let machine = match Machine::take(machine, rules).await? {
        Ok(machine) => machine,
        Err(answer) => return Ok(answer),
    };
    // A change cannot cut what is cut already: the API server counts if it answered before.
    let api = if endpoint.is_some() { ApiAccess::Unreachable } else { ApiAccess::None };
    let prober = Prober::new(machine.host.clone(), endpoint, how.dns_probe_host.clone());
    let time = Duration::from_secs(how.timeout);
    let open_for = how.no_commit.then_some(time);
    let stop = watch::Sender::new(false);
    let change = DirectChange {
        host: &machine.host,
        prober: &prober,
        request,
        timeout: time,
        probes: !how.no_probes,
        api,
        conclusion: open_for.map_or(Conclusion::Commit, Conclusion::LeaveOpen),
        stop: stop.subscribe(),
    };
    let mut work = std::pin::pin!(change.run());
    let end = tokio::select! {
        end = &mut work => end,
        // What is half done is rolled back first.
        () = shutdown::requested() => {
            stop.send_replace(true);
            work.await
        }
    };
    Ok(Answer::of_end(end, open_for))
}

async fn api_endpoint(kubeconfig: &std::path::Path, node: Option<String>) -> Result<Arc<dyn ApiEndpoint>> {
    let node = match node {
        Some(name) => name,
        None => nix::unistd::gethostname()
            .context("cannot read the host name; give --node-name")?
            .to_string_lossy()
            .into_owned(),
    };
    Ok(Arc::new(KubeApiEndpoint::new(cluster::config(Some(kubeconfig)).await?, node)))
}
