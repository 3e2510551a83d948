//! The Debian release of a full-kernel node, which decides its version of NetworkManager.

/// The releases that `scripts/setup` builds root directories of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Userland {
    Debian12,
    #[default]
    Debian13,
    /// The only one whose NetworkManager is packaged with its plugin for Open vSwitch.
    Debian14,
}

impl Userland {
    pub const ALL: [Self; 3] = [Self::Debian12, Self::Debian13, Self::Debian14];

    /// The name of the suite in Debian's archive.
    pub fn suite(self) -> &'static str {
        match self {
            Self::Debian12 => "bookworm",
            Self::Debian13 => "trixie",
            Self::Debian14 => "forky",
        }
    }

    /// The version of its NetworkManager, without the last number, which changes with Debian's updates.
    pub fn network_manager(self) -> &'static str {
        match self {
            Self::Debian12 => "1.42",
            Self::Debian13 => "1.52",
            Self::Debian14 => "1.58",
        }
    }
}
