//! The trait [`Host`] and its types.

use knmstate_document::{NetworkState, Place};
use std::fmt;
use std::future::Future;
use std::time::Duration;

use crate::error::HostError;
use crate::events::Events;
use crate::set_aside::SetAside;

/// A handle onto one machine.
///
/// Handles are cheap to clone, and every clone speaks to the same machine. What a handle starts belongs to the
/// machine, not to the handle: dropping the last one, or the whole process, leaves an open change to the machine's
/// own timer. The [crate's documentation](crate) describes the life cycle of a change.
///
/// The futures can be sent between threads, so that they run in spawned tasks. Dropping one that has not finished
/// does not take back what it has asked of the machine; after a dropped `begin`,
/// [`open_checkpoints`](Host::open_checkpoints) says what is there.
///
/// Implementations bound their own waits for the machine; a caller that must go on earlier puts its own limit
/// around the call.
pub trait Host: Clone + Send + Sync + 'static {
    /// Reads the whole state of the network as the machine has it now, secrets hidden.
    fn observe(&self) -> impl Future<Output = Result<NetworkState, HostError>> + Send;

    /// Changes from now on. Each call gives a stream of its own; see [`Events`] for what a slow reader gets.
    fn events(&self) -> Events;

    /// Works out what [`begin`](Host::begin) would do, and touches nothing.
    ///
    /// What `begin` would refuse before it touches anything is refused here in the same words. An open change is no
    /// reason for a refusal: the plan is for the machine as it is now, with that change.
    fn plan(&self, desired: &NetworkState) -> impl Future<Output = Result<Plan, HostError>> + Send;

    /// Applies `desired` on top of what is there and verifies it, without making it permanent. What is already as
    /// desired is not touched.
    ///
    /// Before the first thing is touched the machine remembers how to go back. It goes back by itself when applying
    /// takes longer than `deadline`, and when neither [`commit`](Host::commit) nor [`roll_back`](Host::roll_back)
    /// was called within `deadline` after this returned: whether or not the caller still runs.
    ///
    /// An error means that the machine is as before, with one exception: when the service died half-way, or our own
    /// code did ([`HostError::Panicked`]), the change is listed by [`open_checkpoints`](Host::open_checkpoints) and has
    /// to be rolled back from there.
    fn begin(
        &self,
        desired: &NetworkState,
        deadline: Duration,
    ) -> impl Future<Output = Result<Checkpoint, HostError>> + Send;

    /// Leaves a change that was applied to another program, which has `deadline` from now on to commit it or to roll it
    /// back. The machine goes back by itself when it does neither; until then no other process settles the change.
    fn leave_open(
        &self,
        checkpoint: &Checkpoint,
        deadline: Duration,
    ) -> impl Future<Output = Result<(), HostError>> + Send;

    /// Makes the change permanent. After [`HostError::CheckpointGone`] it is not: roll back, or read the state.
    fn commit(&self, checkpoint: &Checkpoint) -> impl Future<Output = Result<(), HostError>> + Send;

    /// Puts the machine back as it was before the change.
    ///
    /// That is done even when the machine itself has lost the way back (its network service was restarted): what
    /// was there before has been noted down by [`begin`](Host::begin). [`HostError::CheckpointGone`] says that there
    /// is nothing left of this change to put back.
    ///
    /// Each failed attempt is counted, over restarts of the agent and the machine, except while the service does not
    /// run or another program's change is in the way. After too many ([`is_given_up`](crate::set_aside::is_given_up))
    /// this returns [`HostError::SetAside`], and the change is not open any more.
    fn roll_back(&self, checkpoint: &Checkpoint) -> impl Future<Output = Result<(), HostError>> + Send;

    /// Changes that are neither committed nor rolled back: those of this agent, also of an earlier run of it, and
    /// those of other programs. A restarted agent rolls back its own before it does anything else, unless they were
    /// [left open](Host::leave_open).
    fn open_checkpoints(&self) -> impl Future<Output = Result<Vec<OpenCheckpoint>, HostError>> + Send;

    /// What the kernel reports about links and a [`NetworkState`] does not contain. Empty for a host that has nothing
    /// to add.
    fn links(&self) -> impl Future<Output = Vec<Link>> + Send {
        std::future::ready(Vec::new())
    }

    /// Changes that could not be rolled back and were given up, oldest first, until the admin has removed their files.
    fn set_aside(&self) -> impl Future<Output = Vec<SetAside>> + Send {
        std::future::ready(Vec::new())
    }

    /// What is known about the versions now; never waits for a service that is down.
    fn versions(&self) -> impl Future<Output = Versions> + Send;

    /// What this machine can do where machines differ.
    fn abilities(&self) -> impl Future<Output = Abilities> + Send;
}

/// What a change would do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The parts of the desired document that are not so yet, secrets hidden.
    pub difference: NetworkState,
    /// The machine that this was worked out for, secrets hidden; empty where nothing would change.
    pub before: NetworkState,
    /// What may not come out as it is meant, although nothing speaks against trying.
    pub warnings: Vec<Warning>,
}

/// Something about a document that a person should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    pub place: Place,
    pub what: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

impl Plan {
    /// Whether everything is as desired, so that nothing would be touched.
    pub fn is_empty(&self) -> bool {
        self.difference.sections().is_empty()
    }
}

/// A link that is switched on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub name: String,
    /// Whether the link has a carrier.
    pub carrier: bool,
    /// The port that carries the traffic of a bond, if that is one at a time.
    pub active_port: Option<String>,
}

/// What one machine can do and another cannot, as far as a document is written differently for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abilities {
    /// The kernel can sort VLANs on a Linux bridge. True when that could not be found out.
    pub bridge_vlan_filtering: bool,
}

impl Default for Abilities {
    fn default() -> Self {
        Self { bridge_vlan_filtering: true }
    }
}

/// The name of one uncommitted change; for NetworkManager its object path on the bus.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Checkpoint(String);

impl Checkpoint {
    /// A checkpoint known by `name`. Callers of a [`Host`] get theirs from it and have no need of this.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The name, as the machine knows it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A change that is neither committed nor rolled back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenCheckpoint {
    pub checkpoint: Checkpoint,
    /// Made by this agent, in this run or an earlier one. Those of other programs are never committed or rolled back.
    pub ours: bool,
    pub guard: Guard,
    /// It was left open on purpose, for another program to settle within this time; see [`Host::leave_open`].
    pub left_open: Option<Duration>,
}

impl OpenCheckpoint {
    /// Whether an earlier run of this agent has left it behind, so that it has to be rolled back.
    pub fn is_ours_to_undo(&self) -> bool {
        self.ours && self.left_open.is_none()
    }
}

/// What rolls back a change that is not settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// The machine itself, after this time.
    RollsBackIn(Duration),
    /// Nothing: the service that kept the timer was restarted, and the change stays until the agent rolls it back.
    Lost,
}

/// The versions of what stands between us and the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versions {
    pub nmstate: String,
    /// `None` while NetworkManager does not run.
    pub network_manager: Option<String>,
}

/// What was asked of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    Observe,
    Plan,
    Begin,
    Commit,
    RollBack,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Observe => "reading the state",
            Self::Plan => "working out what would change",
            Self::Begin => "applying",
            Self::Commit => "committing",
            Self::RollBack => "rolling back",
        })
    }
}
