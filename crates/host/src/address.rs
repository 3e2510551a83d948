//! Addresses and networks in the one spelling that can be compared.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address with the length of its network prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct IpNet {
    pub(crate) ip: IpAddr,
    pub(crate) prefix: u8,
}

/// The length of a prefix that leaves no bit for hosts.
pub(crate) fn full_prefix(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

impl IpNet {
    /// `10.0.0.0/8`, `fd00::/8`; without a prefix the address stands for itself alone.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (ip, prefix) = match text.split_once('/') {
            Some((ip, prefix)) => (parse_ip(ip)?, Some(prefix)),
            None => (parse_ip(text)?, None),
        };
        let longest = full_prefix(ip);
        let prefix = match prefix {
            None => longest,
            Some(digits) => digits
                .parse()
                .ok()
                .filter(|prefix| *prefix <= longest)
                .ok_or_else(|| format!("the prefix of {text} must be a number from 0 to {longest}"))?,
        };
        Ok(Self { ip, prefix })
    }

    /// The network that this address is in: the same with all host bits cleared.
    pub(crate) fn network(self) -> Self {
        let host_bits = u32::from(full_prefix(self.ip) - self.prefix);
        let ip = match self.ip {
            IpAddr::V4(ip) => {
                IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() & u32::MAX.checked_shl(host_bits).unwrap_or(0)))
            }
            IpAddr::V6(ip) => {
                IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & u128::MAX.checked_shl(host_bits).unwrap_or(0)))
            }
        };
        Self { ip, prefix: self.prefix }
    }

    /// Leaves no room for a neighbour, so that there is no network to be connected to.
    pub(crate) fn is_single(self) -> bool {
        self.prefix == full_prefix(self.ip)
    }
}

impl fmt::Display for IpNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)
    }
}

pub(crate) fn parse_ip(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| format!("{text:?} is not an IP address"))
}

/// The address of a name server in one spelling. A link-local one says by which interface it is reached.
pub(crate) fn parse_server(text: &str) -> Result<String, String> {
    Ok(match text.split_once('%') {
        Some((address, interface)) => format!("{}%{interface}", parse_ip(address)?),
        None => parse_ip(text)?.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_spelled_in_one_way() {
        for (text, network) in [
            ("192.0.2.7/24", "192.0.2.0/24"),
            ("192.0.2.7", "192.0.2.7/32"),
            ("10.255.255.255/9", "10.128.0.0/9"),
            ("1.2.3.4/0", "0.0.0.0/0"),
            ("2001:DB8:0:0::1/64", "2001:db8::/64"),
            ("::/0", "::/0"),
            ("fe80::1", "fe80::1/128"),
        ] {
            assert_eq!(IpNet::parse(text).expect(text).network().to_string(), network);
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for (text, error) in [
            ("", "\"\" is not an IP address"),
            ("eth0", "\"eth0\" is not an IP address"),
            ("192.0.2.0/33", "the prefix of 192.0.2.0/33 must be a number from 0 to 32"),
            ("192.0.2.0/", "the prefix of 192.0.2.0/ must be a number from 0 to 32"),
            ("fd00::/-1", "the prefix of fd00::/-1 must be a number from 0 to 128"),
            ("192.0.2.256/24", "\"192.0.2.256\" is not an IP address"),
        ] {
            assert_eq!(IpNet::parse(text), Err(error.to_owned()));
        }
    }
}
