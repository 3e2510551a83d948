//! What the kernel knows of its links and nmstate leaves out: it calls a link up as long as NetworkManager holds it,
//! cable or not, and does not say which port of a bond is in use.

use std::fs;
use std::path::Path;

use crate::host::Link;

pub(super) const SYS_CLASS_NET: &str = "/sys/class/net";

/// Every link that is switched on.
pub(super) fn read(directory: &Path) -> Vec<Link> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut links: Vec<Link> = entries.filter_map(|entry| link(&entry.path())).collect();
    links.sort_by(|one, other| one.name.cmp(&other.name));
    links
}

fn link(directory: &Path) -> Option<Link> {
    let text = |file: &str| fs::read_to_string(directory.join(file)).ok().map(|text| text.trim().to_owned());
    // Of a link that is switched off the kernel does not say; and some things in this directory are no links.
    let carrier = text("carrier")? == "1";
    let active_port = text("bonding/active_slave").filter(|port| !port.is_empty());
    Some(Link { name: directory.file_name()?.to_str()?.to_owned(), carrier, active_port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_that_are_up_are_reported() {
        let directory = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("eth1/carrier", "0\n"),
            ("eth2/carrier", "1\n"),
            ("bond0/carrier", "1\n"),
            ("bond0/bonding/active_slave", "eth2\n"),
            ("bond1/carrier", "0\n"),
            ("bond1/bonding/active_slave", "\n"),
            ("eth3/address", "02:00:00:00:00:01\n"),
            ("bonding_masters", "bond0 bond1\n"),
        ] {
            let path = directory.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let link = |name: &str, carrier, port: Option<&str>| Link {
            name: name.to_owned(),
            carrier,
            active_port: port.map(str::to_owned),
        };
        assert_eq!(
            read(directory.path()),
            [
                link("bond0", true, Some("eth2")),
                link("bond1", false, None),
                link("eth1", false, None),
                link("eth2", true, None),
            ]
        );
        assert_eq!(read(&directory.path().join("nowhere")), []);
    }
}
