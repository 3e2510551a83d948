//! The network of one machine at one moment, and what a document makes of it.
//!
//! Everything here is a value: applying gives a new network and leaves the old one as it was, which is what makes
//! going back exact.

use knmstate_document::{NetworkState, Place, scalar, secrets};
use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::desired::{self, DesiredInterface, Origin, Wanted};
use super::interface::Interface;
use super::ip::{self, Family};
use super::kind::Kind;
use super::names::{self, Hostname};
use super::topology::{self, Interfaces};
use super::{routes, rules};
use knmstate_host::Abilities;
use knmstate_host::HostError;
use knmstate_host::{Changes, Topic};

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Network {
    pub(super) interfaces: Interfaces,
    routes: Vec<Map<String, Value>>,
    rules: Vec<Map<String, Value>>,
    resolver: Map<String, Value>,
    hostname: Hostname,
}

/// What a machine is, apart from how it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hardware {
    pub(super) name: String,
    pub(super) lacking: BTreeSet<Kind>,
    pub(super) abilities: Abilities,
}

impl Network {
    pub(super) fn new(hardware: &Hardware, nics: &[String]) -> Self {
        let mut interfaces = Interfaces::new();
        interfaces.insert("lo".to_owned(), Interface::loopback(&hardware.name));
        for nic in nics {
            interfaces.insert(nic.clone(), Interface::fresh(nic, Kind::Ethernet, &hardware.name));
        }
        Self {
            interfaces,
            routes: Vec::new(),
            rules: Vec::new(),
            resolver: Map::new(),
            hostname: Hostname { config: None, running: hardware.name.clone() },
        }
    }

    /// This network with the document applied to it, or the first reason why that cannot be.
    pub(super) fn with(
        &self,
        desired: &NetworkState,
        hardware: &Hardware,
        origin: Origin,
    ) -> Result<Self, HostError> {
        refuse_unknown_sections(desired)?;
        let interfaces = self.interfaces_with(desired, hardware, origin)?;
        let routes = routes::merged(&self.routes, desired, &interfaces)?;
        Ok(Self {
            routes,
            rules: rules::merged(&self.rules, desired)?,
            resolver: names::resolver(&self.resolver, desired)?,
            hostname: self.hostname.merged_with(desired)?,
            interfaces,
        })
    }

    fn interfaces_with(
        &self,
        desired: &NetworkState,
        hardware: &Hardware,
        origin: Origin,
    ) -> Result<Interfaces, HostError> {
        let targets = desired::interfaces(desired, &self.interfaces, &hardware.lacking, origin)?;
        let mut interfaces = self.interfaces.clone();
        for (name, target) in targets.iter().filter(|(_, target)| target.keeps()) {
            let place = Place::interface(*name);
            let before = match interfaces.get(*name) {
                Some(there) => there.clone(),
                None => Interface::fresh(name, target.kind, &hardware.name),
            };
            let mut merged = before.merged_with(target.keys, &place)?;
            if target.wanted == Wanted::Unmanaged {
                merged.keys.insert("state".to_owned(), json!("ignore"));
            }
            check_kind(&merged, &place)?;
            interfaces.insert((*name).to_owned(), merged);
        }
        topology::remove(&mut interfaces, &targets, &hardware.name)?;
        topology::pair_up(&mut interfaces, &self.interfaces, &targets, &hardware.name)?;
        topology::attach(&mut interfaces, &targets)?;
        topology::check(&mut interfaces, &targets)?;
        for (name, target) in &targets {
            copy_mac(&mut interfaces, name, target)?;
        }
        Ok(interfaces)
    }

    /// The network as the machine shows it.
    pub(super) fn document(&self) -> NetworkState {
        let controllers = topology::controllers(&self.interfaces);
        let interfaces = self.interfaces.iter().map(|(name, interface)| {
            let mut shown = interface.keys.clone();
            if let Some(controller) = controllers.get(name.as_str()) {
                shown.insert("controller".to_owned(), json!(controller.name()));
            }
            let mut shown = Value::Object(shown);
            secrets::hide(&mut shown);
            shown
        });
        let running = routes::running(&self.routes, &self.interfaces);
        let routes = json!({
            "running": running.iter().map(routes::shown).collect::<Vec<_>>(),
            "config": self.routes.iter().map(routes::shown).collect::<Vec<_>>(),
        });
        NetworkState::assembled([
            ("hostname", self.hostname.shown()),
            ("dns-resolver", json!({ "running": self.resolver, "config": self.resolver })),
            ("route-rules", json!({ "config": self.rules })),
            ("routes", routes),
            ("interfaces", interfaces.collect()),
        ])
    }

    /// The events to send when this network becomes `next`.
    pub(super) fn changes_to(&self, next: &Self) -> Changes {
        let names: BTreeSet<_> = self.interfaces.keys().chain(next.interfaces.keys()).collect();
        let any = |differ: fn(Option<&Interface>, Option<&Interface>) -> bool| {
            names.iter().any(|name| differ(self.interfaces.get(*name), next.interfaces.get(*name)))
        };
        let running = |network: &Self| routes::running(&network.routes, &network.interfaces);
        [
            (Topic::Link, any(links_differ)),
            (Topic::Address, any(addresses_differ)),
            (Topic::Route, running(self) != running(next)),
            (Topic::Rule, self.rules != next.rules),
            (Topic::Resolver, self.resolver != next.resolver),
            (Topic::Hostname, self.hostname != next.hostname),
        ]
        .into_iter()
        .filter_map(|(topic, changed)| changed.then_some(topic))
        .collect()
    }

