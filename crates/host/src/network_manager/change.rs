//! The steps of a change on the real host. It runs on the worker's thread, one step at a time. `undo.rs` has those that
//! roll it back.

use knmstate_document::NetworkState;
use std::time::Duration;

use futures::StreamExt as _;
use nmstate::{NetworkState as Document, NmstateError};
use tokio::time::Instant;

use super::classify::{self, CallPhase};
use super::journal::{Entry, Journal};
use super::options::{NetworkManagerLimits, NetworkManagerOptions};
use super::ownership::{self, Moment, is_settled, ours};
use super::planning::{ChangeRules, PlannedChange, plan_change};
use super::readings::Readings;
use super::service::{self, Service, whole_seconds};
use super::service_watch::{ServiceEvent, watch};
use super::unchanged::Unchanged;
use super::{memory_only, nmstate_calls};
use crate::error::HostError;
use crate::events::Events;
use crate::host::{Checkpoint, Guard, OpenCheckpoint, Operation, Plan, Warning};

/// How often the state is read while the machine settles after a roll-back.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct GuardedChanges {
    pub(super) journal: Journal,
    pub(super) limits: NetworkManagerLimits,
    rules: ChangeRules,
    pub(super) unchanged: Unchanged,
    readings: Readings,
}

/// How an apply came out.
enum Applied {
    Finished(Result<(), NmstateError>),
    OutOfTime,
    ServiceGone,
}

impl GuardedChanges {
    pub(super) fn new(options: NetworkManagerOptions, events: Events) -> Self {
        Self {
            readings: Readings::new(options.limits.observe, events),
            journal: Journal::new(options.journal),
            limits: options.limits,
            rules: ChangeRules {
                memory_only: options.memory_only,
                allow_dispatch_scripts: options.allow_dispatch_scripts,
            },
            unchanged: Unchanged::default(),
        }
    }

    pub(super) async fn observe(&mut self) -> Result<NetworkState, HostError> {
        nmstate_calls::shown(self.readings.fresh().await?)
    }

    /// No request came for a while, and the last reading is too old for the next one.
    pub(super) fn rest(&mut self) {
        self.readings.forget();
    }

    pub(super) async fn begin(
        &mut self,
        desired: &NetworkState,
        deadline: Duration,
    ) -> Result<Checkpoint, HostError> {
        self.refuse_if_busy().await?;
        let service = Service::find(self.limits.answer).await?;
        let (Some(plan), _) = self.plan_change(&service, desired).await? else {
            return Ok(self.unchanged.begin(deadline));
        };
        let profiles = service.profiles().await?;
        let mut entry = Entry {
            service: service.identity().to_owned(),
            noted_at_ms: service::boot_time_ms(),
            before: plan.before.clone().into_value(),
            revert: plan.revert.clone(),
            touched: plan.touched.clone(),
            profiles: profiles.into_iter().map(|profile| profile.uuid).collect(),
            memory_only: self.rules.memory_only,
            boot: service::boot_id(),
            scripts: plan.scripts.clone(),
            ..Entry::default()
        };
        self.journal.write(&entry)?;
        self.readings.forget();
        let failure = match self.apply(&service, &plan.document, &mut entry, deadline).await {
            Ok(Applied::Finished(Ok(()))) => {
                match self.after_apply(&service, desired, &mut entry, deadline).await {
                    Ok(checkpoint) => return Ok(checkpoint),
                    Err(failure) => failure,
                }
            }
            Ok(Applied::Finished(Err(error))) => {
                classify::nmstate(&error, CallPhase::Applying, &plan.touched, &plan.scrubber)
            }
            Ok(Applied::OutOfTime) => HostError::Timeout { operation: Operation::Begin, after: deadline },
            Ok(Applied::ServiceGone) => service_ended(),
            Err(failure) => failure,
        };
        Err(self.undo_failed(&entry, failure).await)
    }

