//! Dynamic addresses: by DHCP or by router advertisement.

use std::{fmt, net::IpAddr, time::Duration};

use knmstate_api::probe::{LeaseFamily, LeaseProbe};
use serde_json::Value;

use super::{
    Family, Forecast, Loss, Network,
    automatic::{LIFETIME, addresses, requests_an_address, section},
    forecast::{BETWEEN_TWO_STEPS, LINK_RETURNS},
    sentences::seconds,
};
use knmstate_document::{self as document, Document};

/// A dynamic address that an interface requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressLease {
    /// The name in the desired state.
    interface: String,
    family: Family,
    source: Source,
    /// The key and value that identify the interface if it is not identified by name.
    identifier: Option<(&'static str, String)>,
    /// Static addresses of the desired state: their presence proves nothing.
    static_addresses: Vec<IpAddr>,
}

/// Where a dynamic address may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Dhcp,
    RouterAdvertisement,
    Either,
}

/// The dynamic addresses that a desired state requests, on interfaces that should be up.
pub fn requested_leases(desired: &Document) -> Vec<AddressLease> {
    document::interfaces(desired)
        .filter(|interface| matches!(document::text(interface, "state"), "" | "up"))
        .flat_map(|interface| Family::BOTH.map(|family| (interface, family)))
        .filter(|(interface, family)| {
            let is_off = section(interface, *family).and_then(|section| section.get("enabled"))
                == Some(&Value::Bool(false));
            !is_off && requests_an_address(interface, *family)
        })
        .map(|(interface, family)| {
            AddressLease::of(document::text(interface, "name"), family, Some(interface))
        })
        .collect()
}

impl AddressLease {
    /// The dynamic address that a probe tests.
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
        let source = match (family, truth("dhcp"), truth("autoconf")) {
            (Family::V4, _, _) | (Family::V6, true, false) => Source::Dhcp,
            (Family::V6, false, true) => Source::RouterAdvertisement,
            (Family::V6, _, _) => Source::Either,
        };
        let identifier = desired.and_then(|interface| {
            let key = match document::text(interface, "identifier") {
                "mac-address" => "mac-address",
                "pci-address" => "pci-address",
                _ => return None,
            };
            Some((key, document::text(interface, key).to_ascii_lowercase()))
        });
        let static_addresses =
            desired.into_iter().flat_map(|interface| addresses(interface, family)).filter_map(ip);
        Self {
            interface: name.to_owned(),
            family,
            source,
            identifier,
            static_addresses: static_addresses.collect(),
        }
    }

    fn find<'a>(&self, state: &'a Document) -> Option<&'a Document> {
        document::interfaces(state).find(|interface| match &self.identifier {
            Some((key, value)) => document::text(interface, key).eq_ignore_ascii_case(value),
            None => document::text(interface, "name") == self.interface,
        })
    }

    fn is_there(&self, interface: &Document) -> bool {
        let requests = requests_an_address(interface, self.family);
        addresses(interface, self.family).any(|address| {
            let Some(ip) = ip(address).filter(|ip| !is_link_local(*ip)) else { return false };
            // A dynamic address without a lifetime limit looks like a static one.
            address.contains_key(LIFETIME) || requests && !self.static_addresses.contains(&ip)
        })
    }

    /// The message if the interface has no such address.
    pub fn missing(&self, state: Option<&Document>, after: Duration) -> String {
        let what = match (self.family, self.source) {
            (Family::V4, _) => "no DHCPv4 lease",
            (Family::V6, Source::Dhcp) => "no DHCPv6 lease",
            (Family::V6, Source::RouterAdvertisement) => "no IPv6 address by router advertisement",
            (Family::V6, Source::Either) => "no IPv6 address by DHCPv6 or router advertisement",
        };
        let found = state.map(|state| self.find(state).map(|interface| document::text(interface, "state")));
        let now = match found {
            Some(Some("up")) => "the interface is up and keeps requesting one",
            Some(Some(_)) => "the interface is down, and requests one when it is up",
            Some(None) => "there is no such interface",
            None => "the network of the node could not be read",
        };
        format!("{}: {what} after {}; {now}", self.interface, seconds(after))
    }
}

impl fmt::Display for AddressLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lease of {}", self.family, self.interface)
    }
}

impl Network<'_> {
    /// Whether an interface has a dynamic address.
    pub fn lease(self, lease: &AddressLease) -> Forecast<()> {
        let name = &lease.interface;
        let lost = |why: String, grace| Forecast::Never(Loss { why, grace });
        match lease.find(self.now) {
            None => lost(format!("there is no interface {name}"), BETWEEN_TWO_STEPS),
            Some(interface) if lease.is_there(interface) => Forecast::Now(()),
            Some(interface) if document::text(interface, "state") != "up" => {
                lost(format!("{name} is down"), LINK_RETURNS)
            }
            Some(interface) if requests_an_address(interface, lease.family) => Forecast::Later,
            Some(_) => {
                lost(format!("{name} does not request an {} address", lease.family), BETWEEN_TWO_STEPS)
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
