//! Options of a host on NetworkManager.

use std::path::PathBuf;
use std::time::Duration;

/// How to reach the machine that this process runs on.
///
/// The bus is the system bus: of the machine, or the one that `DBUS_SYSTEM_BUS_ADDRESS` names. It cannot be given
/// here, because nmstate opens its own connections and would not follow.
#[derive(Debug, Clone)]
pub struct NetworkManagerOptions {
    /// The directory of the journal, which holds the way back while a change is open. It must outlive the process, and
    /// a reboot.
    pub journal: PathBuf,
    pub limits: NetworkManagerLimits,
    /// Whether changes are kept in NetworkManager's memory and not on the machine's disk, so that a reboot comes back
    /// with what is on disk. See `memory_only.rs` for what that means.
    pub memory_only: bool,
    /// Whether documents may have dispatch scripts, which NetworkManager runs as root.
    pub allow_dispatch_scripts: bool,
}

impl NetworkManagerOptions {
    pub fn new(journal: impl Into<PathBuf>) -> Self {
        Self {
            journal: journal.into(),
            limits: NetworkManagerLimits::default(),
            memory_only: false,
            allow_dispatch_scripts: false,
        }
    }
}

/// How long the machine may take, at most. Applying is limited by the deadline of each change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkManagerLimits {
    /// Reading the state, including the wait for an operation in progress.
    pub observe: Duration,
    /// One question to NetworkManager that it answers without doing anything.
    pub answer: Duration,
    /// Putting the machine back.
    pub roll_back: Duration,
    /// How long the machine may take to look as before after NetworkManager said that it has rolled back.
    pub settle: Duration,
}

impl Default for NetworkManagerLimits {
    fn default() -> Self {
        Self {
            observe: Duration::from_secs(30),
            answer: Duration::from_secs(5),
            roll_back: Duration::from_mins(1),
            settle: Duration::from_secs(10),
        }
    }
}
