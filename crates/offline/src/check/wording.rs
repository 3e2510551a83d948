//! Makes the errors of nmstate's parser shorter, and adds the word that was probably meant.

use knmstate_document::edit_distance;

/// Keys of every interface. nmstate does not list them.
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

/// How many known words an error lists.
const MOST: usize = 12;
/// A longer word is near none of nmstate's, and takes long to compare.
const LONGEST_WORD: usize = 64;

/// An error of nmstate's parser, made shorter and clearer.
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
    if wrong.len() > LONGEST_WORD {
        return None;
    }
    let wrong = wrong.to_ascii_lowercase().replace('_', "-");
    let allowed = if wrong.len() < 5 { 1 } else { 2 };
    let by_distance = known.into_iter().map(|word| (edit_distance(&wrong, word), word));
    by_distance
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
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
