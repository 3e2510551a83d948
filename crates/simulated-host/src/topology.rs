//! How interfaces are connected: ports and controllers, VLANs and bases, pairs of veths.
//!
//! The list of ports in a controller is the only truth; `controller` on a port is read from it when it is shown.

use knmstate_document::{Place, scalar};
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::desired::{DesiredInterface, DesiredInterfaces, Wanted};
use super::interface::Interface;
use super::ip::{self, Family};
use super::kind::Kind;
use knmstate_host::HostError;

pub(super) type Interfaces = BTreeMap<String, Interface>;

/// The controller of each port.
pub(super) fn controllers(interfaces: &Interfaces) -> BTreeMap<&str, &Interface> {
    interfaces
        .values()
        .flat_map(|controller| controller.ports().into_iter().map(move |port| (port, controller)))
        .collect()
}

/// Removes the interfaces that the document wants absent or down, and those that cannot exist without them.
pub(super) fn remove(
    interfaces: &mut Interfaces,
    targets: &DesiredInterfaces<'_>,
    machine: &str,
) -> Result<(), HostError> {
    let unwanted = |wanted| matches!(wanted, Wanted::Absent | Wanted::Down);
    let mut gone: BTreeSet<String> = BTreeSet::new();
    for (name, target) in targets.iter().filter(|(_, target)| unwanted(target.wanted)) {
        if let Some(interface) = interfaces.get_mut(*name) {
            if target.kind.is_hardware() {
                *interface = interface.unconfigured(machine);
            } else {
                gone.insert((*name).to_owned());
            }
        }
    }
    // An interface is removed together with its base or peer, and so on.
    loop {
        let more: Vec<(String, String)> = interfaces
            .iter()
            .filter(|(name, _)| !gone.contains(*name))
            .filter_map(|(name, interface)| {
                let required =
                    interface.base().or(interface.peer()).filter(|required| gone.contains(*required))?;
                Some((name.clone(), required.to_owned()))
            })
            .collect();
        if more.is_empty() {
            break;
        }
        for (name, required) in more {
            if targets.get(name.as_str()).is_some_and(DesiredInterface::keeps) {
                return Err(HostError::invalid(
                    Place::interface(&name),
                    format!("it cannot stay: the same document removes {required}, which it needs"),
                ));
            }
            gone.insert(name);
        }
    }
    let detached =
        targets.iter().filter(|(_, target)| unwanted(target.wanted)).map(|(name, _)| (*name).to_owned());
    for name in gone.iter().cloned().chain(detached).collect::<BTreeSet<_>>() {
        for (controller, interface) in interfaces.iter_mut() {
            let named = targets.get(controller.as_str()).is_some_and(DesiredInterface::names_ports);
            if named && interface.ports().contains(&name.as_str()) {
                return Err(HostError::invalid(
                    ports_place(controller, interface),
                    format!("{name} is removed by the same document"),
                ));
            }
            interface.remove_port(&name);
        }
    }
    interfaces.retain(|name, _| !gone.contains(name));
    Ok(())
}

/// Attaches ports to the controllers that the document wants.
pub(super) fn attach(interfaces: &mut Interfaces, targets: &DesiredInterfaces<'_>) -> Result<(), HostError> {
    for (port, target) in targets.iter().filter(|(_, target)| target.keeps()) {
        let Some(controller) = target.keys.get("controller").and_then(Value::as_str) else { continue };
        let place = Place::interface(*port).below("controller");
        let listed_by = targets
            .iter()
            .filter(|(_, target)| target.names_ports())
            .map(|(name, _)| *name)
            .find(|name| interfaces.get(*name).is_some_and(|i| i.ports().contains(port)));
        match listed_by {
            Some(other) if other != controller => {
                return Err(HostError::invalid(place, format!("{other} lists {port} as its port")));
            }
            Some(_) => continue,
            None => {}
        }
        if !controller.is_empty() {
            match interfaces.get(controller) {
                Some(interface) if interface.kind.is_controller() => {}
                Some(_) => return Err(HostError::invalid(place, format!("{controller} cannot have ports"))),
                None => return Err(HostError::invalid(place, no_interface(controller))),
            }
            if targets.get(controller).is_some_and(DesiredInterface::names_ports) {
                return Err(HostError::invalid(
                    place,
                    format!("{controller} does not list {port} as its port"),
                ));
            }
        }
        for interface in interfaces.values_mut() {
            interface.remove_port(port);
        }
        if let Some(interface) = interfaces.get_mut(controller) {
            interface.add_port(port);
        }
    }
    move_listed_ports(interfaces, targets)
}

/// Removes a port that the document lists from its current controller. Two controllers of one document cannot both
/// list it.
fn move_listed_ports(interfaces: &mut Interfaces, targets: &DesiredInterfaces<'_>) -> Result<(), HostError> {
    let mut taken: BTreeMap<String, String> = BTreeMap::new();
    for name in targets.iter().filter(|(_, target)| target.keeps()).map(|(name, _)| *name) {
        let Some(controller) = interfaces.get(name) else { continue };
        for port in controller.ports() {
            if let Some(other) = taken.insert(port.to_owned(), name.to_owned()) {
                return Err(HostError::invalid(
                    ports_place(name, controller),
                    format!("{port} is already a port of {other}"),
                ));
            }
        }
    }
    for (name, interface) in interfaces.iter_mut().filter(|(_, interface)| interface.kind.is_controller()) {
        let lost: Vec<_> = interface
            .ports()
            .into_iter()
            .filter(|port| taken.get(*port).is_some_and(|owner| owner != name))
            .map(str::to_owned)
            .collect();
        for port in lost {
            interface.remove_port(&port);
        }
    }
    Ok(())
}

