//! The flag for how long to wait for dynamic addresses.

use std::time::Duration;

/// The flag itself.
#[derive(clap::Args, Clone, Debug)]
pub struct LeaseArgs {
    /// How long to wait after a change for addresses by DHCP or from routers, in seconds. The change stays without them,
    /// too, and its policy says so; 0 does not look.
    #[arg(long = "lease-wait", value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=3600))]
    seconds: u64,
}

impl LeaseArgs {
    pub fn wait(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}
