//! The commands of nmstatectl, for scripts and probes that call it: the same program under another name.
//!
//! It runs the commands of `knmstate node`, so it takes the same locks as the handler, and leaves no change open that
//! is not in the journal.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsStr,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result, anyhow};
use clap::{ArgAction, Parser, Subcommand};
use knmstate_agent::ChangeRequest;
use knmstate_document::NetworkState;
use knmstate_host::NMSTATE_VERSION;
use knmstate_offline::{captures::resolve, features};
use serde_json::{Map, Value, json};

use crate::{
    commands::{
        node::{
            Answer, ApplyArgs, EXIT_CODES, Input, MachineArgs, Notation, Settling, answered, apply_as,
            observe, only, settle, write_state,
        },
        on_runtime,
    },
    logging::{self, Format, Verbosity},
};

const NAME: &str = "nmstatectl";

/// Whether the program was started under this name.
pub fn is_called() -> bool {
    env::args_os().next().is_some_and(|called| Path::new(&called).file_name() == Some(OsStr::new(NAME)))
}

/// The network of this machine, with the commands of nmstatectl.
///
/// This is knmstate under another name: changes are journaled, guarded and probed like those of `knmstate node`.
#[derive(Parser)]
#[command(name = NAME, version = NMSTATE_VERSION, arg_required_else_help = true, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Log more; twice or more for everything.
    #[arg(short, global = true, action = ArgAction::Count)]
    verbose: u8,
    /// Log nothing but errors, which is the default.
    #[arg(short, long, global = true)]
    quiet: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Print the state of the network, secrets hidden.
    #[command(alias = "s")]
    Show {
        /// Only this interface.
        #[arg(value_name = "IFNAME")]
        interface: Option<String>,
        /// Print JSON instead of YAML.
        #[arg(long)]
        json: bool,
    },
    /// Apply a state in one guarded change.
    #[command(visible_alias = "set", alias = "a")]
    Apply {
        /// The state or policy; - or nothing is standard input.
        #[arg(value_name = "FILE", default_value = "-")]
        file: Input,
        #[command(flatten)]
        how: ApplyArgs,
        /// Keep the change in memory: a reboot comes back with what is on disk.
        #[arg(long)]
        memory_only: bool,
        #[command(flatten)]
        machine: MachineArgs,
    },
    /// Commit the open change.
    #[command(alias = "c")]
    Commit {
        #[arg(value_name = "CHECKPOINT")]
        checkpoint: Option<String>,
        #[command(flatten)]
        machine: MachineArgs,
    },
    /// Roll back the open change.
    #[command(alias = "r")]
    Rollback {
        #[arg(value_name = "CHECKPOINT")]
        checkpoint: Option<String>,
        #[command(flatten)]
        machine: MachineArgs,
    },
    /// Print the version of nmstate.
    Version,
    /// Print which features of nmstate a state uses.
    #[command(visible_alias = "st")]
    Statistic {
        /// The state; - is standard input.
        #[arg(value_name = "FILE")]
        file: Input,
    },
    /// Print the state that a policy with captures means on this machine.
    #[command(visible_alias = "p")]
    Policy {
        /// The policy; - is standard input.
        #[arg(value_name = "FILE")]
        file: Input,
        /// The state to resolve captures in, instead of that of this machine.
        #[arg(short, long, value_name = "FILE")]
        current: Option<Input>,
        /// What captures have resolved to before.
        #[arg(short = 'C', long, value_name = "FILE")]
        captured: Option<Input>,
        /// Where to write what they resolve to.
        #[arg(short, long, value_name = "FILE")]
        output_captured: Option<PathBuf>,
        /// Print JSON instead of YAML.
        #[arg(long)]
        json: bool,
    },
}

/// Exit codes as of `knmstate node`.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(message) => return crate::explain(&message),
    };
    crate::exit_code(NAME, run(cli, &mut io::stdout().lock()))
}

