//! One file per subcommand.

pub mod crds;
