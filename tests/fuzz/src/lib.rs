//! What hostile input may reach, as functions of bytes, and a mutator of JSON documents.
//!
//! A target fails by a panic, by taking too long or by too much memory. `tests/corpus.rs` runs all targets on the
//! committed corpus and on a fixed number of mutations of it; `libfuzzer/` runs them guided by coverage (`make fuzz`).

mod mutator;
mod seeds;
mod targets;

pub use mutator::{Random, mutate};
pub use seeds::{files_below, seeds};
pub use targets::{TARGETS, Target};
