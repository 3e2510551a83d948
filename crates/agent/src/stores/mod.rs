//! The places that orders come from.

pub(crate) mod directory;
pub(crate) mod kubernetes;
#[cfg(test)]
pub(crate) mod memory;
