//! The public functions on network states, as a user of the crate calls them.

// The attribute is for clippy, which otherwise takes the helpers among these for code that must not panic.
#[cfg(test)]
mod unmet;
