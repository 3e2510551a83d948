//! What the node says of its orders, and what is said of them already.

use std::{collections::BTreeMap, time::Duration};

use knmstate_api::{
    NodeNetworkConfigurationEnactment, NodeNetworkConfigurationEnactmentStatus,
    names::{self, HANDLER_FIELD_MANAGER},
    reasons::enactment::{FAILING, PENDING, PROGRESSING},
};
use knmstate_client::{apply, call::CallError, watch::is_older};
use kube::{Api, Client};
use tokio::time::Instant;

use super::desk::{Carrier, Desk, Next, Papers};

/// How long a status that was written stands before it is written again because somebody else has changed it.
const PEACE: Duration = Duration::from_secs(5);

/// What lasts less than this is not worth a write: with many nodes at work, those are half of all.
const BRIEF: Duration = Duration::from_secs(5);

/// The newest status that was told of each order, and the one at the server.
#[derive(Debug, Default)]
pub struct Enactments {
    /// What the server has, by policy; `None` until it has been asked.
    there: Option<BTreeMap<String, There>>,
    /// By policy. Once the server was asked, of none that is not there.
    told: BTreeMap<String, Told>,
    /// The policy that was written last: others have their turn before it, whether that worked or not.
    last: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct There {
    pub status: NodeNetworkConfigurationEnactmentStatus,
    pub version: String,
}

#[derive(Debug)]
struct Told {
    status: NodeNetworkConfigurationEnactmentStatus,
    /// When it may be written. Later than now if it says what may be over in a moment; and if it was written and
    /// somebody else has changed it, as two that disagree must not keep the server busy.
    from: Option<Instant>,
    delivered: bool,
}

/// A status to write.
#[derive(Debug, PartialEq)]
pub struct Say {
    pub policy: String,
    pub status: NodeNetworkConfigurationEnactmentStatus,
}

impl Enactments {
    pub fn tell(&mut self, policy: &str, status: NodeNetworkConfigurationEnactmentStatus) {
        if self.there.as_ref().is_some_and(|there| !there.contains_key(policy)) {
            tracing::debug!(policy, "there is no enactment to tell the status of");
            return;
        }
        let known = self.told.get(policy).filter(|known| is_passing(&known.status) && !known.delivered);
        let from = is_passing(&status)
            .then(|| known.and_then(|known| known.from).unwrap_or_else(|| Instant::now() + BRIEF));
        self.told.insert(policy.to_owned(), Told { status, from, delivered: false });
        self.settle(policy);
    }

    /// These enactments are there, and no others.
    pub fn see_all(&mut self, all: BTreeMap<String, There>) {
        self.told.retain(|policy, _| all.contains_key(policy));
        self.there = Some(all);
        for policy in self.told.keys().cloned().collect::<Vec<_>>() {
            self.settle(&policy);
        }
    }

    pub fn see(&mut self, policy: &str, now_there: There) {
        let there = self.there.get_or_insert_default();
        if there.get(policy).is_none_or(|known| !is_older(&now_there.version, &known.version)) {
            there.insert(policy.to_owned(), now_there);
            self.settle(policy);
        }
    }

    pub fn forget(&mut self, policy: &str) {
        self.told.remove(policy);
        if let Some(there) = &mut self.there {
            there.remove(policy);
        }
    }

    /// A status was written, which made this version.
    pub fn written(&mut self, said: Say, version: String, from: Instant) {
        if let Some(told) = self.told.get_mut(&said.policy)
            && told.status == said.status
        {
            told.from = Some(from);
        }
        self.see(&said.policy, There { status: said.status, version });
    }

    fn settle(&mut self, policy: &str) {
        let there = self.there.as_ref().and_then(|there| there.get(policy));
        if let (Some(there), Some(told)) = (there, self.told.get_mut(policy))
            && there.status == told.status
        {
            told.delivered = true;
        }
    }
}

/// Whether it says that the node waits or is at work, and not what came of that.
fn is_passing(status: &NodeNetworkConfigurationEnactmentStatus) -> bool {
    let conditions = &status.conditions;
    conditions.is_true(PENDING) || (conditions.is_true(PROGRESSING) && !conditions.is_true(FAILING))
}

impl Papers for Enactments {
    type Errand = Say;

    fn next(&mut self, now: Instant) -> Next<Say> {
        let Some(there) = &self.there else { return Next::Nothing };
        let mut unsaid: Vec<_> = self
            .told
            .iter()
            .filter(|(policy, told)| there.get(*policy).is_some_and(|there| there.status != told.status))
            .collect();
        // Those after the last one come first.
        unsaid.sort_by_key(|(policy, _)| **policy <= self.last);
        let is_due = |told: &Told| told.from.is_none_or(|from| from <= now);
        match unsaid.iter().find(|(_, told)| is_due(told)) {
            Some((policy, told)) => {
                let say = Say { policy: (*policy).clone(), status: told.status.clone() };
                self.last.clone_from(&say.policy);
                Next::Write(say)
            }
            None => unsaid.iter().filter_map(|(_, told)| told.from).min().map_or(Next::Nothing, Next::Later),
        }
    }

