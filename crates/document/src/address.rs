//! Addresses and networks, in the one spelling that can be compared.

use std::net::IpAddr;

pub use ipnet::IpNet;

/// The length of a prefix that leaves no bit for hosts.
pub fn full_prefix(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

/// `10.0.0.0/8`, `fd00::/8`, with the host bits as they are written; an address without a prefix is a network of its
/// own. The error says what is wrong.
pub fn parse_network(text: &str) -> Result<IpNet, String> {
    let Some((ip, digits)) = text.split_once('/') else { return Ok(IpNet::from(parse_ip(text)?)) };
    let ip = parse_ip(ip)?;
    let network = digits.parse().ok().and_then(|prefix| IpNet::new(ip, prefix).ok());
    network.ok_or_else(|| format!("the prefix of {text} must be a number from 0 to {}", full_prefix(ip)))
}

/// Whether the network has one address only, so that no neighbour can be in it.
pub fn is_single(network: IpNet) -> bool {
    network.prefix_len() == network.max_prefix_len()
}

/// An address without a prefix. The error says what is wrong.
pub fn parse_ip(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| format!("{text:?} is not an IP address"))
}

/// The address of a name server in one spelling. A link-local one names the interface by which it is reached.
pub fn parse_server(text: &str) -> Result<String, String> {
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
            assert_eq!(parse_network(text).expect(text).trunc().to_string(), network);
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
            assert_eq!(parse_network(text), Err(error.to_owned()));
        }
    }
}
