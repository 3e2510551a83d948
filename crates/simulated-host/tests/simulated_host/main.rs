//! The simulated host as an agent uses it.

#![expect(clippy::too_many_lines, reason = "a table is one function, however many rows it has")]
#![expect(clippy::needless_pass_by_value, reason = "documents are written where they are used")]

// The attribute is for clippy, which otherwise takes the helpers among these for code that must not panic.
#[cfg(test)]
mod checkpoints;
#[cfg(test)]
mod common;
#[cfg(test)]
mod desires;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod merging_interfaces;
#[cfg(test)]
mod merging_keys;
#[cfg(test)]
mod merging_routing;
#[cfg(test)]
mod nmstate_agrees;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod refusals;