    fn is_delivered(&self) -> bool {
        self.told.values().all(|told| told.delivered)
    }
}

/// Writes the statuses of a node's enactments.
pub struct Writer {
    pub client: Client,
    pub node: String,
}

impl Carrier<Enactments> for Writer {
    async fn carry(&self, desk: &Desk<Enactments>, say: Say) -> Result<(), CallError> {
        let api = Api::all(self.client.clone());
        let name = names::enactment_name(&self.node, &say.policy);
        let mut object = NodeNetworkConfigurationEnactment::new(&name, None);
        object.status.clone_from(&say.status);
        match apply::status(&api, &object, |object| &object.status, HANDLER_FIELD_MANAGER).await {
            Ok(version) => desk.change(|enactments| enactments.written(say, version, Instant::now() + PEACE)),
            // Nobody wants to know any more.
            Err(error) if error.is_not_found() => desk.change(|enactments| enactments.forget(&say.policy)),
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

    fn there(generation: i64, version: &str) -> There {
        There { status: status(generation), version: version.to_owned() }
    }

    fn say(policy: &str, generation: i64) -> Next<Say> {
        Next::Write(Say { policy: policy.to_owned(), status: status(generation) })
    }

    fn with(policies: &[&str]) -> Enactments {
        let mut enactments = Enactments::default();
        let all = policies.iter().map(|policy| ((*policy).to_owned(), there(0, "1")));
        enactments.see_all(all.collect());
        enactments
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_written_before_the_server_was_asked() {
        let mut enactments = Enactments::default();
        enactments.tell("a", status(1));
        assert_eq!(enactments.next(Instant::now()), Next::Nothing);
        assert!(!enactments.is_delivered());
        enactments.see_all([("a".to_owned(), there(0, "1"))].into());
        assert_eq!(enactments.next(Instant::now()), say("a", 1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_server_has_is_not_written() {
        let mut enactments = with(&["a"]);
        enactments.tell("a", status(0));
        assert_eq!(enactments.next(Instant::now()), Next::Nothing);
        assert!(enactments.is_delivered());
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_event_after_a_write_causes_no_other_write() {
        let mut enactments = with(&["a"]);
        enactments.tell("a", status(2));
        enactments.written(
            Say { policy: "a".to_owned(), status: status(2) },
            "10".to_owned(),
            Instant::now(),
        );
        enactments.see("a", there(1, "9"));
        assert_eq!(enactments.next(Instant::now()), Next::Nothing);
        assert!(enactments.is_delivered());
    }

    #[tokio::test(start_paused = true)]
    async fn what_somebody_else_changed_is_put_right_after_a_while() {
        let mut enactments = with(&["a"]);
        let later = Instant::now() + PEACE;
        enactments.tell("a", status(2));
        enactments.written(Say { policy: "a".to_owned(), status: status(2) }, "10".to_owned(), later);
        enactments.see("a", there(1, "11"));
        assert_eq!(enactments.next(Instant::now()), Next::Later(later));
        assert!(enactments.is_delivered(), "it was, once");
        assert_eq!(enactments.next(later), say("a", 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_newer_status_takes_the_place_of_the_one_before() {
        let mut enactments = with(&["a"]);
        enactments.tell("a", status(1));
        enactments.tell("a", status(2));
        assert_eq!(enactments.next(Instant::now()), say("a", 2));
        // The answer to an older one does not hold up the newer one.
        let later = Instant::now() + Duration::from_mins(1);
        enactments.written(Say { policy: "a".to_owned(), status: status(1) }, "5".to_owned(), later);
        assert!(!enactments.is_delivered());
        assert_eq!(enactments.next(Instant::now()), say("a", 2));
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_be_over_in_a_moment_is_not_told_at_once() {
        let at = |type_: &str| {
            let mut status = status(1);
            status.conditions.set(type_, ConditionStatus::True, "", "", jiff::Timestamp::UNIX_EPOCH);
            status
        };
        let said = |status| Next::Write(Say { policy: "a".to_owned(), status });
        let mut enactments = with(&["a"]);
        let soon = Instant::now() + BRIEF;
        enactments.tell("a", at(PENDING));
        assert_eq!(enactments.next(Instant::now()), Next::Later(soon));
        tokio::time::advance(BRIEF / 2).await;
        enactments.tell("a", at(PROGRESSING));
        assert_eq!(enactments.next(Instant::now()), Next::Later(soon), "both together are as long");
        assert_eq!(enactments.next(soon), said(at(PROGRESSING)));
        enactments.tell("a", at("Available"));
        assert_eq!(enactments.next(Instant::now()), said(at("Available")));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_cannot_be_written_does_not_hold_up_the_others() {
        let mut enactments = with(&["a", "b", "c"]);
        for policy in ["a", "b", "c"] {
            enactments.tell(policy, status(1));
        }
        let turns: Vec<_> = (0..4).map(|_| enactments.next(Instant::now())).collect();
        assert_eq!(turns, [say("a", 1), say("b", 1), say("c", 1), say("a", 1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_is_there_is_kept() {
        let mut enactments = Enactments::default();
        enactments.tell("gone", status(1));
        enactments.see_all([("a".to_owned(), there(0, "1"))].into());
        enactments.tell("never", status(1));
        enactments.tell("a", status(1));
        enactments.forget("a");
        assert!(enactments.told.is_empty(), "{enactments:?}");
        assert!(enactments.is_delivered());
    }
}
