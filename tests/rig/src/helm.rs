//! The real Helm, with the chart as it is delivered.

use std::{path::Path, time::Duration};

use anyhow::Result;

use crate::{ApiServer, Lab, Output, machine::rig_file, parts, process::Invocation};

const LIMIT: Duration = Duration::from_mins(2);

/// The folder of the chart.
pub fn chart() -> String {
    rig_file("../../deploy/chart").display().to_string()
}

impl Lab {
    /// Helm without a cluster.
    pub async fn helm<S: Into<String>>(&self, args: impl IntoIterator<Item = S>) -> Result<Output> {
        helm(self.folder()).await?.args(args).run(LIMIT).await
    }
}

impl ApiServer {
    /// Helm with every right.
    pub async fn helm<S: Into<String>>(&self, args: impl IntoIterator<Item = S>) -> Result<Output> {
        let home = self.kubeconfig().parent().unwrap_or(Path::new("/"));
        let helm = helm(home).await?.env("KUBECONFIG", self.kubeconfig().display().to_string());
        helm.args(args).run(LIMIT).await
    }
}

/// Helm keeps caches and settings below HOME, which is neither ours nor shared between labs.
async fn helm(home: &Path) -> Result<Invocation> {
    Ok(Invocation::new([parts::helm().await?]).env("HOME", home.display().to_string()))
}