    /// What nmstate leaves undone; and from now on the caller has `deadline` to decide.
    async fn after_apply(
        &self,
        service: &Service,
        desired: &NetworkState,
        entry: &mut Entry,
        deadline: Duration,
    ) -> Result<Checkpoint, HostError> {
        if entry.memory_only {
            memory_only::keep_absent_profiles_inactive(service, desired).await?;
        }
        self.guard_from_now(service, entry, deadline).await
    }

    async fn plan_change(
        &mut self,
        service: &Service,
        desired: &NetworkState,
    ) -> Result<(Option<PlannedChange>, Vec<Warning>), HostError> {
        // A recent reading is enough to begin a change, but not to refuse one or to report that nothing has to change.
        if let Some(recent) = self.readings.recent()
            && let Ok((Some(prepared), warnings)) = plan_change(service, desired, recent, self.rules).await
        {
            return Ok((Some(prepared), warnings));
        }
        let current = self.readings.fresh().await?;
        plan_change(service, desired, current, self.rules).await
    }

    /// Works out what would be done, and says it.
    pub(super) async fn plan(&mut self, desired: &NetworkState) -> Result<Plan, HostError> {
        let service = Service::find(self.limits.answer).await?;
        let (prepared, warnings) = self.plan_change(&service, desired).await?;
        Ok(match prepared {
            Some(PlannedChange { difference, before, .. }) => Plan { difference, before, warnings },
            None => Plan { warnings, ..Plan::default() },
        })
    }

    /// Applies, and learns the name of our checkpoint as soon as there is one.
    async fn apply(
        &self,
        service: &Service,
        document: &Document,
        entry: &mut Entry,
        deadline: Duration,
    ) -> Result<Applied, HostError> {
        let end = Instant::now() + deadline;
        let mut service_events = watch(service).await?;
        let document = nmstate_calls::uncommitted(document.clone(), deadline, entry.memory_only);
        let mut apply = Box::pin(document.apply_async());
        loop {
            tokio::select! {
                biased;
                result = &mut apply => return Ok(Applied::Finished(result)),
                () = tokio::time::sleep_until(end) => return Ok(Applied::OutOfTime),
                event = service_events.next() => match event {
                    Some(ServiceEvent::Properties) if entry.checkpoint.is_none() => {
                        self.learn_checkpoint(service, entry).await?;
                    }
                    Some(ServiceEvent::Properties) => {}
                    Some(ServiceEvent::Gone) | None => return Ok(Applied::ServiceGone),
                },
            }
        }
    }

    async fn learn_checkpoint(&self, service: &Service, entry: &mut Entry) -> Result<(), HostError> {
        if let Some(held) = ours(entry, &service.checkpoints().await?) {
            entry.checkpoint = Some(held.path.clone());
            self.journal.write(entry)?;
        }
        Ok(())
    }

    /// The change is applied: from now on the caller has `deadline` to decide.
    async fn guard_from_now(
        &self,
        service: &Service,
        entry: &mut Entry,
        deadline: Duration,
    ) -> Result<Checkpoint, HostError> {
        if entry.checkpoint.is_none() {
            self.learn_checkpoint(service, entry).await?;
        }
        match &entry.checkpoint {
            Some(path) if service.restart_timer(path, deadline).await? => Ok(entry.name()),
            _ => Err(service_ended()),
        }
    }

    pub(super) async fn commit(&mut self, checkpoint: &Checkpoint) -> Result<(), HostError> {
        if self.unchanged.settle(checkpoint) {
            return Ok(());
        }
        let gone = HostError::CheckpointGone { checkpoint: checkpoint.clone() };
        let Some(mut entry) = self.journal_entry()?.filter(|entry| entry.name() == *checkpoint) else {
            return Err(self.refusal(checkpoint).await);
        };
        if entry.changes_nothing() {
            return self.journal.remove();
        }
        let service = match Service::find(self.limits.answer).await {
            Ok(service) if service.identity() == entry.service => service,
            _ => return Err(gone),
        };
        let Some(held) = ours(&entry, &service.checkpoints().await?).cloned() else {
            self.forget_undone(&entry)?;
            return Err(gone);
        };
        // If we die between here and the end, the note says that keeping the change was decided.
        entry.committing = true;
        self.journal.write(&entry)?;
        let result = service.commit(&held.path).await;
        if let Ok(true) = result {
            return self.journal.remove();
        }
        entry.committing = false;
        self.journal.write(&entry)?;
        Err(result.err().unwrap_or(gone))
    }

