//! `knmstate node`: the network of this machine, for a program that drives it itself.

mod answer;
mod apply;
mod machine;
mod settle;
mod show;

use std::{io::Write, process::ExitCode};

use anyhow::{Context as _, Result};
use clap::Subcommand;

pub use self::{
    answer::Answer,
    apply::{ApplyArgs, Input, apply_as},
    machine::MachineArgs,
    settle::{Settling, settle},
    show::{Notation, observe, only, write_state},
};
use super::on_runtime;
use crate::logging::{self, Format, Verbosity};

pub const EXIT_CODES: &str = "\
Exit codes: 0 done, or so already; 1 failed, and the network is as it was before,
or nothing was changed; 2 the arguments or the document cannot be understood, and
nothing was changed; 3 failed, and the network is not known to be as it was before.";

/// Drive the network of this machine: show it, apply a state, then commit it or roll it back.
///
/// For a program that applies a state, checks by itself whether the machine is well, and then decides. Changes go
/// through the same note on disk, checkpoint of NetworkManager and probes as those of the handler, and never at the same
/// time as those.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the state of the network as nmstate writes it, secrets hidden.
    #[command(after_help = EXIT_CODES)]
    Show {
        /// Only this interface.
        #[arg(value_name = "IFNAME")]
        interface: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// Print YAML, which is the default.
        #[arg(long, conflicts_with = "json")]
        yaml: bool,
    },
    /// Apply a state, or the desired state of a policy, in one guarded change.
    ///
    /// The change is rolled back when a probe fails: the default gateway and the name servers that answered before, the
    /// API server with --kubeconfig, and those of the policy. With --no-commit it is left open: commit or roll it back
    /// within --timeout, or NetworkManager itself rolls it back.
    #[command(after_help = EXIT_CODES)]
    Apply {
        /// A state as nmstate writes it, or a NodeNetworkConfigurationPolicy; YAML or JSON; - is standard input.
        #[arg(value_name = "FILE")]
        file: Input,
        #[command(flatten)]
        how: ApplyArgs,
        #[command(flatten)]
        machine: MachineArgs,
        /// Print one JSON object, for programs.
        #[arg(long)]
        json: bool,
    },
    /// Make the change permanent that was left open.
    #[command(after_help = EXIT_CODES)]
    Commit {
        #[command(flatten)]
        settling: SettleArgs,
    },
    /// Put the network back as it was before the change that was left open.
    #[command(after_help = EXIT_CODES)]
    Rollback {
        #[command(flatten)]
        settling: SettleArgs,
    },
}

#[derive(clap::Args)]
struct SettleArgs {
    /// The checkpoint that apply --no-commit printed. Without it, the change that is open.
    #[arg(value_name = "CHECKPOINT")]
    checkpoint: Option<String>,
    #[command(flatten)]
    machine: MachineArgs,
    /// Print one JSON object, for programs.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, out: &mut impl Write) -> Result<ExitCode> {
    logging::start(Format::Text, Verbosity::Warn, &[]).context("cannot set up logging")?;
    match args.command {
        Command::Show { interface, json, yaml: _ } => {
            let state = on_runtime(observe())?;
            let Some(state) = only(state, interface.as_deref()) else {
                return Answer::no_such_interface(interface.as_deref()).write(out, false);
            };
            write_state(out, &state, if json { Notation::Json } else { Notation::Yaml })?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Apply { file, how, machine, json } => {
            let memory_only = how.is_memory_only();
            answered(apply_as(&file, &how, &machine, memory_only)).write(out, json)
        }
        Command::Commit { settling } => end(&settling, Settling::Commit, out),
        Command::Rollback { settling } => end(&settling, Settling::RollBack, out),
    }
}

fn end(args: &SettleArgs, settling: Settling, out: &mut impl Write) -> Result<ExitCode> {
    answered(settle(settling, args.checkpoint.as_deref(), &args.machine)).write(out, args.json)
}

/// The answer. An error of ours comes before anything is touched.
pub fn answered(work: impl Future<Output = Result<Answer>>) -> Answer {
    on_runtime(work).unwrap_or_else(|error| Answer::refused(format!("{error:#}; nothing was changed")))
}
