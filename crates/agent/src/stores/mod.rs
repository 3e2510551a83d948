//! The two worlds that orders come from.

pub mod directory;
#[cfg(test)]
pub(crate) mod shelf;
