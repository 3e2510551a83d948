//! Helm, and the chart that is delivered.

use std::{path::Path, time::Duration};

use anyhow::Result;

use crate::{ApiServer, Lab, Output, machine::rig_file, parts, process::Invocation};

const LIMIT: Duration = Duration::from_mins(2);

/// The directory of the chart.
pub fn chart() -> String {
    rig_file("../../deploy/chart").display().to_string()
}

impl Lab {
    /// Runs Helm without a cluster.
    pub async fn helm<S: Into<String>>(&self, args: impl IntoIterator<Item = S>) -> Result<Output> {
        helm(self.directory()).await?.args(args).run(LIMIT).await
    }
}

impl ApiServer {
    /// Runs Helm in the cluster, with all rights.
    pub async fn helm<S: Into<String>>(&self, args: impl IntoIterator<Item = S>) -> Result<Output> {
        let home = self.kubeconfig().parent().unwrap_or(Path::new("/"));
        let helm = helm(home).await?.env("KUBECONFIG", self.kubeconfig().display().to_string());
        helm.args(args).run(LIMIT).await
    }
}

/// Helm has caches and settings below HOME, so each lab gets its own.
async fn helm(home: &Path) -> Result<Invocation> {
    Ok(Invocation::new([parts::helm().await?]).env("HOME", home.display().to_string()))
}
