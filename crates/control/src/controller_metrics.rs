//! Counters and histograms of the controller's own work.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use crate::metric_labels::Labels;

/// The names of probes are those of policies; all policies of a cluster have fewer. The rest counts as another one.
const MAX_PROBES: usize = 256;

/// Counters and histograms. Clones share them.
#[derive(Clone, Debug)]
pub struct ControllerMetrics(Arc<All>);

#[derive(Debug)]
struct All {
    leader: Gauge,
    queue: Gauge,
    results: Family<ResultLabel, Counter>,
    probes: Family<ProbeLabel, Counter>,
    probe_names: Mutex<Labels>,
    rollbacks: Counter,
    certificates: Family<CertificateLabel, Gauge>,
    rollouts: Histogram,
    decisions: Histogram,
    writes: Family<WriteLabel, Histogram>,
    failed_writes: Family<WriteLabel, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProbeLabel {
    probe: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CertificateLabel {
    certificate: &'static str,
}

/// The certificates whose expiry is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateKind {
    /// The one that this replica serves.
    Serving,
    /// The controllers' own authority.
    Authority,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabel {
    object: &'static str,
}

impl Default for ControllerMetrics {
    fn default() -> Self {
        Self(Arc::new(All {
            leader: Gauge::default(),
            queue: Gauge::default(),
            results: Family::default(),
            probes: Family::default(),
            probe_names: Mutex::default(),
            rollbacks: Counter::default(),
            certificates: Family::default(),
            // From a second to a day.
            rollouts: Histogram::new(exponential_buckets(1.0, 2.0, 17)),
            // From a tenth of a millisecond to seconds.
            decisions: Histogram::new(exponential_buckets(0.0001, 4.0, 9)),
            writes: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 13))),
            failed_writes: Family::default(),
        }))
    }
}

impl ControllerMetrics {
    pub fn set_leading(&self, leads: bool) {
        self.0.leader.set(i64::from(leads));
        if !leads {
            // Only the leader reads it.
            self.set_certificate_expiry(CertificateKind::Authority, None);
        }
    }

    pub fn set_queue_depth(&self, depth: usize) {
        self.0.queue.set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    /// A node has finished an order: `available`, `failed` or `aborted`.
    pub fn count_result(&self, result: &'static str) {
        self.0.results.get_or_create(&ResultLabel { result }).inc();
    }

    pub fn count_probe_failure(&self, probe: &str) {
        let mut names = self.0.probe_names.lock().unwrap_or_else(PoisonError::into_inner);
        let probe = names.label(probe, MAX_PROBES);
        self.0.probes.get_or_create(&ProbeLabel { probe: probe.to_owned() }).inc();
    }

    /// A change was rolled back on a node, whether it is tried again or not.
    pub fn count_rollback(&self) {
        self.0.rollbacks.inc();
    }

    /// When a certificate expires; `None` if there is none.
    pub fn set_certificate_expiry(&self, which: CertificateKind, end: Option<Timestamp>) {
        let certificate = match which {
            CertificateKind::Serving => "serving",
            CertificateKind::Authority => "authority",
        };
        let label = CertificateLabel { certificate };
        match end {
            Some(end) => {
                self.0.certificates.get_or_create(&label).set(end.as_second());
            }
            None => {
                self.0.certificates.remove(&label);
            }
        }
    }

    /// The rollout of a policy has ended.
    pub fn observe_rollout(&self, took: Duration) {
        self.0.rollouts.observe(took.as_secs_f64());
    }

    pub fn observe_decision(&self, took: Duration) {
        self.0.decisions.observe(took.as_secs_f64());
    }

    pub fn observe_write(&self, object: &'static str, took: Duration, succeeded: bool) {
        let label = WriteLabel { object };
        self.0.writes.get_or_create(&label).observe(took.as_secs_f64());
        if !succeeded {
            self.0.failed_writes.get_or_create(&label).inc();
        }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        let all = &*self.0;
        registry.register("knmstate_leader", "Whether this controller leads", all.leader.clone());
        registry.register("knmstate_write_queue_depth", "Writes that wait in the queue", all.queue.clone());
        registry.register(
            "knmstate_enactment_results",
            "Orders that nodes finished, by result",
            all.results.clone(),
        );
        registry.register(
            "knmstate_probe_failures",
            "Probes that failed after a change and had it rolled back",
            all.probes.clone(),
        );
        registry.register(
            "knmstate_rollbacks",
            "Changes that were rolled back on a node, including those that were retried",
            all.rollbacks.clone(),
        );
        registry.register(
            "knmstate_certificate_expiry_timestamp_seconds",
            "When the served certificate and the controllers' own authority expire",
            all.certificates.clone(),
        );
        registry.register(
            "knmstate_rollout_duration_seconds",
            "Time from the first order of a policy to the end of its rollout",
            all.rollouts.clone(),
        );
        registry.register(
            "knmstate_decision_duration_seconds",
            "Time to decide what to write after a change",
            all.decisions.clone(),
        );
        registry.register(
            "knmstate_write_duration_seconds",
            "Time for the API server to respond to a write",
            all.writes.clone(),
        );
        registry.register(
            "knmstate_write_failures",
            "Writes that failed and are retried",
            all.failed_writes.clone(),
        );
    }
}
