//! `knmstate`: one binary, several roles. This file maps what was typed to what is run, and its result to an exit code.

mod address;
mod cluster;
mod commands;
mod dispatch;
mod leases;
mod logging;
mod nmstatectl;
mod node_lock;
mod outcome_table;
mod panics;
mod persistence;
mod shutdown;
mod version;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::{Parser, Subcommand};

/// Declarative node networking for Kubernetes.
#[derive(Parser)]
#[command(name = "knmstate", version = version::version(), arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Check(commands::check::Args),
    Controller(commands::controller::Args),
    Crds(commands::crds::Args),
    Handler(Box<commands::handler::Args>),
    Manifests(commands::manifests::Args),
    Operator(Box<commands::operator::Args>),
    Remove(commands::remove::Args),
    Node(Box<commands::node::Args>),
    Render(commands::render::Args),
    Standalone(Box<commands::standalone::Args>),
}

/// Exit codes: 0 done, 1 failed, 2 not understood.
fn main() -> ExitCode {
    panics::report_without_values();
    if nmstatectl::is_called() {
        return nmstatectl::main();
    }
    match Cli::try_parse() {
        Ok(cli) => exit_code("knmstate", run(cli.command)),
        Err(message) => explain(&message),
    }
}

fn exit_code(name: &str, result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to be done when even the error cannot be written.
            let _ = writeln!(io::stderr(), "{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Check(args) => return commands::check::run(args, &mut io::stdout().lock()),
        Command::Controller(args) => commands::controller::run(args)?,
        Command::Crds(args) => commands::crds::run(&args, &mut io::stdout().lock())?,
        Command::Handler(args) => commands::handler::run(*args)?,
        Command::Manifests(args) => commands::manifests::run(args, &mut io::stdout().lock())?,
        Command::Operator(args) => commands::operator::run(*args)?,
        Command::Remove(args) => commands::remove::run(args)?,
        Command::Node(args) => return commands::node::run(*args, &mut io::stdout().lock()),
        Command::Render(args) => return commands::render::run(args, &mut io::stdout().lock()),
        Command::Standalone(args) => return commands::standalone::run(*args, &mut io::stdout().lock()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Help, version, or what was wrong with the arguments.
fn explain(message: &clap::Error) -> ExitCode {
    // A reader that went away, as `head` does, has read what it wanted.
    let _ = message.print();
    u8::try_from(message.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// A reader that went away, as `head` does, is no failure of ours.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