    /// What is left when the service dies between two steps of going from `self` to `next`: the links are new, old
    /// and new addresses stand side by side, and nothing else has been begun.
    pub(super) fn half_way_to(&self, next: &Self) -> Self {
        let mut interfaces = next.interfaces.clone();
        for (name, interface) in &mut interfaces {
            let Some(before) = self.interfaces.get(name) else { continue };
            for family in Family::BOTH {
                let old =
                    before.keys.get(family.key()).and_then(|section| section.get("address")?.as_array());
                let new = interface
                    .keys
                    .get_mut(family.key())
                    .and_then(|section| section.get_mut("address")?.as_array_mut());
                if let (Some(old), Some(new)) = (old, new) {
                    let missing: Vec<_> =
                        old.iter().filter(|address| !new.contains(address)).cloned().collect();
                    new.extend(missing);
                }
            }
        }
        let routes =
            self.routes.iter().filter(|route| routes::carried(route, &interfaces)).cloned().collect();
        Self { interfaces, routes, ..self.clone() }
    }

    /// The network after `address` was taken off `interface`; `None` when it is not there.
    pub(super) fn without_address(&self, interface: &str, address: std::net::IpAddr) -> Option<Self> {
        let mut next = self.clone();
        let section = next.interfaces.get_mut(interface)?.keys.get_mut(Family::of(address).key())?;
        let addresses = section.get_mut("address")?.as_array_mut()?;
        let before = addresses.len();
        addresses.retain(|entry| entry.get("ip").and_then(Value::as_str) != Some(&address.to_string()));
        (addresses.len() != before).then_some(next)
    }

    /// The network with `key` of `interface` as it was in `before`, as a driver leaves it that takes no notice.
    pub(super) fn disregarding(mut self, interface: &str, key: &str, before: &Self) -> Self {
        let old = before.interfaces.get(interface).and_then(|interface| interface.keys.get(key));
        if let Some(interface) = self.interfaces.get_mut(interface) {
            match old {
                Some(old) => interface.keys.insert(key.to_owned(), old.clone()),
                None => interface.keys.shift_remove(key),
            };
        }
        self
    }
}

/// Whether two states of one interface differ in their addresses. One that is not there has none.
fn addresses_differ(a: Option<&Interface>, b: Option<&Interface>) -> bool {
    let none = ip::disabled();
    Family::BOTH.iter().any(|family| {
        let key = family.key();
        a.and_then(|a| a.keys.get(key)).unwrap_or(&none) != b.and_then(|b| b.keys.get(key)).unwrap_or(&none)
    })
}

/// Whether two states of one interface differ in anything but their addresses.
fn links_differ(a: Option<&Interface>, b: Option<&Interface>) -> bool {
    let (Some(a), Some(b)) = (a, b) else { return a.is_some() != b.is_some() };
    let is_address = |key: &str| Family::BOTH.iter().any(|family| family.key() == key);
    let keys = a.keys.keys().chain(b.keys.keys());
    keys.filter(|key| !is_address(key)).any(|key| a.keys.get(key) != b.keys.get(key))
}

fn refuse_unknown_sections(desired: &NetworkState) -> Result<(), HostError> {
    for section in desired.sections().keys() {
        match section.as_str() {
            "interfaces" | "routes" | "route-rules" | "dns-resolver" | "hostname" | "description" => {}
            "ovs-db" | "ovn" => {
                return Err(HostError::Unsupported {
                    place: Place::key(section),
                    what: "Open vSwitch".to_owned(),
                    why: "a simulated machine has none".to_owned(),
                });
            }
            _ => {
                let why = "there is no such section; known are interfaces, routes, route-rules, dns-resolver, hostname, ovs-db and ovn";
                return Err(HostError::invalid(Place::key(section), why));
            }
        }
    }
    Ok(())
}

/// The keys that each kind requires, and the ranges of its numbers.
fn check_kind(interface: &Interface, place: &Place) -> Result<(), HostError> {
    let Some(section) = interface.kind.section() else { return Ok(()) };
    let place = place.below(section);
    if interface.kind.needs_a_base() && interface.base().is_none() {
        let why = format!("a {section} needs a base interface");
        return Err(HostError::invalid(place.below("base-iface"), why));
    }
    let range = match interface.kind {
        Kind::Vlan => Some(("id", 0..=4094)),
        Kind::Vxlan => Some(("id", 0..=16_777_215)),
        Kind::Vrf => Some(("route-table-id", 1..=i64::from(u32::MAX))),
        _ => None,
    };
    if let Some((key, range)) = range {
        let number = interface.own(key).and_then(scalar::number);
        if number.is_none_or(|number| !range.contains(&number)) {
            let why = format!("a number from {} to {} is expected here", range.start(), range.end());
            return Err(HostError::invalid(place.below(key), why));
        }
    }
    if interface.kind == Kind::Bond {
        let mode = interface.own("mode").and_then(Value::as_str);
        if mode.is_none_or(|mode| !BOND_MODES.contains(&mode)) {
            let why = format!("a bond needs one of the modes {}", BOND_MODES.join(", "));
            return Err(HostError::invalid(place.below("mode"), why));
        }
    }
    Ok(())
}

const BOND_MODES: [&str; 7] =
    ["balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"];

fn copy_mac(interfaces: &mut Interfaces, name: &str, target: &DesiredInterface<'_>) -> Result<(), HostError> {
    let Some(from) = target.keys.get("copy-mac-from").and_then(Value::as_str).filter(|_| target.keeps())
    else {
        return Ok(());
    };
    let Some(mac) = interfaces.get(from).and_then(Interface::mac_address).cloned() else {
        let why = format!("there is no interface {from} with a hardware address to copy");
        return Err(HostError::invalid(Place::interface(name).below("copy-mac-from"), why));
    };
    if let Some(interface) = interfaces.get_mut(name) {
        interface.keys.insert("mac-address".to_owned(), mac);
    }
    Ok(())
}