/// Makes both ends of each veth pair, and takes away the end that was left for another.
pub(super) fn pair_up(
    interfaces: &mut Interfaces,
    before: &Interfaces,
    targets: &DesiredInterfaces<'_>,
    machine: &str,
) -> Result<(), HostError> {
    let veths = targets.iter().filter(|(_, target)| target.kind == Kind::Veth && target.keeps());
    for name in veths.map(|(name, _)| *name) {
        let place = Place::interface(name).below("veth.peer");
        let Some(peer) = interfaces.get(name).and_then(Interface::peer).map(str::to_owned) else {
            // A bare end that came from outside has its peer in another namespace.
            if targets.get(name).is_some_and(|target| target.wanted == Wanted::Unmanaged)
                || before.contains_key(name)
            {
                continue;
            }
            return Err(HostError::invalid(place, "a new veth needs the name of its peer"));
        };
        let old_peer = before.get(name).and_then(Interface::peer).filter(|old| *old != peer);
        if let Some(old) = old_peer {
            interfaces.remove(old);
        }
        match interfaces.get(&peer) {
            Some(other) if other.kind == Kind::Veth && other.peer() == Some(name) => {}
            Some(_) => {
                return Err(HostError::invalid(
                    place,
                    format!("{peer} is there already, and is not its peer"),
                ));
            }
            None => {
                let mut end = Interface::fresh(&peer, Kind::Veth, machine);
                end.keys.insert("veth".to_owned(), json!({ "peer": name }));
                interfaces.insert(peer, end);
            }
        }
    }
    Ok(())
}

/// Refuses what cannot be, and gives ports the form that ports have.
pub(super) fn check(interfaces: &mut Interfaces, targets: &DesiredInterfaces<'_>) -> Result<(), HostError> {
    for (name, interface) in interfaces.iter() {
        for port in interface.ports() {
            match interfaces.get(port) {
                None => return Err(HostError::invalid(ports_place(name, interface), no_interface(port))),
                Some(port) if port.kind == Kind::Loopback || port.name() == name => {
                    let why = format!("{} cannot be a port of it", port.name());
                    return Err(HostError::invalid(ports_place(name, interface), why));
                }
                Some(_) => {}
            }
        }
        if let Some(base) = interface.base().filter(|base| !interfaces.contains_key(*base)) {
            return Err(HostError::invalid(own_place(name, interface, "base-iface"), no_interface(base)));
        }
    }
    refuse_circles(interfaces)?;
    refuse_twin_vlans(interfaces)?;
    silence_ports(interfaces, targets)
}

/// Refuses an interface that is, over any number of steps, its own base or port.
fn refuse_circles(interfaces: &Interfaces) -> Result<(), HostError> {
    let mut above: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, interface) in interfaces {
        for below in interface.base().into_iter().chain(interface.ports()) {
            above.entry(below).or_default().push(name);
        }
    }
    for start in above.keys() {
        let mut seen = BTreeSet::new();
        let mut ahead = vec![*start];
        while let Some(here) = ahead.pop() {
            for next in above.get(here).into_iter().flatten() {
                if next == start {
                    let why = format!("it would be its own base or port, by way of {here}");
                    return Err(HostError::invalid(Place::interface(*start), why));
                }
                if seen.insert(*next) {
                    ahead.push(next);
                }
            }
        }
    }
    Ok(())
}

fn refuse_twin_vlans(interfaces: &Interfaces) -> Result<(), HostError> {
    let mut known: BTreeMap<(&str, i64, &str), &str> = BTreeMap::new();
    for (name, vlan) in interfaces.iter().filter(|(_, interface)| interface.kind == Kind::Vlan) {
        let (Some(base), Some(id)) = (vlan.base(), vlan.own("id").and_then(scalar::number)) else { continue };
        let protocol = vlan.own("protocol").and_then(Value::as_str).unwrap_or("802.1q");
        if let Some(twin) = known.insert((base, id, protocol), name) {
            let why = format!("VLAN {id} on {base} is already there as {twin}");
            return Err(HostError::invalid(own_place(name, vlan, "id"), why));
        }
    }
    Ok(())
}

fn silence_ports(interfaces: &mut Interfaces, targets: &DesiredInterfaces<'_>) -> Result<(), HostError> {
    let ports: Vec<(String, String, bool)> = controllers(interfaces)
        .into_iter()
        .map(|(port, by)| (port.to_owned(), by.name().to_owned(), by.kind.silences_its_ports()))
        .collect();
    for (port, controller, silenced) in ports {
        let Some(interface) = interfaces.get_mut(&port) else { continue };
        interface.keys.insert("state".to_owned(), json!("up"));
        if !silenced {
            continue;
        }
        for family in Family::BOTH {
            let asked = targets.get(port.as_str()).and_then(|target| target.keys.get(family.key()));
            if asked.is_some_and(ip::is_enabled) {
                return Err(HostError::invalid(
                    Place::interface(&port).below(family.key()),
                    format!("it is a port of {controller}, and such ports have no addresses of their own"),
                ));
            }
            interface.keys.insert(family.key().to_owned(), ip::disabled());
        }
    }
    Ok(())
}

fn no_interface(name: &str) -> String {
    format!("there is no interface {name}, neither on this machine nor in the document")
}

fn own_place(name: &str, interface: &Interface, key: &str) -> Place {
    let place = Place::interface(name);
    interface.kind.section().map_or_else(|| place.clone(), |section| place.below(section)).below(key)
}

fn ports_place(name: &str, controller: &Interface) -> Place {
    own_place(name, controller, "port")
}
