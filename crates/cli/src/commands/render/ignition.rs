//! Ignition's document, as far as it is needed: files and units. Specification 3.4.0.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::Serialize;

/// The version that OpenShift 4.14 and later take in a MachineConfig.
const VERSION: &str = "3.4.0";

#[derive(Debug, Serialize)]
pub(super) struct Config {
    ignition: Ignition,
    storage: Storage,
    #[serde(skip_serializing_if = "Systemd::is_empty")]
    systemd: Systemd,
}

#[derive(Debug, Serialize)]
struct Ignition {
    version: &'static str,
}

#[derive(Debug, Serialize)]
struct Storage {
    files: Vec<File>,
}

#[derive(Debug, Serialize)]
struct Systemd {
    units: Vec<Unit>,
}

impl Systemd {
    fn is_empty(&self) -> bool {
        self.units.is_empty()
    }
}

#[derive(Debug, Serialize)]
pub(super) struct File {
    path: String,
    /// In decimal, because JSON knows no other.
    mode: u32,
    /// What Ignition would otherwise refuse to touch when a machine is installed over an older one.
    overwrite: bool,
    contents: Contents,
}

#[derive(Debug, Serialize)]
struct Contents {
    source: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Unit {
    pub(super) name: &'static str,
    pub(super) enabled: bool,
    pub(super) contents: String,
}

impl File {
    pub(super) fn new(path: String, mode: u32, text: &str) -> Self {
        // Not percent-encoded: base64 needs no thought about which characters are safe.
        let source = format!("data:;base64,{}", BASE64_STANDARD.encode(text));
        Self { path, mode, overwrite: true, contents: Contents { source } }
    }
}

impl Config {
    pub(super) fn new(files: Vec<File>, units: Vec<Unit>) -> Self {
        Self {
            ignition: Ignition { version: VERSION },
            storage: Storage { files },
            systemd: Systemd { units },
        }
    }
}
