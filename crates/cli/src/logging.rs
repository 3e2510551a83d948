//! What the long-running roles write to standard error.

use clap::ValueEnum;
use tracing::Level;
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    layer::SubscriberExt as _,
    util::{SubscriberInitExt as _, TryInitError},
};

/// How lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One object a line, for collectors.
    #[default]
    Json,
    /// For people.
    Text,
}

/// How much is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Verbosity {
    Warn,
    #[default]
    Info,
    Debug,
}

/// From here on everything that is logged goes to standard error.
pub fn start(format: Format, verbosity: Verbosity) -> Result<(), TryInitError> {
    let registry = tracing_subscriber::registry().with(filter(verbosity));
    match format {
        Format::Json => {
            let lines = tracing_subscriber::fmt::layer().json().flatten_event(true).with_current_span(false);
            registry.with(lines.with_span_list(false).with_writer(std::io::stderr)).try_init()
        }
        Format::Text => {
            registry.with(tracing_subscriber::fmt::layer().with_writer(std::io::stderr)).try_init()
        }
    }
}

fn filter(verbosity: Verbosity) -> Targets {
    let level = match verbosity {
        Verbosity::Warn => Level::WARN,
        Verbosity::Info => Level::INFO,
        Verbosity::Debug => Level::DEBUG,
    };
    // The wire is of no help to anybody; what nmstate tells there may hold secrets of the network, and it warns of every
    // kind of interface that a kernel does not have, at each reading.
    let targets = Targets::new()
        .with_default(level)
        .with_targets(
            ["hyper", "hyper_util", "rustls", "tower", "zbus"].map(|quiet| (quiet, level.min(Level::INFO))),
        )
        .with_targets(["nispor", "nmstate"].map(|quiet| (quiet, Level::ERROR)));
    // It repeats each failure of a call that its caller tells once and in better words.
    targets.with_target("kube_client", LevelFilter::OFF)
}
