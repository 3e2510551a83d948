//! The statuses of the node's enactments: those that were reported, and those that the API server has.
//!
//! A status that is too large is cut before it is written. One that the server refuses all the same is not sent again: a
//! minimal one takes its place, because the rollout waits for it; if the server refuses that, too, the log says so, and
//! the next status, or a change of the enactment, is tried again.

use std::{collections::BTreeMap, time::Duration};

use knmstate_api::{
    NodeNetworkConfigurationEnactment, NodeNetworkConfigurationEnactmentStatus,
    names::{self, HANDLER_FIELD_MANAGER},
    reasons::enactment::{FAILING, PENDING, PROGRESSING},
};
use knmstate_client::{
    apply,
    call::CallError,
    outbox::{Outbox, Pending, Schedule, SharedOutbox, Writer},
    watch::is_older,
};
use knmstate_core::status_budget::{fit, minimal};
use kube::{Api, Client};
use tokio::time::Instant;

/// How long after a write a status that another client has changed is written again.
const MIN_WRITE_INTERVAL: Duration = Duration::from_secs(5);

/// What lasts less than this is not written: with many nodes at work, "waits" and "works" would be half of all writes.
const BRIEF: Duration = Duration::from_secs(5);

/// The newest status that was reported of each enactment, and the one that the API server has.
#[derive(Debug, Default)]
pub struct EnactmentStatuses {
    /// By policy; `None` until they were listed.
    stored: Option<BTreeMap<String, StoredStatus>>,
    /// By policy. Once the enactments were listed, only of those that exist.
    reported: BTreeMap<String, ReportedStatus>,
    /// The reported statuses that the server does not have.
    outbox: Outbox<String, NodeNetworkConfigurationEnactmentStatus>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct StoredStatus {
    pub status: NodeNetworkConfigurationEnactmentStatus,
    pub version: String,
    /// How large a status of this enactment may be.
    pub budget: usize,
}

#[derive(Debug)]
struct ReportedStatus {
    status: NodeNetworkConfigurationEnactmentStatus,
    form: Form,
    /// When it may be written. Later than now if the node only waits or works, which may be over in a moment; and if it
    /// was written and another client has changed it, as two clients that disagree must not keep the server busy.
    not_before: Option<Instant>,
    delivered: bool,
}

/// The form in which a status is written.
#[derive(Clone, Debug, PartialEq)]
enum Form {
    /// Complete, as far as it fits.
    Full,
    /// The server has refused the full one; the note says why.
    Minimal { note: String },
    /// The server has refused both, when the enactment had this version.
    GivenUp { version: String },
}

impl ReportedStatus {
    /// What the server should have; `None` if it does not take it.
    fn wanted(&self, stored: &StoredStatus) -> Option<NodeNetworkConfigurationEnactmentStatus> {
        match self.form_for(stored) {
            Form::Full => Some(fit(self.status.clone(), stored.budget)),
            Form::Minimal { note } => Some(minimal(&self.status, note)),
            Form::GivenUp { .. } => None,
        }
    }

    fn form_for(&self, stored: &StoredStatus) -> &Form {
        match &self.form {
            // The enactment has changed since.
            Form::GivenUp { version } if *version != stored.version => &Form::Full,
            form => form,
        }
    }
}

impl EnactmentStatuses {
    pub fn report(&mut self, policy: &str, status: NodeNetworkConfigurationEnactmentStatus) {
        if self.stored.as_ref().is_some_and(|stored| !stored.contains_key(policy)) {
            tracing::debug!(policy, "there is no enactment for this status");
            return;
        }
        let known = self.reported.get(policy).filter(|known| is_passing(&known.status) && !known.delivered);
        let not_before = is_passing(&status)
            .then(|| known.and_then(|known| known.not_before).unwrap_or_else(|| Instant::now() + BRIEF));
        self.reported.insert(
            policy.to_owned(),
            ReportedStatus { status, form: Form::Full, not_before, delivered: false },
        );
        self.compare(policy);
    }

    /// The server has these enactments and no others.
    pub fn listed(&mut self, all: BTreeMap<String, StoredStatus>) {
        self.reported.retain(|policy, _| all.contains_key(policy));
        self.outbox.retain(|policy, _| all.contains_key(policy));
        self.stored = Some(all);
        for policy in self.reported.keys().cloned().collect::<Vec<_>>() {
            self.compare(&policy);
        }
    }

    /// The server has this status.
    pub fn changed(&mut self, policy: &str, now: StoredStatus) {
        let stored = self.stored.get_or_insert_default();
        if stored.get(policy).is_none_or(|known| !is_older(&now.version, &known.version)) {
            stored.insert(policy.to_owned(), now);
            self.compare(policy);
        }
    }

