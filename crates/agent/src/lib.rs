//! The agent of one node, which Kubernetes users know as the handler.
//!
//! ```text
//!   store ── orders ──► engine ── begin, commit, roll back ──► host
//!     ▲                   │  probes before and after
//!     ├── results of orders
//!     └── the node's network ◄── report ◄── events ── host
//! ```
//!
//! A [`Store`] supplies orders and takes results, a [`Host`](knmstate_host::Host) is the node's network, and the
//! [`ChangeLock`] keeps a half-applied change out of the report. [`Agent`] connects them. [`DirectChange`] changes the
//! network for a command instead, without an order.

mod agent;
mod change_lock;
mod cpu_clock;
mod direct_change;
mod engine;
mod health;
mod ledger;
mod probes;
mod report;
mod store;
mod stores;
mod work_lock;

pub use self::{
    agent::{Agent, AgentError},
    change_lock::ChangeLock,
    cpu_clock::process_cpu_time,
    direct_change::{
        ChangeRequest, DirectChange, DirectChangeResult, SettleResult, commit_open_change,
        roll_back_open_change,
    },
    engine::{AgentParts, Conclusion, EngineSettings, OUTCOMES_TARGET, OrderOutcome, OrderSuccess},
    health::{Health, HealthServer, serve_health},
    ledger::Ledger,
    probes::{ApiEndpoint, KubeApiEndpoint, PROBE_DNS_HOST, Prober, Unreachable},
    report::{HostGone, ObservedNetwork, Reporter},
    store::{Order, Orders, ReportedNetwork, Store},
    stores::{
        directory::{DirectoryStore, DirectoryStoreOptions, PolicyFileError, PolicyFiles},
        kubernetes::{KubernetesStore, KubernetesStoreOptions},
    },
    work_lock::{WORK_LOCK_FILE, WorkLock},
};