fn run(cli: Cli, out: &mut impl Write) -> Result<ExitCode> {
    let verbosity = match cli.verbose {
        0 => Verbosity::Warn,
        1 => Verbosity::Info,
        _ => Verbosity::Debug,
    };
    logging::start(Format::Text, verbosity, &[]).context("cannot set up logging")?;
    match cli.command {
        Command::Show { interface, json } => {
            let Some(state) = only(on_runtime(observe())?, interface.as_deref()) else {
                return Answer::no_such_interface(interface.as_deref()).write(out, false);
            };
            write_state(out, &state, notation(json))?;
        }
        Command::Apply { file, how, memory_only, machine } => {
            let memory_only = memory_only || how.is_memory_only();
            return answered(apply_as(&file, &how, &machine, memory_only)).write(out, false);
        }
        Command::Commit { checkpoint, machine } => {
            return answered(settle(Settling::Commit, checkpoint.as_deref(), &machine)).write(out, false);
        }
        Command::Rollback { checkpoint, machine } => {
            return answered(settle(Settling::RollBack, checkpoint.as_deref(), &machine)).write(out, false);
        }
        Command::Version => writeln!(out, "{NMSTATE_VERSION}")?,
        Command::Statistic { file } => {
            let current = on_runtime(observe())?;
            let desired = NetworkState::parse(Value::Object(wish(&file)?.0))?;
            write_state(out, &json!({ "features": features(&desired, &current) }), Notation::Yaml)?;
        }
        Command::Policy { file, current, captured, output_captured, json } => {
            let (desired, captures) = wish(&file)?;
            let current = match current {
                Some(file) => NetworkState::parse(value(&file)?)?,
                None => on_runtime(observe())?,
            };
            let known: BTreeMap<String, Map<String, Value>> = match captured {
                Some(file) => serde_json::from_value(value(&file)?)
                    .map_err(|_| anyhow!("{}: a map of names and states is expected", file.name()))?,
                None => BTreeMap::new(),
            };
            let resolved = resolve(&desired, &captures, &current, &known)?;
            if let Some(path) = output_captured {
                let mut text = Vec::new();
                write_state(&mut text, &resolved.captured, notation(json))?;
                fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            }
            write_state(out, &resolved.desired, notation(json))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn notation(json: bool) -> Notation {
    if json { Notation::Json } else { Notation::Yaml }
}

/// The desired state of a document, and its captures.
fn wish(file: &Input) -> Result<(Map<String, Value>, BTreeMap<String, String>)> {
    let text = file.read().map_err(|why| anyhow!(why))?;
    let spec = ChangeRequest::parse(&text).map_err(|why| anyhow!("{}: {why}", file.name()))?.spec;
    Ok((spec.desired_state.unwrap_or_default().0, spec.capture))
}

/// The one YAML or JSON document of a file. Errors do not quote it, because it may contain secrets.
fn value(file: &Input) -> Result<Value> {
    let text = file.read().map_err(|why| anyhow!(why))?;
    serde_saphyr::from_str(&text).map_err(|_| anyhow!("{} is neither YAML nor JSON", file.name()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_words_of_nmstatectl_are_taken() {
        Cli::command().debug_assert();
        for words in [
            &["show"][..],
            &["show", "lo"],
            &["show", "lo", "-vv"],
            &["show", "-vvv", "--json"],
            &["set", "state.yaml"],
            &["apply", "-"],
            &["apply", "-vv", "--no-commit", "--timeout", "480"],
            &["set", "--memory-only", "-"],
            &["commit"],
            &["rollback", "/org/freedesktop/NetworkManager/Checkpoint/1"],
            &["version"],
            &["st", "-"],
            &["policy", "--current", "c", "--json", "--output-captured", "o", "--captured", "k", "p"],
        ] {
            let parsed = Cli::try_parse_from([NAME].iter().chain(words));
            assert!(parsed.is_ok(), "{words:?}: {:?}", parsed.err().map(|error| error.to_string()));
        }
        let version = Cli::try_parse_from([NAME, "--version"]).err().map(|said| said.to_string());
        assert_eq!(version, Some(format!("nmstatectl {NMSTATE_VERSION}\n")));
    }
}
