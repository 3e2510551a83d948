//! nmstate's refusals in words that help whoever has misspelt something.

/// Keys of every interface. nmstate does not tell them.
const INTERFACE_KEYS: [&str; 40] = [
    "name",
    "profile-name",
    "description",
    "type",
    "state",
    "identifier",
    "mac-address",
    "mtu",
    "ipv4",
    "ipv6",
    "mptcp",
    "controller",
    "accept-all-mac-addresses",
    "copy-mac-from",
    "ethtool",
    "ethernet",
    "lldp",
    "802.1x",
    "wait-ip",
    "dispatch",
    "alt-names",
    "link-aggregation",
    "bridge",
    "vlan",
    "vxlan",
    "vrf",
    "veth",
    "hsr",
    "macsec",
    "mac-vlan",
    "mac-vtap",
    "ipvlan",
    "infiniband",
    "ip-tunnel",
    "libreswan",
    "patch",
    "dpdk",
    "ovs-db",
    "pci-address",
    "driver",
];

/// How much of a list of what is known is told.
const MOST: usize = 12;

/// What nmstate says of a document, made shorter and clearer.
pub(super) fn explained(error: &str, in_interface: bool) -> String {
    let first = error.lines().next().unwrap_or_default();
    for (prefix, what) in [("unknown field `", "key"), ("unknown variant `", "value")] {
        let Some((wrong, rest)) = first.strip_prefix(prefix).and_then(|rest| rest.split_once('`')) else {
            continue;
        };
        let known: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
        let nearby = nearest(wrong, known.iter().copied());
        let nearby = nearby
            .or_else(|| if in_interface && known.is_empty() { nearest(wrong, INTERFACE_KEYS) } else { None });
        return match (nearby, known.len()) {
            (Some(meant), _) => format!("unknown {what} {wrong:?}; did you mean {meant:?}?"),
            (None, 0) => format!("unknown {what} {wrong:?}"),
            (None, count) if count > MOST => {
                format!("unknown {what} {wrong:?}; there are {} and more", known[..MOST].join(", "))
            }
            (None, _) => format!("unknown {what} {wrong:?}; there are {}", known.join(", ")),
        };
    }
    first.to_owned()
}

/// The known word that a wrong one was probably meant to be.
pub(super) fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wrong = wrong.to_ascii_lowercase().replace('_', "-");
    let allowed = if wrong.len() < 5 { 1 } else { 2 };
    let by_distance = known.into_iter().map(|word| (distance(&wrong, word), word));
    by_distance
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// How many characters have to be added, removed or replaced to get from one to the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, left) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, right) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(left != *right);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_close() {
        for (wrong, expected) in [
            ("mtuu", Some("mtu")),
            ("ip4", Some("ipv4")),
            ("link_aggregation", Some("link-aggregation")),
            ("Description", Some("description")),
            ("foo", None),
            ("", None),
        ] {
            assert_eq!(nearest(wrong, INTERFACE_KEYS), expected, "{wrong}");
        }
    }

    #[test]
    fn refusals_name_what_was_probably_meant() {
        for (error, in_interface, expected) in [
            ("unknown field `mtuu`", true, "unknown key \"mtuu\"; did you mean \"mtu\"?"),
            ("unknown field `mtuu`", false, "unknown key \"mtuu\""),
            (
                "unknown field `servers`, expected one of `server`, `search`",
                false,
                "unknown key \"servers\"; did you mean \"server\"?",
            ),
            (
                "unknown variant `sideways`, expected `up` or `down`",
                true,
                "unknown value \"sideways\"; there are up, down",
            ),
            ("invalid digit found in string", true, "invalid digit found in string"),
        ] {
            assert_eq!(explained(error, in_interface), expected);
        }
    }
}
