//! The flag that allows dispatch scripts.

/// The flag itself.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct DispatchArgs {
    /// Allow dispatch scripts in desired states (interfaces[].dispatch). NetworkManager runs them as root on this machine
    /// [default: they are refused]
    #[arg(long, env = "NMSTATE_ALLOW_DISPATCH_SCRIPTS")]
    allow_dispatch_scripts: bool,
}

impl DispatchArgs {
    pub fn are_allowed(self) -> bool {
        self.allow_dispatch_scripts
    }
}
