//! Runs one probe after a change, until it passes or cannot pass any more.

use std::time::Duration;

use knmstate_core::probes::{Check, Evidence, Probe, ProbeFailureKind, Requirement, failure_message, target};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{attempt::ProbeRunner, network_observer::NetworkObserver};

/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(500);

/// The same for probes of the API server, which all nodes use, and for a loss that has to be read twice.
const LONG_PAUSE: Duration = Duration::from_secs(1);

/// One probe, and what it needs to run.
pub(super) struct ProbeLoop<'a> {
    pub(super) runner: &'a ProbeRunner,
    pub(super) probe: &'a Probe,
    pub(super) need: Requirement,
    pub(super) observer: &'a NetworkObserver,
    pub(super) started: Instant,
    pub(super) deadline: Duration,
}

/// How and why a probe failed.
#[derive(Debug)]
pub(super) struct ProbeFailure {
    ending: ProbeFailureKind,
    why: String,
}

impl ProbeFailure {
    pub(super) fn cannot_pass(&self) -> bool {
        matches!(self.ending, ProbeFailureKind::CannotPass { .. })
    }

    /// The message about it. `targets` are the targets of a built-in probe before the change.
    pub(super) fn message(&self, probe: &Probe, targets: &str, runner: &ProbeRunner) -> String {
        let target = match (&probe.check, &runner.api) {
            (Check::ApiServer, Some(api)) => api.address(),
            // The reason names the current targets, but not those that are gone.
            _ if self.cannot_pass() && !targets.is_empty() => format!("before: {targets}"),
            (check, _) => target(check),
        };
        failure_message(&probe.name, &probe.check, &target, &self.ending, &self.why)
    }
}

impl ProbeLoop<'_> {
    pub(super) async fn run(self, mut evidence: Evidence) -> Result<(), ProbeFailure> {
        let within = self.probe.timeout.min(self.deadline);
        let end = self.started + within;
        let uses_the_api = matches!(self.probe.check, Check::ApiServer | Check::NodeReadiness);
        let mut why = String::new();
        let mut lost_since = None;
        loop {
            let attempt =
                self.runner.attempt(&self.probe.check, self.need, self.observer, Some(&mut evidence));
            let Ok(result) = timeout_at(end, attempt).await else { break };
            let Err(error) = result else { return Ok(()) };
            let now = Instant::now();
            why = error.why;
            let mut pause = if uses_the_api { LONG_PAUSE } else { PAUSE };
            match error.lost {
                Some(time) => {
                    if now - *lost_since.get_or_insert(now) >= time {
                        let after = now - self.started;
                        return Err(ProbeFailure { ending: ProbeFailureKind::CannotPass { after }, why });
                    }
                    pause = LONG_PAUSE;
                }
                None => lost_since = None,
            }
            sleep_until(end.min(now + pause)).await;
            if Instant::now() >= end {
                break;
            }
            // A loss counts only when another reading of the network confirms it.
            if lost_since.is_some() && timeout_at(end, self.observer.next()).await.is_err() {
                break;
            }
        }
        Err(ProbeFailure { ending: ProbeFailureKind::TimedOut { within }, why })
    }
}
