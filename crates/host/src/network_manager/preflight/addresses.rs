//! Is an address one that an interface can have?

use knmstate_document::{Place, address::IpNet, address::full_prefix, interface_name};
use std::net::IpAddr;

use serde_json::Value;

use super::names::{World, value};
use crate::error::HostError;
use crate::host::Warning;

pub(super) fn check(world: World<'_>) -> Result<Vec<Warning>, HostError> {
    let mut warnings = Vec::new();
    for interface in world.wanted() {
        for family in ["ipv4", "ipv6"] {
            let place = Place::interface(interface_name(interface)).below(family).below("address");
            let addresses = value(interface, &[family, "address"]).and_then(Value::as_array);
            for (index, address) in addresses.into_iter().flatten().enumerate() {
                warnings.extend(judge(address, family, &place.entry(index))?);
            }
        }
    }
    Ok(warnings)
}

fn judge(address: &Value, family: &str, place: &Place) -> Result<Option<Warning>, HostError> {
    let ip = address.get("ip").and_then(Value::as_str).and_then(|ip| ip.parse::<IpAddr>().ok());
    let Some(ip) = ip else { return Ok(None) };
    if ip.is_ipv4() != (family == "ipv4") {
        let other = if ip.is_ipv4() { "ipv4" } else { "ipv6" };
        let why = format!("{ip} is not an address for {family}; it belongs to {other}");
        return Err(HostError::invalid(place.below("ip"), why));
    }
    let Some(prefix) = address.get("prefix-length").and_then(Value::as_u64) else { return Ok(None) };
    let longest = full_prefix(ip);
    let Some(address) = u8::try_from(prefix).ok().and_then(|prefix| IpNet::new(ip, prefix).ok()) else {
        let why = format!("a prefix of {family} has a length from 0 to {longest}, not {prefix}");
        return Err(HostError::invalid(place.below("prefix-length"), why));
    };
    Ok(not_for_a_host(address).map(|what| Warning {
        place: place.below("ip"),
        what: format!("{ip} is {what} of {}; neighbours may not speak to it", address.trunc()),
    }))
}

/// The first and the last address of a network mean all of it, unless it has only two or one.
fn not_for_a_host(address: IpNet) -> Option<&'static str> {
    let IpNet::V4(address) = address else { return None };
    match address.addr() {
        _ if address.prefix_len() >= 31 => None,
        ip if ip == address.network() => Some("the address"),
        ip if ip == address.broadcast() => Some("the broadcast address"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::names::tests::state_of;
    use super::*;

    #[test]
    fn addresses_belong_to_their_family_and_prefixes_have_an_end() {
        let current = state_of(json!({}));
        for (family, ip, prefix, expected) in [
            (
                "ipv4",
                "192.0.2.7",
                33,
                Err("prefix-length: a prefix of ipv4 has a length from 0 to 32, not 33"),
            ),
            (
                "ipv4",
                "192.0.2.7",
                300,
                Err("prefix-length: a prefix of ipv4 has a length from 0 to 32, not 300"),
            ),
            (
                "ipv6",
                "fd00::7",
                129,
                Err("prefix-length: a prefix of ipv6 has a length from 0 to 128, not 129"),
            ),
            ("ipv4", "fd00::7", 24, Err("ip: fd00::7 is not an address for ipv4; it belongs to ipv6")),
            ("ipv6", "192.0.2.7", 24, Err("ip: 192.0.2.7 is not an address for ipv6; it belongs to ipv4")),
            (
                "ipv4",
                "192.0.2.0",
                24,
                Ok(Some("ip: 192.0.2.0 is the address of 192.0.2.0/24; neighbours may not speak to it")),
            ),
            (
                "ipv4",
                "192.0.2.255",
                24,
                Ok(Some(
                    "ip: 192.0.2.255 is the broadcast address of 192.0.2.0/24; neighbours may not speak to it",
                )),
            ),
            ("ipv4", "192.0.2.7", 32, Ok(None)),
            ("ipv4", "192.0.2.0", 32, Ok(None)),
            ("ipv4", "192.0.2.0", 31, Ok(None)),
            ("ipv4", "192.0.2.1", 31, Ok(None)),
            ("ipv4", "192.0.2.0", 16, Ok(None)),
            ("ipv4", "192.0.2.7", 0, Ok(None)),
            ("ipv4", "192.0.2.7", 24, Ok(None)),
            ("ipv6", "fd00::", 64, Ok(None)),
            ("ipv6", "fd00::7", 128, Ok(None)),
            ("ipv6", "fd00::7", 0, Ok(None)),
        ] {
            let desired = state_of(json!({ "interfaces": [
                { "name": "gone", "state": "absent", "ipv4": { "address": [{ "ip": "::1", "prefix-length": 200 }] } },
                { "name": "eth1", family: { "enabled": true, "address": [{ "ip": ip, "prefix-length": prefix }] } },
            ] }));
            let found = check(World { desired: &desired, current: &current });
            let full = |text: &str| format!("interfaces[eth1].{family}.address[0].{text}");
            let expected =
                expected.map(|warning| warning.map(full).into_iter().collect::<Vec<_>>()).map_err(full);
            let found = found
                .map(|warnings| warnings.iter().map(ToString::to_string).collect::<Vec<_>>())
                .map_err(|error| error.to_string());
            assert_eq!(found, expected, "{family} {ip}/{prefix}");
        }
    }
}
