//! Exclusive access to this machine for a command.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result};
use knmstate_agent::{WORK_LOCK_FILE, WorkLock};
use knmstate_host::{NetworkManagerHost, NetworkManagerOptions};

use super::answer::Answer;
use crate::commands::make_private_directory;

/// How long a handler may be in the way. It only looks at the network most of the time, which is soon over.
const LOCK_LIMIT: Duration = Duration::from_secs(10);

/// Where the machine keeps what outlives a process.
#[derive(clap::Args, Clone, Debug)]
pub struct MachineArgs {
    /// The directory of the journal: the same as that of the handler.
    #[arg(long, env = "KNMSTATE_STATE_DIR", value_name = "DIR", default_value = "/var/lib/knmstate")]
    state_dir: PathBuf,
}

/// How the command makes a change.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    pub memory_only: bool,
    pub allow_dispatch_scripts: bool,
}

/// The machine, locked against the handler and other commands.
pub struct Machine {
    pub host: NetworkManagerHost,
    _lock: WorkLock,
}

impl Machine {
    /// The answer instead of the machine says why it cannot be worked on; nothing was changed then.
    pub async fn take(args: &MachineArgs, rules: Rules) -> Result<Result<Self, Answer>> {
        if !nix::unistd::geteuid().is_root() {
            return Ok(Err(Answer::refused(
                "only root may change the network of this machine; run it as root",
            )));
        }
        make_private_directory(&args.state_dir)?;
        let file = args.state_dir.join(WORK_LOCK_FILE);
        let lock = WorkLock::wait_for(&file, LOCK_LIMIT)
            .await
            .with_context(|| format!("cannot use {} (--state-dir)", file.display()))?;
        let Some(lock) = lock else {
            return Ok(Err(Answer::refused(format!(
                "another program is changing the network of this machine (the handler, or another command) and holds \
                 {}; nothing was changed; try again when it has finished",
                file.display()
            ))));
        };
        let options = NetworkManagerOptions {
            memory_only: rules.memory_only,
            allow_dispatch_scripts: rules.allow_dispatch_scripts,
            ..NetworkManagerOptions::new(args.state_dir.join("journal"))
        };
        let host =
            NetworkManagerHost::start(options).await.context("cannot watch the network of this machine")?;
        Ok(Ok(Self { host, _lock: lock }))
    }
}
