//! The two worlds that orders come from.

pub mod directory;
pub mod kubernetes;
#[cfg(test)]
pub(crate) mod shelf;
