//! The way to the cluster, for roles that live in one.

use std::path::Path;

use anyhow::{Context as _, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};

/// By a kubeconfig, or as a pod does.
pub async fn config(kubeconfig: Option<&Path>) -> Result<kube::Config> {
    let Some(path) = kubeconfig else {
        return kube::Config::incluster()
            .context("this is no pod of a cluster: name a kubeconfig by --kubeconfig");
    };
    let read = async {
        let kubeconfig = Kubeconfig::read_from(path)?;
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await
    };
    read.await.with_context(|| format!("cannot use the kubeconfig {}", path.display()))
}