    /// Why a checkpoint that is not in the journal cannot be settled.
    pub(super) async fn refusal(&self, checkpoint: &Checkpoint) -> HostError {
        let held = match Service::find(self.limits.answer).await {
            Ok(service) => service.checkpoints().await.unwrap_or_default(),
            Err(_) => Vec::new(),
        };
        let checkpoint = checkpoint.clone();
        if held.iter().any(|held| held.path == checkpoint.as_str()) {
            HostError::NotOurs { checkpoint }
        } else {
            HostError::CheckpointGone { checkpoint }
        }
    }

    /// Leaves a change that was applied to another program.
    pub(super) async fn leave_open(
        &mut self,
        checkpoint: &Checkpoint,
        deadline: Duration,
    ) -> Result<(), HostError> {
        let gone = || HostError::CheckpointGone { checkpoint: checkpoint.clone() };
        let until = Some(service::boot_time_ms() + i64::from(whole_seconds(deadline)) * 1000);
        if self.unchanged.settle(checkpoint) {
            // Other processes are to know of it, too.
            return self.journal.write(&Entry::unchanged(checkpoint, until));
        }
        let Some(mut entry) = self.journal_entry()?.filter(|entry| entry.name() == *checkpoint) else {
            return Err(self.refusal(checkpoint).await);
        };
        let service = Service::find(self.limits.answer).await?;
        let Some(held) = ours(&entry, &service.checkpoints().await?).cloned() else { return Err(gone()) };
        if service.identity() != entry.service || !service.restart_timer(&held.path, deadline).await? {
            return Err(gone());
        }
        entry.left_open_until_ms = until;
        self.journal.write(&entry)
    }

    pub(super) async fn open_checkpoints(&mut self) -> Result<Vec<OpenCheckpoint>, HostError> {
        let mut open: Vec<_> = self.unchanged.open().into_iter().collect();
        let service = match Service::find(self.limits.answer).await {
            Ok(service) => Some(service),
            Err(HostError::Unavailable { .. }) => None,
            Err(error) => return Err(error),
        };
        let held = match &service {
            Some(service) => service.checkpoints().await?,
            None => Vec::new(),
        };
        let running = service.as_ref().map(Service::identity);
        let mut entry = self.journal_entry()?;
        if let Some(settled) = entry.as_ref().filter(|entry| is_settled(entry, running, &held)) {
            let forgotten =
                if settled.committing { self.journal.remove() } else { self.forget_undone(settled) };
            match forgotten {
                Ok(()) => entry = None,
                Err(error) if settled.scripts.is_empty() => return Err(error),
                // It counts as open until everything is as before.
                Err(_) => {}
            }
        }
        open.extend(ownership::list(entry.as_ref(), running, &held, &Moment::now()));
        Ok(open)
    }

    async fn refuse_if_busy(&mut self) -> Result<(), HostError> {
        match self.open_checkpoints().await?.into_iter().next() {
            None => Ok(()),
            Some(open) => Err(HostError::Busy {
                checkpoint: open.checkpoint,
                rolls_back_in: match open.guard {
                    Guard::RollsBackIn(left) => Some(left),
                    Guard::Lost => None,
                },
            }),
        }
    }
}

pub(super) fn service_ended() -> HostError {
    HostError::Unavailable { why: "it went away while the change was applied".to_owned() }
}
