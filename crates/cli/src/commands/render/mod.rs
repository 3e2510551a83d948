//! `knmstate render`: objects of OpenShift's machine-config-operator, made out of policies or for them.

mod ignition;
#[cfg(test)]
mod ignition_rules;
mod input;
mod machine_config;
mod names;
mod object;
mod overlay;

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    process::ExitCode,
};

use anyhow::Context as _;
use clap::Subcommand;
use knmstate_files::yaml;
use serde_json::Value;

/// Write objects for OpenShift's machine-config-operator, out of policies or for them.
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    #[command(name = "machineconfig")]
    MachineConfig(machine_config::Args),
    Overlay(overlay::Args),
}

/// An object, and what a person should know about it.
#[derive(Debug)]
struct Rendered {
    object: Value,
    remarks: Vec<String>,
}

/// Exit code 2 when what was given cannot be rendered; nothing is written then.
pub fn run(args: Args, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let (rendered, output) = match args.what {
        What::MachineConfig(args) => {
            let text = input::read(&args.file)?;
            (machine_config::render(&args, &text), args.output)
        }
        What::Overlay(args) => (overlay::render(&args), args.output),
    };
    let rendered = match rendered {
        Ok(rendered) => rendered,
        Err(why) => {
            writeln!(io::stderr(), "knmstate: {why}")?;
            return Ok(ExitCode::from(2));
        }
    };
    for remark in &rendered.remarks {
        writeln!(io::stderr(), "knmstate: note: {remark}")?;
    }
    let text = yaml::document(&rendered.object)?;
    if let Some(path) = output {
        write_private(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    } else {
        out.write_all(text.as_bytes()).context("cannot write to standard output")?;
        out.flush().context("cannot write to standard output")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Keyfiles may contain passwords, so a new file is readable by its owner only. An existing one keeps its mode.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}
