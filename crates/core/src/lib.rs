//! The decisions of knmstate, as pure functions: what was observed comes in, what should be done or said comes out.
//!
//! Nothing here does I/O, reads a clock or an environment, or knows a client: time and everything else that is known
//! are arguments. So every rule can be read, tabled and tested alone.
//!
//! | question | module |
//! |---|---|
//! | Which nodes is a policy for? | [`selection`] |
//! | What does a policy order of a node? | [`order`] |
//! | Which nodes may begin, and when is a rollout over? | [`rollout`], [`limit`], [`pools`] |
//! | Who of several controllers is in charge? | [`lease`] |
//! | What does a policy say of itself? | [`policy_status`] |
//! | What does a policy say for one node, with its values filled in? | [`templates`] |
//! | Can a policy stand beside the others? | [`objections`], [`conflicts`] |
//! | Which orders are due, and what follows from a failure? | [`progress`] |
//! | What does a port of a bridge get by default? | [`bridge_defaults`] |
//! | Can several desired states be applied as one, and if not, in which order? | [`join`], [`needs`] |
//! | What must work after a change for it to stay, and can it still? | [`probes`] |
//! | What does an enactment say of itself? | [`enactment`] |
//! | What of a network is shown to the world? | [`shown`] |
//! | What is told of links beside that? | [`links`] |
//! | What is left out of a report that would be too large? | [`budget`] |
//! | How is TLS to be spoken, and what of that can be done? | [`tls_profile`] |
//! | How often may the network be read when it never stops changing? | [`pace`] |
//!
//! [`document`] reads the parts of a network document that decisions are made by.

pub mod bridge_defaults;
pub mod budget;
pub mod conflicts;
pub mod document;
pub mod enactment;
pub mod join;
pub mod lease;
pub mod limit;
pub mod links;
pub mod needs;
pub mod objections;
pub mod order;
pub mod pace;
pub mod policy_status;
pub mod pools;
pub mod probes;
pub mod progress;
pub mod rollout;
mod rows;
pub mod secrets;
pub mod selection;
pub mod shown;
pub mod templates;
pub mod tls_profile;
