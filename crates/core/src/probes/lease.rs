//! Addresses that are lent: by a DHCP server, or by the announcement of a router.

use std::{fmt, net::IpAddr, time::Duration};

use knmstate_api::probe::{LeaseFamily, LeaseProbe};
use serde_json::Value;

use super::{
    Family, Loss, Network, Outlook,
    automatic::{LIFETIME, addresses, asks_for_an_address, section},
    outlook::{BETWEEN_TWO_STEPS, LINK_RETURNS},
    sentences::seconds,
};
use crate::document::{self, Document};

/// An address that an interface asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// As the desired state calls it.
    interface: String,
    family: Family,
    way: Way,
    /// By what the interface is known if its name is not the kernel's: the key, and its value.
    card: Option<(&'static str, String)>,
    /// Addresses that the desired state gives to the interface itself: that they are there proves nothing.
    own: Vec<IpAddr>,
}

/// Who lends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Server,
    Router,
    Either,
}

/// The addresses that a desired state asks others for, on interfaces that are to be up.
pub fn asked(desired: &Document) -> Vec<Lease> {
    document::interfaces(desired)
        .filter(|interface| matches!(document::text(interface, "state"), "" | "up"))
        .flat_map(|interface| Family::BOTH.map(|family| (interface, family)))
        .filter(|(interface, family)| {
            let is_off = section(interface, *family).and_then(|section| section.get("enabled"))
                == Some(&Value::Bool(false));
            !is_off && asks_for_an_address(interface, *family)
        })
        .map(|(interface, family)| Lease::of(document::text(interface, "name"), family, Some(interface)))
        .collect()
}

impl Lease {
    /// What a probe asks for.
    pub(super) fn probed(probe: &LeaseProbe, desired: &Document) -> Self {
        let family = match probe.family {
            LeaseFamily::Ipv4 => Family::V4,
            LeaseFamily::Ipv6 => Family::V6,
        };
        let mut interfaces = document::interfaces(desired);
        let desired = interfaces.find(|interface| document::text(interface, "name") == probe.interface);
        Self::of(&probe.interface, family, desired)
    }

    fn of(name: &str, family: Family, desired: Option<&Document>) -> Self {
        let truth = |key: &str| {
            let section = desired.and_then(|interface| section(interface, family));
            section.and_then(|section| section.get(key)).and_then(Value::as_bool) == Some(true)
        };
        let way = match (family, truth("dhcp"), truth("autoconf")) {
            (Family::V4, _, _) | (Family::V6, true, false) => Way::Server,
            (Family::V6, false, true) => Way::Router,
            (Family::V6, _, _) => Way::Either,
        };
        let card = desired.and_then(|interface| {
            let key = match document::text(interface, "identifier") {
                "mac-address" => "mac-address",
                "pci-address" => "pci-address",
                _ => return None,
            };
            Some((key, document::text(interface, key).to_ascii_lowercase()))
        });
        let own = desired.into_iter().flat_map(|interface| addresses(interface, family)).filter_map(ip);
        Self { interface: name.to_owned(), family, way, card, own: own.collect() }
    }

    fn find<'a>(&self, state: &'a Document) -> Option<&'a Document> {
        document::interfaces(state).find(|interface| match &self.card {
            Some((key, value)) => document::text(interface, key).eq_ignore_ascii_case(value),
            None => document::text(interface, "name") == self.interface,
        })
    }

    fn is_there(&self, interface: &Document) -> bool {
        let asks = asks_for_an_address(interface, self.family);
        addresses(interface, self.family).any(|address| {
            let Some(ip) = ip(address).filter(|ip| !is_link_local(*ip)) else { return false };
            // What is lent for ever looks like an address of the interface's own.
            address.contains_key(LIFETIME) || asks && !self.own.contains(&ip)
        })
    }

    /// What is said when it has not come.
    pub fn missing(&self, state: Option<&Document>, after: Duration) -> String {
        let what = match (self.family, self.way) {
            (Family::V4, _) => "no DHCPv4 lease",
            (Family::V6, Way::Server) => "no DHCPv6 lease",
            (Family::V6, Way::Router) => "no IPv6 address by the announcement of a router",
            (Family::V6, Way::Either) => "no IPv6 address by DHCPv6 or the announcement of a router",
        };
        let found = state.map(|state| self.find(state).map(|interface| document::text(interface, "state")));
        let now = match found {
            Some(Some("up")) => "the interface is up and goes on asking",
            Some(Some(_)) => "the interface is down and asks when it is up",
            Some(None) => "there is no such interface",
            None => "the network of this node could not be read",
        };
        format!("{}: {what} after {}; {now}", self.interface, seconds(after))
    }
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lease of {}", self.family, self.interface)
    }
}

impl Network<'_> {
    /// Whether a lease is there.
    pub fn lease(self, lease: &Lease) -> Outlook<()> {
        let name = &lease.interface;
        let lost = |why: String, patience| Outlook::Never(Loss { why, patience });
        match lease.find(self.now) {
            None => lost(format!("there is no interface {name}"), BETWEEN_TWO_STEPS),
            Some(interface) if lease.is_there(interface) => Outlook::Now(()),
            Some(interface) if document::text(interface, "state") != "up" => {
                lost(format!("{name} is down"), LINK_RETURNS)
            }
            Some(interface) if asks_for_an_address(interface, lease.family) => Outlook::Later,
            Some(_) => {
                lost(format!("{name} does not ask for an {} address", lease.family), BETWEEN_TWO_STEPS)
            }
        }
    }
}

fn ip(address: &Document) -> Option<IpAddr> {
    document::text(address, "ip").parse().ok()
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests;
