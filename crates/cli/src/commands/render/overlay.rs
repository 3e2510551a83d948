//! `knmstate render overlay`: profiles that last until the next boot, for everything on a node that writes some.

use std::path::PathBuf;

use super::{
    Rendered,
    ignition::{Config, File, Unit},
    names, object,
};

/// What NetworkManager reads and writes: both layers as one.
const MERGED: &str = "/etc/NetworkManager/systemConnectionsMerged";
/// What stays: written by MachineConfigs and by the installation.
const LOWER: &str = "/etc/NetworkManager/system-connections";
/// What is gone with the next boot.
const UPPER: &str = "/run/nm-system-connections";
const WORK: &str = "/run/nm-system-connections-work";
/// systemd requires that a mount unit is named after its directory.
const UNIT: &str = "etc-NetworkManager-systemConnectionsMerged.mount";

const WHEN: &str = "\
With this, a node comes back from a reboot with the profiles that MachineConfigs
and the installation have put on its disk, and policies are applied again. The
files of MachineConfigs stay as they are, so the machine-config-operator finds
no node that has drifted, even where a policy changes an interface of theirs.

If knmstate alone changes the network of the nodes, you do not need it: set
NMState.spec.persistence: Ephemeral, and no node has to reboot for it. Use this
where other programs write profiles too, or where files of a MachineConfig and
policies speak of the same interface.

Profiles that were written to the disk before stay there. Nodes that have no
network without a policy have none until the policy is applied again: keep what
a node needs to reach the API server in a MachineConfig.";

/// Write a MachineConfig after which changes of NetworkManager's profiles last until the next boot.
///
/// NetworkManager uses an overlay: the files on disk below, and a directory in /run above, which gets all changes.
#[derive(clap::Args)]
#[command(after_help = WHEN)]
pub(super) struct Args {
    /// The MachineConfigPool whose nodes get it.
    #[arg(long, value_name = "NAME", default_value = "worker", value_parser = names::pool)]
    pub(super) pool: String,

    /// Write to this file instead of standard output.
    #[arg(long, short, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
}

pub(super) fn render(args: &Args) -> Result<Rendered, String> {
    let pool = &args.pool;
    let name = names::object(&format!("99-{pool}-nmstate-overlay"))?;
    let files = [
        ("/etc/NetworkManager/conf.d/99-knmstate-overlay.conf", settings()),
        ("/etc/tmpfiles.d/knmstate-overlay.conf", directories()),
    ];
    let files = files.into_iter().map(|(path, text)| File::new(path.to_owned(), 0o644, &text)).collect();
    let units = vec![Unit { name: UNIT, enabled: true, contents: mount() }];
    let object = object::machine_config(&name, pool, &Config::new(files, units));
    Ok(Rendered { object, remarks: Vec::new() })
}

fn settings() -> String {
    format!(
        "# Profiles are read from, and written to, an overlay that lasts until the next boot.\n[keyfile]\npath={MERGED}\n"
    )
}

/// Readable by root alone, because of the passwords in profiles.
fn directories() -> String {
    format!("D {UPPER} 0700 root root - -\nD {WORK} 0700 root root - -\nd {MERGED} 0755 root root - -\n")
}

/// After the directories exist, which is after local-fs.target: so it must not be a part of that one, as mounts are by
/// default. Wanted by NetworkManager itself, so that it never starts without.
fn mount() -> String {
    format!(
        "\
[Unit]
Description=Profiles of NetworkManager that last until the next boot
DefaultDependencies=no
RequiresMountsFor={LOWER}
Wants=systemd-tmpfiles-setup.service
After=systemd-tmpfiles-setup.service
Before=NetworkManager.service umount.target
Conflicts=umount.target

[Mount]
What=overlay
Where={MERGED}
Type=overlay
Options=lowerdir={LOWER},upperdir={UPPER},workdir={WORK}

[Install]
WantedBy=NetworkManager.service
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::render::ignition_rules;

    fn rendered(pool: &str) -> Result<serde_json::Value, String> {
        render(&Args { pool: pool.to_owned(), output: None }).map(|rendered| rendered.object)
    }

    #[test]
    fn the_overlay_is_a_valid_config_of_the_pool() {
        let object = rendered("infra").unwrap();
        let read = ignition_rules::read(&object["spec"]["config"]).unwrap();
        assert_eq!(object["metadata"]["name"], "99-infra-nmstate-overlay");
        assert_eq!(object["metadata"]["labels"]["machineconfiguration.openshift.io/role"], "infra");
        assert_eq!(read.units, [(UNIT.to_owned(), mount())]);
        let settings = &read.files["/etc/NetworkManager/conf.d/99-knmstate-overlay.conf"];
        assert_eq!(settings.mode, 420);
        assert!(settings.text.ends_with("[keyfile]\npath=/etc/NetworkManager/systemConnectionsMerged\n"));
    }

    #[test]
    fn the_unit_is_named_after_its_directory() {
        assert_eq!(UNIT, format!("{}.mount", MERGED[1..].replace('/', "-")));
        // A dash in the directory would have to be escaped in the name.
        assert!(!MERGED.contains('-'));
    }

    #[test]
    fn every_directory_of_the_mount_is_created_before() {
        for directory in [UPPER, WORK, MERGED] {
            assert!(directories().contains(&format!(" {directory} ")), "{directory}");
        }
    }
}
