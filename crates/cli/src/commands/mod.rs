//! One file per subcommand.

pub mod crds;
pub mod handler;
