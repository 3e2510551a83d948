//! What must work after a change for it to stay, and whether it still can.
//!
//! Before a change every probe is tried; after it, those that count must pass. A probe that cannot pass any more, by
//! the network as it is read, need not be waited for: see [`Outlook`].

mod automatic;
mod lease;
mod outlook;
mod readiness;
mod selection;
mod sentences;
mod verdict;

use std::{fmt, time::Duration};

use knmstate_api::probe::{DnsProbe, HttpProbe, PingProbe, ProbePolicy, TcpProbe};

pub use lease::{Lease, asked};
pub use outlook::{Gateway, Loss, Network, Outlook, Server};
pub use readiness::{Evidence, NodeSeen};
pub use selection::{ApiAccess, Malformed, Surroundings, select};
pub use sentences::{Ending, failure, target};
pub use verdict::{Need, Seen, need};

/// One thing to try.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// What results and messages call it.
    pub name: String,
    pub check: Check,
    /// When it counts; never Disabled in what [`select`] gives.
    pub policy: ProbePolicy,
    /// How long it may take to pass after the change.
    pub timeout: Duration,
}

/// What is tried.
#[derive(Clone, Debug, PartialEq)]
pub enum Check {
    /// The node reaches the API server.
    ApiServer,
    /// The node is Ready.
    NodeReadiness,
    /// The default gateways answer to ping.
    DefaultGateway {
        /// Those that the change itself is about: they must answer, whatever was before.
        wanted: Families,
    },
    /// A configured name server answers.
    NameServers,
    Ping(PingProbe),
    Tcp(TcpProbe),
    Http(HttpProbe),
    Dns(DnsProbe),
    Lease(Lease),
}

/// One of the two kinds of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// The section of an interface that is about it.
    fn key(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }

    /// The family of a route's destination.
    fn of(destination: &str) -> Self {
        if destination.contains(':') { Self::V6 } else { Self::V4 }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// A set of families.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Families {
    pub v4: bool,
    pub v6: bool,
}

impl Families {
    pub const NONE: Self = Self { v4: false, v6: false };
    pub const ALL: Self = Self { v4: true, v6: true };

    pub fn contains(self, family: Family) -> bool {
        match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        }
    }

    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    pub fn iter(self) -> impl Iterator<Item = Family> {
        Family::BOTH.into_iter().filter(move |family| self.contains(*family))
    }

    /// Those that are in either.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { v4: self.v4 || other.v4, v6: self.v6 || other.v6 }
    }

    /// Those that are not in `other`.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self { v4: self.v4 && !other.v4, v6: self.v6 && !other.v6 }
    }
}

impl FromIterator<Family> for Families {
    fn from_iter<I: IntoIterator<Item = Family>>(families: I) -> Self {
        families.into_iter().fold(Self::NONE, |set, family| match family {
            Family::V4 => Self { v4: true, ..set },
            Family::V6 => Self { v6: true, ..set },
        })
    }
}
