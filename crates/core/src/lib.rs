//! Decisions as pure functions: observed state comes in, what should be written or reported comes out.
//!
//! Nothing here does I/O, reads the clock or the environment, or knows a client; time is an argument. So each rule can be
//! read and tested alone.
//!
//! | question | module |
//! |---|---|
//! | Which nodes does a policy select? | `selection` |
//! | What is in the order for one node? | [`order`] |
//! | Which nodes may begin, and when is a rollout over? | [`rollout`], `limit`, `pools` |
//! | Which of several controllers leads? | [`lease`] |
//! | Which conditions does a policy have? | [`policy_status`] |
//! | What is the desired state of one node, with its values filled in? | [`templates`] |
//! | Is a policy valid together with the others? | `objections`, [`conflicts`] |
//! | Which orders are due, and what follows from a failure? | `progress` |
//! | Which settings does a port of a bridge get by default? | [`bridge_defaults`] |
//! | Can several desired states be applied as one, and if not, in which order? | [`join`], [`needs`] |
//! | What must work after a change, and can it still work? | [`probes`] |
//! | Which conditions does an enactment have? | [`enactment`] |
//! | Which part of a node's network is reported? | [`shown`] |
//! | Which links are reported in addition? | [`links`] |
//! | What is left out of a report that is too large? | [`budget`] |
//! | What is left out of the status of an order that is too large? | [`status_budget`] |
//! | Which TLS versions and ciphers are used? | [`tls_profile`] |
//! | How often is the network read while it keeps changing? | [`pace`] |
//! | How much of a long text is shown? | [`shorten()`] |
//!
//! The crate `knmstate-document` reads the parts of a network document that decisions depend on.

pub mod bridge_defaults;
pub mod budget;
pub mod conflicts;
pub mod enactment;
pub mod join;
pub mod lease;
mod limit;
pub mod links;
pub mod needs;
mod objections;
pub mod order;
pub mod pace;
pub mod policy_status;
mod pools;
pub mod probes;
mod progress;
pub mod rollout;
mod rows;
mod selection;
mod shorten;
pub mod shown;
pub mod status_budget;
pub mod templates;
pub mod tls_profile;

pub use objections::{Candidate, NodeFacts, objection};
pub use pools::{Member, Pool, Pools};
pub use progress::{FailureKind, OrderProgress, Retries};
pub use selection::selects;
pub use shorten::shorten;