    /// The enactment does not exist any more.
    pub fn deleted(&mut self, policy: &str) {
        self.reported.remove(policy);
        self.outbox.cancel(&policy.to_owned());
        if let Some(stored) = &mut self.stored {
            stored.remove(policy);
        }
    }

    /// A status was written, which made this version.
    fn written(
        &mut self,
        policy: &str,
        status: NodeNetworkConfigurationEnactmentStatus,
        version: String,
        not_before: Instant,
    ) {
        let Some(stored) = self.stored.as_ref().and_then(|stored| stored.get(policy)) else { return };
        if let Some(reported) = self.reported.get_mut(policy)
            && reported.wanted(stored).as_ref() == Some(&status)
        {
            reported.not_before = Some(not_before);
        }
        let budget = stored.budget;
        self.changed(policy, StoredStatus { status, version, budget });
    }

    /// The server refuses this status, and would refuse it again.
    fn refused(&mut self, policy: &str, status: &NodeNetworkConfigurationEnactmentStatus, error: &CallError) {
        let stored = self.stored.as_ref().and_then(|stored| stored.get(policy));
        let (Some(stored), Some(reported)) = (stored, self.reported.get_mut(policy)) else { return };
        if reported.wanted(stored).as_ref() != Some(status) {
            // Another one has been reported meanwhile.
            return;
        }
        reported.not_before = None;
        if *reported.form_for(stored) == Form::Full {
            let note =
                format!("the API server refuses the complete status, which is in the node's ledger: {error}");
            tracing::warn!(policy, "{note}; the conditions are written without the rest");
            reported.form = Form::Minimal { note };
        } else {
            tracing::error!(
                policy,
                "the API server refuses the status of the enactment, and even its conditions alone: {error}. The \
                 policy cannot learn the result of this node until the next status or a change of the enactment"
            );
            reported.form = Form::GivenUp { version: stored.version.clone() };
            // Nothing is left that could be delivered.
            reported.delivered = true;
        }
        self.compare(policy);
    }

    /// Puts the reported status into the outbox if the server has another one.
    fn compare(&mut self, policy: &str) {
        let stored = self.stored.as_ref().and_then(|stored| stored.get(policy));
        let (Some(stored), Some(reported)) = (stored, self.reported.get_mut(policy)) else { return };
        let key = policy.to_owned();
        let Some(wanted) = reported.wanted(stored) else {
            self.outbox.cancel(&key);
            return;
        };
        if stored.status == wanted {
            reported.delivered = true;
            self.outbox.cancel(&key);
        } else if self.outbox.get(&key) != Some(&wanted) {
            let schedule = Schedule { not_before: reported.not_before, ..Schedule::default() };
            self.outbox.put(key, wanted, schedule);
        }
    }
}

/// Whether the node waits or works, so that another status follows.
fn is_passing(status: &NodeNetworkConfigurationEnactmentStatus) -> bool {
    let conditions = &status.conditions;
    conditions.is_true(PENDING) || (conditions.is_true(PROGRESSING) && !conditions.is_true(FAILING))
}

impl Pending for EnactmentStatuses {
    type Key = String;
    type Update = NodeNetworkConfigurationEnactmentStatus;

    fn outbox(&mut self) -> &mut Outbox<String, NodeNetworkConfigurationEnactmentStatus> {
        &mut self.outbox
    }

    fn is_delivered(&self) -> bool {
        self.reported.values().all(|reported| reported.delivered)
    }
}

/// Writes the statuses of a node's enactments.
pub struct StatusWriter {
    pub client: Client,
    pub node: String,
}

impl Writer<EnactmentStatuses> for StatusWriter {
    async fn write(
        &self,
        outbox: &SharedOutbox<EnactmentStatuses>,
        policy: &String,
        status: NodeNetworkConfigurationEnactmentStatus,
    ) -> Result<(), CallError> {
        let api = Api::all(self.client.clone());
        let name = names::enactment_name(&self.node, policy);
        let mut object = NodeNetworkConfigurationEnactment::new(&name, None);
        object.status.clone_from(&status);
        match apply::status(&api, &object, |object| &object.status, HANDLER_FIELD_MANAGER).await {
            Ok(version) => {
                let not_before = Instant::now() + MIN_WRITE_INTERVAL;
                outbox.change(|statuses| statuses.written(policy, status, version, not_before));
            }
            // The enactment was deleted, and its status is of no use any more.
            Err(error) if error.is_not_found() => outbox.change(|statuses| statuses.deleted(policy)),
            Err(error) if error.is_refusal_of_content() => {
                outbox.change(|statuses| statuses.refused(policy, &status, &error));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
