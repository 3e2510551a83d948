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

/// From here on everything that is logged goes to standard error, but for the targets in `untold`.
pub fn start(format: Format, verbosity: Verbosity, untold: &[&'static str]) -> Result<(), TryInitError> {
    let filter = filter(verbosity).with_targets(untold.iter().map(|target| (*target, LevelFilter::OFF)));
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        Format::Json => {
            let lines = tracing_subscriber::fmt::layer().json().flatten_event(true).with_current_span(false);
            registry.with(lines.with_span_list(false).with_writer(std::io::stderr)).try_init()
        }
        Format::Text => {
            let lines = tracing_subscriber::fmt::layer().with_target(false).with_writer(std::io::stderr);
            registry.with(lines).try_init()
        }
    }
}

fn filter(verbosity: Verbosity) -> Targets {
    // These warn at every look at a machine without WLAN, with an older NetworkManager that serves well, or with an
    // interface that goes meanwhile; and what really goes wrong is their error, which is told in better words.
    let engine = |level: Level| ["nispor", "nmstate", "zbus"].map(|name| (name, level));
    let targets = match verbosity {
        Verbosity::Warn => Targets::new().with_default(Level::WARN).with_targets(engine(Level::ERROR)),
        Verbosity::Info => Targets::new().with_default(Level::INFO).with_targets(engine(Level::ERROR)),
        // The wire is of no help to anybody; and what nmstate tells there may hold secrets of the network.
        Verbosity::Debug => Targets::new()
            .with_default(Level::DEBUG)
            .with_targets(engine(Level::INFO))
            .with_targets(["hyper", "hyper_util", "rustls", "tower"].map(|quiet| (quiet, Level::INFO))),
    };
    // It repeats each failure of a call that its caller tells once and in better words.
    targets.with_target("kube_client", LevelFilter::OFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_engine_warns_of_at_every_look_is_told_to_those_who_search_for_a_fault() {
        let tells = |verbosity, target, level| filter(verbosity).would_enable(target, &level);
        for (verbosity, at_most) in [
            (Verbosity::Warn, Level::ERROR),
            (Verbosity::Info, Level::ERROR),
            (Verbosity::Debug, Level::INFO),
        ] {
            for target in ["nispor::query::inter_ifaces", "nmstate::nm::query_apply::apply", "zbus::proxy"] {
                for level in [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG] {
                    assert_eq!(
                        tells(verbosity, target, level),
                        level <= at_most,
                        "{verbosity:?} {target} {level}"
                    );
                }
            }
            assert!(tells(verbosity, "knmstate_agent::report", Level::WARN));
            assert!(!tells(verbosity, "kube_client::client", Level::ERROR));
        }
    }
}
