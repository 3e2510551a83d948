//! Probes: what must work after a change, and whether it can still work.
//!
//! Every probe is tried before a change (the baseline); after it, those that count must pass. There is no need to wait for
//! a probe that cannot pass in the current network: see [`Forecast`].

mod automatic;
mod forecast;
mod lease;
mod readiness;
mod selection;
mod sentences;
mod verdict;

use std::{fmt, time::Duration};

use knmstate_api::probe::{DnsProbe, HttpProbe, PingProbe, ProbePolicy, TcpProbe};

pub use forecast::{Forecast, Gateway, Loss, NameServer, Network};
pub use lease::{AddressLease, requested_leases};
pub use readiness::{Evidence, NodeReadiness};
pub use selection::{ApiAccess, InvalidProbe, is_built_in, select};
pub use sentences::{ProbeFailureKind, failure_message, target};
pub use verdict::{Observation, Requirement, requirement};

/// A probe of a change.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// Its name in results and messages.
    pub name: String,
    pub check: Check,
    /// When it counts; [`select`] never returns Disabled ones.
    pub policy: ProbePolicy,
    /// How long it has time to pass after the change.
    pub timeout: Duration,
}

/// What a probe tests.
#[derive(Clone, Debug, PartialEq)]
pub enum Check {
    /// The node reaches the API server.
    ApiServer,
    /// The node is Ready.
    NodeReadiness,
    /// The default gateways answer a ping.
    DefaultGateway {
        /// The families whose gateway the desired state sets: these must answer, whatever the baseline.
        wanted: Families,
    },
    /// A configured name server answers.
    NameServers,
    Ping(PingProbe),
    Tcp(TcpProbe),
    Http(HttpProbe),
    Dns(DnsProbe),
    Lease(AddressLease),
}

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// The key of the family in an interface.
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

/// A set of address families.
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

    /// The families that are in either set.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self { v4: self.v4 || other.v4, v6: self.v6 || other.v6 }
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
