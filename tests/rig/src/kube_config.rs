//! The configuration files of a kubelet node, from the templates in `kube/`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::{
    api_server::{ApiServer, POD_RANGE},
    images,
    machine::rig_file,
    nm_node::static_profile,
    process::write_private,
};

/// The directory with a node's configuration files, and the addresses in them.
#[derive(Clone, Debug)]
pub struct KubeConfiguration {
    directory: PathBuf,
    /// The address of the node on the front segment.
    pub address: String,
    /// The addresses of its pods.
    pub pod_cidr: String,
}

impl KubeConfiguration {
    /// Writes the files to the node's directory. `number` is the number of the node in its lab.
    pub fn write(directory: &Path, name: &str, number: u8, api: &ApiServer) -> Result<Self> {
        let (pod_network, _) = POD_RANGE.split_once(".0.0/").context("POD_RANGE is not a /16")?;
        let this = Self {
            directory: directory.to_owned(),
            address: format!("10.99.0.{number}"),
            pod_cidr: format!("{pod_network}.{number}.0/24"),
        };
        let authority = this.path("authority.crt");
        std::fs::write(&authority, api.authority().certificate)?;
        let user = format!("system:node:{name}");
        write_private(&this.path("kubelet.kubeconfig"), &api.kubeconfig_for(&user, &["system:nodes"])?)?;
        let proxy = this.path("kube-proxy.kubeconfig");
        write_private(&proxy, &api.kubeconfig_for("system:kube-proxy", &[])?)?;
        std::fs::write(this.path("eth0.nmconnection"), static_profile(number))?;
        let values = [
            ("ADDRESS", this.address.as_str()),
            ("AUTHORITY", &authority.display().to_string()),
            ("KUBECONFIG", &proxy.display().to_string()),
            ("PAUSE", images::POD),
            ("POD_CIDR", &this.pod_cidr),
            ("POD_RANGE", POD_RANGE),
        ];
        for file in ["10-bridge.conflist", "containerd.toml", "kube-proxy.yaml", "kubelet.yaml"] {
            let template = std::fs::read_to_string(rig_file("kube").join(file))?;
            std::fs::write(this.path(file), fill_in(&template, &values).context(file)?)?;
        }
        Ok(this)
    }

    /// The path of one of the files.
    pub fn path(&self, file: &str) -> PathBuf {
        self.directory.join(file)
    }

    /// A command-line flag with the path of one of the files.
    pub fn flag(&self, flag: &str, file: &str) -> String {
        format!("--{flag}={}", self.path(file).display())
    }
}

/// Replaces every `@NAME@`.
fn fill_in(template: &str, values: &[(&str, &str)]) -> Result<String> {
    let filled = values
        .iter()
        .fold(template.to_owned(), |text, (name, value)| text.replace(&format!("@{name}@"), value));
    ensure!(!filled.contains('@'), "a placeholder of the template has no value:\n{filled}");
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_without_a_value_is_an_error() {
        assert_eq!(fill_in("a: @A@, b: @B@, a: @A@", &[("A", "1"), ("B", "2")]).unwrap(), "a: 1, b: 2, a: 1");
        assert!(fill_in("a: @A@, b: @B@", &[("A", "1")]).is_err());
    }
}
