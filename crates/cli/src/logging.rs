//! What the long-running roles write to standard error.

use clap::ValueEnum;
use tracing::Level;
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    layer::SubscriberExt as _,
    util::{SubscriberInitExt as _, TryInitError},
};

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One JSON object per line, for log collectors.
    #[default]
    Json,
    /// For people.
    Text,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Verbosity {
    Warn,
    #[default]
    Info,
    Debug,
}

/// Starts to log to standard error, without the targets in `silenced`. Fails if logging was started before.
pub fn start(format: Format, verbosity: Verbosity, silenced: &[&'static str]) -> Result<(), TryInitError> {
    let filter = filter(verbosity).with_targets(silenced.iter().map(|target| (*target, LevelFilter::OFF)));
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
    // interface that goes meanwhile; real problems are in their errors, which are logged separately.
    let engine = |level: Level| ["nispor", "nmstate", "zbus"].map(|name| (name, level));
    let targets = match verbosity {
        Verbosity::Warn => Targets::new().with_default(Level::WARN).with_targets(engine(Level::ERROR)),
        Verbosity::Info => Targets::new().with_default(Level::INFO).with_targets(engine(Level::ERROR)),
        // Not useful on the wire level, and messages of nmstate may contain secrets of the network.
        Verbosity::Debug => Targets::new()
            .with_default(Level::DEBUG)
            .with_targets(engine(Level::INFO))
            .with_targets(["hyper", "hyper_util", "rustls", "tower"].map(|quiet| (quiet, Level::INFO))),
    };
    // It repeats each failed call, which its caller logs once with a better message.
    targets.with_target("kube_client", LevelFilter::OFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_warnings_of_nmstate_are_logged_at_debug_level_only() {
        let is_logged = |verbosity, target, level| filter(verbosity).would_enable(target, &level);
        for (verbosity, at_most) in [
            (Verbosity::Warn, Level::ERROR),
            (Verbosity::Info, Level::ERROR),
            (Verbosity::Debug, Level::INFO),
        ] {
            for target in ["nispor::query::inter_ifaces", "nmstate::nm::query_apply::apply", "zbus::proxy"] {
                for level in [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG] {
                    assert_eq!(
                        is_logged(verbosity, target, level),
                        level <= at_most,
                        "{verbosity:?} {target} {level}"
                    );
                }
            }
            assert!(is_logged(verbosity, "knmstate_agent::report", Level::WARN));
            assert!(!is_logged(verbosity, "kube_client::client", Level::ERROR));
        }
    }
}
