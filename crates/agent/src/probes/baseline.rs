//! The results of the probes before a change.

use std::{sync::Arc, time::Duration};

use knmstate_api::enactment::{ProbeOutcome, ProbeResult};
use knmstate_core::probes::{
    self, Check, Families, Family, Forecast, Network, Observation, Probe, Requirement,
};
use knmstate_host::NetworkState;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{attempt::ProbeRunner, network_observer::NetworkObserver};

/// How long the baseline may take.
pub(super) const LIMIT: Duration = Duration::from_secs(3);

/// How often a probe is tried, and the time between two attempts: one lost packet should not decide.
const ATTEMPTS: usize = 3;
const PAUSE: Duration = Duration::from_millis(200);

/// The results of the probes before a change, and the state of the network then.
#[derive(Clone, Debug, Default)]
pub(crate) struct Baseline {
    state: Option<Arc<NetworkState>>,
    entries: Vec<BaselineEntry>,
}

/// The result of one probe.
#[derive(Clone, Debug)]
pub(super) struct BaselineEntry {
    pub(super) probe: Probe,
    pub(super) seen: Observation,
    pub(super) why: String,
}

impl Baseline {
    pub(super) fn new(state: Arc<NetworkState>, entries: Vec<BaselineEntry>) -> Self {
        Self { state: Some(state), entries }
    }

    /// The results of all probes.
    #[cfg(test)]
    pub(crate) fn results(&self) -> Vec<ProbeResult> {
        self.entries.iter().map(|entry| self.result(&entry.probe)).collect()
    }

    pub(super) fn state(&self) -> Option<Arc<NetworkState>> {
        self.state.clone()
    }

    pub(super) fn need(&self, probe: &Probe) -> Requirement {
        probes::requirement(probe, self.entry(probe).map(|entry| entry.seen))
    }

    pub(super) fn result(&self, probe: &Probe) -> ProbeResult {
        let entry = self.entry(probe);
        ProbeResult {
            name: probe.name.clone(),
            before: entry.map(|entry| entry.seen.outcome),
            after: None,
            message: entry.map_or_else(String::new, |entry| entry.why.clone()),
        }
    }

    /// The targets of a built-in probe before the change: the gateways that responded, or the name servers.
    pub(super) fn targets(&self, probe: &Probe) -> String {
        let Some(state) = &self.state else { return String::new() };
        let network = Network { now: state.sections(), before: None };
        let gateways = |family: Family| match network.gateways(family) {
            Forecast::Now(gateways) => gateways,
            Forecast::Later | Forecast::Never(_) => Vec::new(),
        };
        match (&probe.check, network.name_servers()) {
            (Check::DefaultGateway { .. }, _) => {
                let answered = self.entry(probe).map_or(Families::NONE, |entry| entry.seen.families);
                joined(&answered.iter().flat_map(gateways).collect::<Vec<_>>())
            }
            (Check::NameServers, Forecast::Now(servers)) => joined(&servers),
            _ => String::new(),
        }
    }

    fn entry(&self, probe: &Probe) -> Option<&BaselineEntry> {
        self.entries.iter().find(|entry| entry.probe == *probe)
    }
}

fn joined(targets: &[impl ToString]) -> String {
    targets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Runs one probe, until `end` at most.
pub(super) async fn run_probe(
    runner: &ProbeRunner,
    probe: &Probe,
    observer: &NetworkObserver,
    end: Instant,
) -> BaselineEntry {
    let attempt = |need| attempt(runner, &probe.check, need, observer, end);
    let result = if let Check::DefaultGateway { .. } = probe.check {
        // One attempt per address family: a gateway that does not respond in one of them may respond in the other.
        let alone = |family| attempt(Requirement::Families([family].into_iter().collect()));
        match tokio::join!(alone(Family::V4), alone(Family::V6)) {
            (Ok(v4), Ok(v6)) => Ok(v4.union(v6)),
            (Ok(only), Err(_)) | (Err(_), Ok(only)) => Ok(only),
            (Err(v4), Err(v6)) if v4 == v6 => Err(v4),
            (Err(v4), Err(v6)) => Err(format!("{v4}; {v6}")),
        }
    } else {
        attempt(Requirement::Pass).await
    };
    let (outcome, families, why) = match result {
        Ok(families) => (ProbeOutcome::Passed, families, String::new()),
        Err(why) => (ProbeOutcome::Failed, Families::NONE, why),
    };
    BaselineEntry { probe: probe.clone(), seen: Observation { outcome, families }, why }
}

/// Tries a probe until it passes, or no more attempts are left.
async fn attempt(
    runner: &ProbeRunner,
    check: &Check,
    need: Requirement,
    observer: &NetworkObserver,
    end: Instant,
) -> Result<Families, String> {
    let mut why = "no answer".to_owned();
    for number in 1..=ATTEMPTS {
        match timeout_at(end, runner.attempt(check, need, observer, None)).await {
            Ok(Ok(families)) => return Ok(families),
            Ok(Err(error)) => {
                why = error.why;
                if error.lost.is_some() {
                    break;
                }
            }
            Err(_) => break,
        }
        if number < ATTEMPTS {
            sleep_until(end.min(Instant::now() + PAUSE)).await;
        }
    }
    Err(why)
}
