//! What worked before a change.

use std::{sync::Arc, time::Duration};

use knmstate_api::enactment::{ProbeOutcome, ProbeResult};
use knmstate_core::probes::{self, Check, Families, Family, Need, Network, Outlook, Probe, Seen};
use knmstate_host::NetworkState;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{attempt::Means, lookout::Lookout};

/// How long it takes at most to find out.
pub(super) const LIMIT: Duration = Duration::from_secs(3);

/// How often a probe is tried, and the time between two tries: what gets lost once should not decide.
const TRIES: usize = 3;
const PAUSE: Duration = Duration::from_millis(200);

/// What worked before a change, and what the network was like.
#[derive(Clone, Debug, Default)]
pub struct Baseline {
    state: Option<Arc<NetworkState>>,
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) probe: Probe,
    pub(super) seen: Seen,
    pub(super) why: String,
}

impl Baseline {
    pub(super) fn new(state: Arc<NetworkState>, entries: Vec<Entry>) -> Self {
        Self { state: Some(state), entries }
    }

    /// What came of each probe so far, for a change that does not get as far as the probes after it.
    pub fn results(&self) -> Vec<ProbeResult> {
        self.entries.iter().map(|entry| self.result(&entry.probe)).collect()
    }

    pub(super) fn state(&self) -> Option<Arc<NetworkState>> {
        self.state.clone()
    }

    pub(super) fn need(&self, probe: &Probe) -> Need {
        probes::need(probe, self.entry(probe).map(|entry| entry.seen))
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

    /// What a built-in probe was about: the gateways that answered, or the name servers.
    pub(super) fn asked(&self, probe: &Probe) -> String {
        let Some(state) = &self.state else { return String::new() };
        let network = Network { now: state.sections(), before: None };
        let gateways = |family: Family| match network.gateways(family) {
            Outlook::Now(gateways) => gateways,
            Outlook::Later | Outlook::Never(_) => Vec::new(),
        };
        match (&probe.check, network.name_servers()) {
            (Check::DefaultGateway { .. }, _) => {
                let answered = self.entry(probe).map_or(Families::NONE, |entry| entry.seen.families);
                joined(&answered.iter().flat_map(gateways).collect::<Vec<_>>())
            }
            (Check::NameServers, Outlook::Now(servers)) => joined(&servers),
            _ => String::new(),
        }
    }

    fn entry(&self, probe: &Probe) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.probe == *probe)
    }
}

fn joined(things: &[impl ToString]) -> String {
    things.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Tries one probe, until `end` at most.
pub(super) async fn entry(means: &Means, probe: &Probe, lookout: &Lookout, end: Instant) -> Entry {
    let tried = |need| tried(means, &probe.check, need, lookout, end);
    let result = if let Check::DefaultGateway { .. } = probe.check {
        // Each family has its own tries: that one keeps silent says nothing of the other.
        let alone = |family| tried(Need::Families([family].into_iter().collect()));
        match tokio::join!(alone(Family::V4), alone(Family::V6)) {
            (Ok(v4), Ok(v6)) => Ok(v4.and(v6)),
            (Ok(only), Err(_)) | (Err(_), Ok(only)) => Ok(only),
            (Err(v4), Err(v6)) if v4 == v6 => Err(v4),
            (Err(v4), Err(v6)) => Err(format!("{v4}; {v6}")),
        }
    } else {
        tried(Need::Pass).await
    };
    let (outcome, families, why) = match result {
        Ok(families) => (ProbeOutcome::Passed, families, String::new()),
        Err(why) => (ProbeOutcome::Failed, Families::NONE, why),
    };
    Entry { probe: probe.clone(), seen: Seen { outcome, families }, why }
}

async fn tried(
    means: &Means,
    check: &Check,
    need: Need,
    lookout: &Lookout,
    end: Instant,
) -> Result<Families, String> {
    let mut why = "no answer".to_owned();
    for number in 1..=TRIES {
        match timeout_at(end, means.attempt(check, need, lookout, None)).await {
            Ok(Ok(families)) => return Ok(families),
            Ok(Err(trouble)) => {
                why = trouble.why;
                if trouble.lost.is_some() {
                    break;
                }
            }
            Err(_) => break,
        }
        if number < TRIES {
            sleep_until(end.min(Instant::now() + PAUSE)).await;
        }
    }
    Err(why)
}
