//! The statuses of the node's enactments: those that were reported, and those that the API server has.

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
}

#[derive(Debug)]
struct ReportedStatus {
    status: NodeNetworkConfigurationEnactmentStatus,
    /// When it may be written. Later than now if the node only waits or works, which may be over in a moment; and if it
    /// was written and another client has changed it, as two clients that disagree must not keep the server busy.
    not_before: Option<Instant>,
    delivered: bool,
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
        self.reported.insert(policy.to_owned(), ReportedStatus { status, not_before, delivered: false });
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
    fn written(&mut self, policy: &str, written: StoredStatus, not_before: Instant) {
        if let Some(reported) = self.reported.get_mut(policy)
            && reported.status == written.status
        {
            reported.not_before = Some(not_before);
        }
        self.changed(policy, written);
    }

    /// Puts the reported status into the outbox if the server has another one.
    fn compare(&mut self, policy: &str) {
        let stored = self.stored.as_ref().and_then(|stored| stored.get(policy));
        let (Some(stored), Some(reported)) = (stored, self.reported.get_mut(policy)) else { return };
        let key = policy.to_owned();
        if stored.status == reported.status {
            reported.delivered = true;
            self.outbox.cancel(&key);
        } else if self.outbox.get(&key) != Some(&reported.status) {
            let schedule = Schedule { not_before: reported.not_before, ..Schedule::default() };
            self.outbox.put(key, reported.status.clone(), schedule);
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
                let written = StoredStatus { status, version };
                let not_before = Instant::now() + MIN_WRITE_INTERVAL;
                outbox.change(|statuses| statuses.written(policy, written, not_before));
            }
            // The enactment was deleted, and its status is of no use any more.
            Err(error) if error.is_not_found() => outbox.change(|statuses| statuses.deleted(policy)),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use knmstate_api::ConditionStatus;

    use super::*;

    fn status(generation: i64) -> NodeNetworkConfigurationEnactmentStatus {
        NodeNetworkConfigurationEnactmentStatus { policy_generation: generation, ..Default::default() }
    }

    fn stored(generation: i64, version: &str) -> StoredStatus {
        StoredStatus { status: status(generation), version: version.to_owned() }
    }

    fn with(policies: &[&str]) -> EnactmentStatuses {
        let mut statuses = EnactmentStatuses::default();
        let all = policies.iter().map(|policy| ((*policy).to_owned(), stored(0, "1")));
        statuses.listed(all.collect());
        statuses
    }

    impl EnactmentStatuses {
        /// The status that is written next, if one may be written at this time; the write has then ended.
        fn next_at(&mut self, now: Instant) -> Option<(String, NodeNetworkConfigurationEnactmentStatus)> {
            let next = self.outbox.take(now);
            if let Some((policy, _)) = &next {
                self.outbox.done(policy);
            }
            next
        }

        fn next(&mut self) -> Option<(String, NodeNetworkConfigurationEnactmentStatus)> {
            self.next_at(Instant::now())
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "compared with the next update, if any")]
    fn write(policy: &str, generation: i64) -> Option<(String, NodeNetworkConfigurationEnactmentStatus)> {
        Some((policy.to_owned(), status(generation)))
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_written_before_the_server_was_asked() {
        let mut statuses = EnactmentStatuses::default();
        statuses.report("a", status(1));
        assert_eq!(statuses.next(), None);
        assert!(!statuses.is_delivered());
        statuses.listed([("a".to_owned(), stored(0, "1"))].into());
        assert_eq!(statuses.next(), write("a", 1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_server_has_is_not_written() {
        let mut statuses = with(&["a"]);
        statuses.report("a", status(0));
        assert_eq!(statuses.next(), None);
        assert!(statuses.is_delivered());
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_event_after_a_write_causes_no_other_write() {
        let mut statuses = with(&["a"]);
        statuses.report("a", status(2));
        statuses.written("a", stored(2, "10"), Instant::now());
        statuses.changed("a", stored(1, "9"));
        assert_eq!(statuses.next(), None);
        assert!(statuses.is_delivered());
    }

    #[tokio::test(start_paused = true)]
    async fn what_another_client_changed_is_written_again_after_a_while() {
        let mut statuses = with(&["a"]);
        let later = Instant::now() + MIN_WRITE_INTERVAL;
        statuses.report("a", status(2));
        statuses.written("a", stored(2, "10"), later);
        statuses.changed("a", stored(1, "11"));
        assert_eq!(statuses.next(), None);
        assert_eq!(statuses.outbox.next_at(), Some(later));
        assert!(statuses.is_delivered(), "it was, once");
        assert_eq!(statuses.next_at(later), write("a", 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_newer_status_takes_the_place_of_the_one_before() {
        let mut statuses = with(&["a"]);
        statuses.report("a", status(1));
        let (policy, first) = statuses.outbox.take(Instant::now()).unwrap();
        assert_eq!(first, status(1));
        statuses.report("a", status(2));
        // The response to an older one does not delay the newer one.
        let later = Instant::now() + Duration::from_mins(1);
        statuses.written(&policy, stored(1, "5"), later);
        statuses.outbox.done(&policy);
        assert!(!statuses.is_delivered());
        assert_eq!(statuses.next(), write("a", 2));
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_be_over_in_a_moment_is_not_written_at_once() {
        let at = |type_: &str| {
            let mut status = status(1);
            status.conditions.set(type_, ConditionStatus::True, "", "", jiff::Timestamp::UNIX_EPOCH);
            status
        };
        let written = |status| Some(("a".to_owned(), status));
        let mut statuses = with(&["a"]);
        let soon = Instant::now() + BRIEF;
        statuses.report("a", at(PENDING));
        assert_eq!(statuses.next(), None);
        assert_eq!(statuses.outbox.next_at(), Some(soon));
        tokio::time::advance(BRIEF / 2).await;
        statuses.report("a", at(PROGRESSING));
        assert_eq!(statuses.next(), None);
        assert_eq!(statuses.outbox.next_at(), Some(soon), "both together are as long");
        assert_eq!(statuses.next_at(soon), written(at(PROGRESSING)));
        statuses.report("a", at("Available"));
        assert_eq!(statuses.next(), written(at("Available")));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_cannot_be_written_does_not_hold_up_the_others() {
        let mut statuses = with(&["a", "b", "c"]);
        for policy in ["a", "b", "c"] {
            statuses.report(policy, status(1));
        }
        let fail = |statuses: &mut EnactmentStatuses| {
            let (policy, status) = statuses.outbox.take(Instant::now())?;
            statuses.outbox.failed(policy.clone(), status, Instant::now());
            Some(policy)
        };
        assert_eq!(fail(&mut statuses).as_deref(), Some("a"));
        assert_eq!([statuses.next(), statuses.next(), statuses.next()], [write("b", 1), write("c", 1), None]);
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(statuses.next(), write("a", 1));
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_exists_is_kept() {
        let mut statuses = EnactmentStatuses::default();
        statuses.report("gone", status(1));
        statuses.listed([("a".to_owned(), stored(0, "1"))].into());
        statuses.report("never", status(1));
        statuses.report("a", status(1));
        statuses.deleted("a");
        assert!(statuses.reported.is_empty() && statuses.outbox.is_empty(), "{statuses:?}");
        assert!(statuses.is_delivered());
    }
}
