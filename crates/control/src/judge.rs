//! Judges policies on threads of their own, so that one that takes long delays neither the others nor the lease.
//!
//! A verdict is kept with the [`Question`], which has everything that it depends on: as long as that stays the same,
//! the policy is not judged again. A policy without a verdict is not planned.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use knmstate_api::NodeNetworkConfigurationPolicySpec;
use knmstate_core::{Candidate, NodeFacts};
use tokio::{
    sync::Semaphore,
    task::{JoinSet, spawn_blocking},
    time::{Instant, timeout},
};

use crate::{
    cluster_state::Origin,
    known_checks::KnownChecks,
    refusal::{CANNOT_BE_CHECKED, Refusal, refusal_in_cluster, takes_too_long},
};

/// How many policies are judged at the same time.
const MAX_CONCURRENT: usize = 4;
/// A policy that takes longer is refused.
const LIMIT: Duration = Duration::from_secs(30);
/// How long that refusal stays when something else has changed in the cluster. Its thread cannot be stopped, so it must
/// not be followed by another one at once.
const PAUSE_AFTER_LIMIT: Duration = Duration::from_mins(5);

/// A policy as it is judged. Two are the same if they are of one generation.
#[derive(Clone, Debug)]
pub(crate) struct JudgedPolicy {
    pub name: String,
    pub uid: String,
    pub generation: i64,
    pub spec: Arc<NodeNetworkConfigurationPolicySpec>,
}

impl PartialEq for JudgedPolicy {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.uid, self.generation) == (&other.name, &other.uid, other.generation)
    }
}

impl JudgedPolicy {
    fn candidate(&self) -> Candidate<'_> {
        Candidate { name: &self.name, spec: &self.spec }
    }
}

/// Everything that a verdict depends on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Question {
    pub policy: JudgedPolicy,
    /// The policies that it must not conflict with.
    pub others: Vec<JudgedPolicy>,
    /// The nodes that it selects, with their labels.
    pub nodes: Vec<(String, Arc<BTreeMap<String, String>>)>,
}

impl Question {
    /// Why the policy is refused, if it is.
    pub(crate) fn refusal(&self, known: &KnownChecks) -> Option<String> {
        let others: Vec<_> = self.others.iter().map(JudgedPolicy::candidate).collect();
        let nodes: Vec<_> = self.nodes.iter().map(|(name, labels)| NodeFacts { name, labels }).collect();
        refusal_in_cluster(&self.policy.candidate(), &others, &nodes, known).map(Refusal::into_message)
    }
}

/// What is known about a policy.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// It is being judged. [`Judge::next`] returns it when there is a verdict.
    Pending,
    Known {
        refusal: Option<String>,
        /// When it is judged again although nothing changes.
        again_at: Option<Instant>,
    },
}

/// The verdicts of the policies that have not begun.
#[derive(Debug)]
pub(crate) struct Judge {
    known_checks: KnownChecks,
    verdicts: BTreeMap<Origin, State>,
    running: JoinSet<(Origin, Arc<Question>, Outcome)>,
    room: Arc<Semaphore>,
}

#[derive(Debug)]
enum State {
    Running,
    Judged { question: Arc<Question>, refusal: Option<String>, stays_until: Option<Instant> },
}

#[derive(Debug)]
enum Outcome {
    Judged(Option<String>),
    Panicked,
    LimitReached,
}

impl Judge {
    pub(crate) fn new(known_checks: KnownChecks) -> Self {
        Self {
            known_checks,
            verdicts: BTreeMap::new(),
            running: JoinSet::new(),
            room: Arc::new(Semaphore::new(MAX_CONCURRENT)),
        }
    }

    /// The verdict on a policy. If there is none yet, or none on this question, the policy is judged. Without a question,
    /// there is nothing against it.
    pub(crate) fn verdict(&mut self, origin: &Origin, question: Option<Question>) -> Verdict {
        let Some(question) = question else {
            self.forget(origin);
            return Verdict::Known { refusal: None, again_at: None };
        };
        match self.verdicts.get(origin) {
            // One at a time: if the question has changed since, it is asked again afterwards.
            Some(State::Running) => return Verdict::Pending,
            Some(State::Judged { question: known, refusal, .. }) if **known == question => {
                return Verdict::Known { refusal: refusal.clone(), again_at: None };
            }
            Some(State::Judged { refusal, stays_until: Some(until), .. }) if *until > Instant::now() => {
                return Verdict::Known { refusal: refusal.clone(), again_at: Some(*until) };
            }
            Some(State::Judged { .. }) | None => {}
        }
        let known_checks = self.known_checks.clone();
        self.start(origin, question, move |question| question.refusal(&known_checks));
        Verdict::Pending
    }

    fn start(
        &mut self,
        origin: &Origin,
        question: Question,
        work: impl FnOnce(&Question) -> Option<String> + Send + 'static,
    ) {
        self.verdicts.insert(origin.clone(), State::Running);
        let (origin, question, room) = (origin.clone(), Arc::new(question), self.room.clone());
        self.running.spawn(async move {
            let outcome = on_a_thread(room, question.clone(), work).await;
            (origin, question, outcome)
        });
    }

    /// Drops the verdict on a policy that needs none any more, unless it is still being judged.
    fn forget(&mut self, origin: &Origin) {
        if matches!(self.verdicts.get(origin), Some(State::Judged { .. })) {
            self.verdicts.remove(origin);
        }
    }

    /// Waits until there is a verdict on a policy that was pending; `None` if none is.
    pub(crate) async fn next(&mut self) -> Option<Origin> {
        loop {
            // A task ends by itself only: neither is it aborted, nor does it panic.
            let Ok((origin, question, outcome)) = self.running.join_next().await? else { continue };
            let stays_until =
                matches!(outcome, Outcome::LimitReached).then(|| Instant::now() + PAUSE_AFTER_LIMIT);
            let refusal = match outcome {
                Outcome::Judged(refusal) => refusal,
                Outcome::Panicked => Some(CANNOT_BE_CHECKED.to_owned()),
                Outcome::LimitReached => Some(takes_too_long(LIMIT)),
            };
            self.verdicts.insert(origin.clone(), State::Judged { question, refusal, stays_until });
            return Some(origin);
        }
    }
}

/// Does the work on a thread. The room is occupied until the thread ends, also after the limit.
async fn on_a_thread(
    room: Arc<Semaphore>,
    question: Arc<Question>,
    work: impl FnOnce(&Question) -> Option<String> + Send + 'static,
) -> Outcome {
    let Ok(place) = room.acquire_owned().await else { return Outcome::LimitReached };
    let thread = spawn_blocking(move || {
        let _place = place;
        work(&question)
    });
    match timeout(LIMIT, thread).await {
        Ok(Ok(refusal)) => Outcome::Judged(refusal),
        Ok(Err(_)) => Outcome::Panicked,
        Err(_) => Outcome::LimitReached,
    }
}

#[cfg(test)]
mod tests;
