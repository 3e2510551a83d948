//! The `ipv4` and `ipv6` sections of an interface.

use knmstate_document::{Place, address::IpNet, address::full_prefix, address::parse_ip, scalar};
use std::net::IpAddr;

use serde_json::{Map, Value, json};

use knmstate_host::HostError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) const BOTH: [Self; 2] = [Self::V4, Self::V6];

    pub(super) fn key(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }

    pub(super) fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

const KEYS: [&str; 17] = [
    "enabled",
    "dhcp",
    "autoconf",
    "dhcp-client-id",
    "dhcp-duid",
    "address",
    "auto-dns",
    "auto-gateway",
    "auto-routes",
    "auto-route-table-id",
    "auto-route-metric",
    "addr-gen-mode",
    "allow-extra-address",
    "token",
    "dhcp-send-hostname",
    "dhcp-custom-hostname",
    "prefix-route-metric",
];

/// What a machine does by default with what it gets by DHCP or from a router.
const AUTOMATIC: [&str; 3] = ["auto-dns", "auto-gateway", "auto-routes"];

pub(super) fn disabled() -> Value {
    json!({ "enabled": false })
}

pub(super) fn is_enabled(section: &Value) -> bool {
    section.get("enabled").and_then(scalar::truth) == Some(true)
}

/// The addresses of a settled section.
pub(super) fn addresses(section: &Value) -> Vec<IpNet> {
    let parse = |entry: &Value| {
        let ip = parse_ip(entry.get("ip")?.as_str()?).ok()?;
        let prefix = u8::try_from(scalar::number(entry.get("prefix-length")?)?).ok()?;
        IpNet::new(ip, prefix).ok()
    };
    section.get("address").and_then(Value::as_array).into_iter().flatten().filter_map(parse).collect()
}

/// The merged section as the machine holds it: addresses in one spelling, and nothing that has no effect.
///
/// There is no DHCP server and no router on a simulated wire: asking for automatic addresses is fine and brings none.
pub(super) fn settled(section: Option<&Value>, family: Family, place: &Place) -> Result<Value, HostError> {
    let empty = Map::new();
    let section = match section {
        None => &empty,
        Some(Value::Object(section)) => section,
        Some(_) => return Err(HostError::invalid(place.clone(), "a map of keys is expected here")),
    };
    if let Some(key) = section.keys().find(|key| !is_key_of(key, family)) {
        return Err(HostError::invalid(place.below(key), format!("{} has no such key", family.name())));
    }
    let enabled = truth(section, "enabled", place)?;
    let addresses = spelled(section.get("address"), family, &place.below("address"))?;
    if !enabled {
        return Ok(disabled());
    }

    let mut settled = section.clone();
    settled.shift_remove("allow-extra-address");
    settled.insert("enabled".to_owned(), json!(true));
    let mut automatic = truth(section, "dhcp", place)?;
    settled.insert("dhcp".to_owned(), json!(automatic));
    if family == Family::V6 {
        let autoconf = truth(section, "autoconf", place)?;
        settled.insert("autoconf".to_owned(), json!(autoconf));
        automatic |= autoconf;
    }
    if automatic {
        for key in AUTOMATIC {
            settled.entry(key).or_insert(json!(true));
        }
    } else {
        settled.retain(|key, _| !key.starts_with("auto-") && !key.starts_with("dhcp-"));
    }
    let addresses = addresses
        .iter()
        .map(|address| json!({ "ip": address.addr().to_string(), "prefix-length": address.prefix_len() }))
        .collect();
    settled.insert("address".to_owned(), Value::Array(addresses));
    Ok(Value::Object(settled))
}

fn is_key_of(key: &str, family: Family) -> bool {
    match (key, family) {
        ("autoconf" | "dhcp-duid" | "addr-gen-mode" | "token", Family::V4)
        | ("dhcp-client-id" | "prefix-route-metric", Family::V6) => false,
        ("forwarding", family) => family == Family::V4,
        (key, _) => KEYS.contains(&key),
    }
}

fn truth(section: &Map<String, Value>, key: &str, place: &Place) -> Result<bool, HostError> {
    match section.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(value) => scalar::truth(value).ok_or_else(|| {
            HostError::invalid(place.below(key), format!("{value} is neither true nor false"))
        }),
    }
}

fn spelled(list: Option<&Value>, family: Family, place: &Place) -> Result<Vec<IpNet>, HostError> {
    let entries = match list {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(entries)) => entries,
        Some(_) => return Err(HostError::invalid(place.clone(), "a list of addresses is expected here")),
    };
    let mut addresses = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let address = address(entry, family, &place.entry(index))?;
        // A link-local address is the kernel's to give; one in a document comes from a copied report.
        let link_local = matches!(address.addr(), IpAddr::V6(ip) if ip.is_unicast_link_local());
        if !link_local && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

fn address(entry: &Value, family: Family, place: &Place) -> Result<IpNet, HostError> {
    let text = entry.get("ip").and_then(Value::as_str);
    let text = text.ok_or_else(|| HostError::invalid(place.below("ip"), "every address needs an ip"))?;
    let ip = parse_ip(text).map_err(|why| HostError::invalid(place.below("ip"), why))?;
    if Family::of(ip) != family {
        let why = format!("{ip} is not an {} address", family.name());
        return Err(HostError::invalid(place.below("ip"), why));
    }
    if ip.is_unspecified() || ip.is_multicast() {
        return Err(HostError::invalid(
            place.below("ip"),
            format!("{ip} cannot be the address of an interface"),
        ));
    }
    let longest = full_prefix(ip);
    let prefix = entry.get("prefix-length").and_then(scalar::number);
    let prefix = prefix.and_then(|prefix| u8::try_from(prefix).ok());
    prefix.and_then(|prefix| IpNet::new(ip, prefix).ok()).ok_or_else(|| {
        HostError::invalid(
            place.below("prefix-length"),
            format!("a number from 0 to {longest} is expected here"),
        )
    })
}
