//! The decisions of knmstate, as pure functions: what was observed comes in, what should be done or said comes out.
//!
//! Nothing here does I/O, reads a clock or an environment, or knows a client: time and everything else that is known
//! are arguments. So every rule can be read, tabled and tested alone.
//!
//! | question | module |
//! |---|---|
//! | Which parts of a network document are which? | [`document`] |
//! | What does an enactment say of itself? | [`enactment`] |

pub mod document;
pub mod enactment;
