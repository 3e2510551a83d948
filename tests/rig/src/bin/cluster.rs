//! A cluster to experiment with, removed on Ctrl-C: `make cluster`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use rig::{Lab, images};

/// Starts a Kubernetes control plane and nodes on this machine, in namespaces of their own, until Ctrl-C.
#[derive(Debug, Parser)]
struct Arguments {
    /// The number of nodes with a kubelet, NetworkManager and three NICs. Pods run on them.
    #[arg(long, default_value_t = 1)]
    kube_nodes: usize,
    /// The number of nodes with NetworkManager and three NICs, but without a kubelet.
    #[arg(long, default_value_t = 0)]
    nm_nodes: usize,
    /// Where to write the kubeconfig.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    tokio::select! {
        result = run(&arguments) => result,
        interrupted = tokio::signal::ctrl_c() => {
            println!("\neverything that was started has been removed");
            Ok(interrupted?)
        }
    }
}

/// Runs until an error. Dropping the future removes everything that it has started.
async fn run(arguments: &Arguments) -> Result<()> {
    let lab = Lab::new().await?;
    // For policies with dynamic addresses and names.
    lab.dns().on().await?;
    lab.dhcp().on().await?;
    println!("starting the control plane …");
    let api = lab.api_server().with_controllers().start().await?;
    api.install_crds().await?;
    let mut nm_nodes = Vec::new();
    for number in 1..=arguments.nm_nodes {
        println!("starting nm-node{number} …");
        nm_nodes.push(lab.nm_node(&format!("nm-node{number}")).start().await?);
    }
    let mut kube_nodes = Vec::new();
    for number in 1..=arguments.kube_nodes {
        println!("starting node{number} …");
        let node = lab.kube_node(&format!("node{number}"), &api).image(images::knmstate().await?);
        kube_nodes.push(node.start().await?);
    }
    let kubeconfig = match &arguments.kubeconfig {
        Some(path) => {
            std::fs::copy(api.kubeconfig(), path).with_context(|| format!("write {}", path.display()))?;
            path.clone()
        }
        None => api.kubeconfig().to_owned(),
    };
    println!("\n  export KUBECONFIG={}\n  kubectl get nodes,nncp,nnce,nns\n", kubeconfig.display());
    let nodes = nm_nodes.iter().map(|node| (node.name(), node.pid()));
    for (name, pid) in nodes.chain(kube_nodes.iter().map(|node| (node.name(), node.pid()))) {
        println!("  a shell in {name}: nsenter --all --target {pid}");
    }
    if !kube_nodes.is_empty() {
        println!("  images that pods can use: {}, {}\n", images::KNMSTATE, images::POD);
    }
    println!("Ctrl-C ends it and removes everything.");
    println!("ready: {}", lab.id());
    std::future::pending().await
}
