//! One probe after the change, tried until it passes or cannot any more.

use std::time::Duration;

use knmstate_core::probes::{Check, Ending, Evidence, Need, Probe, failure, target};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{attempt::Means, lookout::Lookout};

/// The time between two tries.
const PAUSE: Duration = Duration::from_millis(500);

/// The same for what asks much of somebody whom all nodes ask, or costs the time of a second reading.
const LONG_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Pursuit<'a> {
    pub(super) means: &'a Means,
    pub(super) probe: &'a Probe,
    pub(super) need: Need,
    pub(super) lookout: &'a Lookout,
    pub(super) started: Instant,
    pub(super) deadline: Duration,
}

/// How and why a probe failed.
#[derive(Debug)]
pub(super) struct Fall {
    ending: Ending,
    why: String,
}

impl Fall {
    pub(super) fn is_hopeless(&self) -> bool {
        matches!(self.ending, Ending::Hopeless { .. })
    }

    /// The sentence about it; `asked` is what a built-in probe was about before the change.
    pub(super) fn message(&self, probe: &Probe, asked: &str, means: &Means) -> String {
        let target = match (&probe.check, &means.api) {
            (Check::ApiServer, Some(api)) => api.address(),
            // What is asked now is named in the reason; what is gone is not.
            _ if self.is_hopeless() && !asked.is_empty() => format!("before: {asked}"),
            (check, _) => target(check),
        };
        failure(&probe.name, &probe.check, &target, &self.ending, &self.why)
    }
}

impl Pursuit<'_> {
    pub(super) async fn run(self, mut evidence: Evidence) -> Result<(), Fall> {
        let within = self.probe.timeout.min(self.deadline);
        let end = self.started + within;
        let asks_the_api = matches!(self.probe.check, Check::ApiServer | Check::NodeReadiness);
        let mut why = String::new();
        let mut lost_since = None;
        loop {
            let attempt = self.means.attempt(&self.probe.check, self.need, self.lookout, Some(&mut evidence));
            let Ok(result) = timeout_at(end, attempt).await else { break };
            let Err(trouble) = result else { return Ok(()) };
            let now = Instant::now();
            why = trouble.why;
            let mut pause = if asks_the_api { LONG_PAUSE } else { PAUSE };
            match trouble.lost {
                Some(patience) => {
                    if now - *lost_since.get_or_insert(now) >= patience {
                        let after = now - self.started;
                        return Err(Fall { ending: Ending::Hopeless { after }, why });
                    }
                    pause = LONG_PAUSE;
                }
                None => lost_since = None,
            }
            sleep_until(end.min(now + pause)).await;
            if Instant::now() >= end {
                break;
            }
            // A loss is believed when the network is read again and still has it.
            if lost_since.is_some() && timeout_at(end, self.lookout.renewed()).await.is_err() {
                break;
            }
        }
        Err(Fall { ending: Ending::OutOfTime { within }, why })
    }
}
