//! Applies every example of `examples/` to a real kernel, checks the result there, and removes it again. The results
//! become `docs/features.md`.
//!
//! `KNMSTATE_EXAMPLES=bond/,vlan/on-nic` runs only those whose names contain one of these.

mod check;
mod cluster;
mod complete;
mod example;
mod keyfile;
mod node;
mod reported;
mod standalone;

use anyhow::{Context as _, Result, ensure};
use rig::{
    Lab, Userland,
    features::{FeatureRecord, Method},
    parts,
    services::Service,
};
use tokio::time::Instant;

use cluster::ExampleCluster;
use example::{Case, Example, NodeKind, cases};
use node::{ExampleNode, NodeChoice};

#[tokio::test(flavor = "multi_thread")]
async fn standalone_in_namespaces() -> Result<()> {
    standalone(NodeChoice::Usual(NodeKind::Namespaces), of_kind(NodeKind::Namespaces)?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn standalone_on_a_full_kernel_first_half() -> Result<()> {
    standalone(NodeChoice::Usual(NodeKind::FullKernel), every_second(of_kind(NodeKind::FullKernel)?, 0)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn standalone_on_a_full_kernel_second_half() -> Result<()> {
    standalone(NodeChoice::Usual(NodeKind::FullKernel), every_second(of_kind(NodeKind::FullKernel)?, 1)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn standalone_with_open_vswitch() -> Result<()> {
    standalone(NodeChoice::Usual(NodeKind::OpenVswitch), of_kind(NodeKind::OpenVswitch)?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn standalone_with_virtual_functions() -> Result<()> {
    standalone(NodeChoice::Usual(NodeKind::SrIov), of_kind(NodeKind::SrIov)?).await
}

// Namespace nodes have the NetworkManager of Debian 12, the usual full kernel that of Debian 13.

#[tokio::test(flavor = "multi_thread")]
async fn core_with_the_network_manager_of_debian_12() -> Result<()> {
    let cases = chosen(|case| case.expectation.core && case.expectation.node == NodeKind::FullKernel)?;
    standalone(NodeChoice::WithUserland(Userland::Debian12), cases).await
}

#[tokio::test(flavor = "multi_thread")]
async fn core_with_the_network_manager_of_debian_13() -> Result<()> {
    let cases = chosen(|case| case.expectation.core && case.expectation.node == NodeKind::Namespaces)?;
    standalone(NodeChoice::WithUserland(Userland::Debian13), cases).await
}

#[tokio::test(flavor = "multi_thread")]
async fn core_with_the_network_manager_of_debian_14() -> Result<()> {
    standalone(NodeChoice::WithUserland(Userland::Debian14), chosen(|case| case.expectation.core)?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_in_namespaces() -> Result<()> {
    through_cluster(NodeKind::Namespaces).await
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_on_a_full_kernel() -> Result<()> {
    through_cluster(NodeKind::FullKernel).await
}

fn of_kind(kind: NodeKind) -> Result<Vec<Case>> {
    chosen(|case| case.expectation.node == kind)
}

fn chosen(is_meant: impl Fn(&Case) -> bool) -> Result<Vec<Case>> {
    let wanted = parts::example_filter().unwrap_or_default();
    let mut cases = cases()?;
    let is_wanted = |case: &Case| wanted.split(',').any(|part| case.example.id.contains(part));
    cases.retain(|case| is_meant(case) && is_wanted(case));
    Ok(cases)
}

fn every_second(cases: Vec<Case>, from: usize) -> Vec<Case> {
    cases.into_iter().skip(from).step_by(2).collect()
}

async fn standalone(choice: NodeChoice, cases: Vec<Case>) -> Result<()> {
    let start = async |lab: Lab| ExampleNode::start(&lab, choice).await;
    let run = async |node: &ExampleNode, case: &Case| {
        standalone::run(node, case).await?;
        record_case(node, case, Method::Standalone).await
    };
    run_in_turn(cases, start, run).await
}

async fn through_cluster(kind: NodeKind) -> Result<()> {
    let cases = chosen(|case| case.expectation.cluster && case.expectation.node == kind)?;
    let start = async |lab: Lab| ExampleCluster::start(&lab, NodeChoice::Usual(kind)).await;
    let run = async |cluster: &ExampleCluster, case: &Case| {
        cluster.run(case).await?;
        record_case(&cluster.node, case, Method::Cluster).await
    };
    run_in_turn(cases, start, run).await
}

/// Runs all cases on one node. After a failure the next case gets a new node, as the old one is in an unknown state.
async fn run_in_turn<T>(
    cases: Vec<Case>,
    start: impl AsyncFn(Lab) -> Result<T>,
    run: impl AsyncFn(&T, &Case) -> Result<()>,
) -> Result<()> {
    let mut failures = Vec::new();
    let mut reusable = None;
    for case in &cases {
        let (node, services) = if let Some(reusable) = reusable.take() {
            reusable
        } else {
            let (lab, services) = lab_with_services().await?;
            (start(lab).await?, services)
        };
        let started = Instant::now();
        match run(&node, case).await {
            Ok(()) => {
                println!("{}: {:.1} s", case.example.id, started.elapsed().as_secs_f32());
                reusable = Some((node, services));
            }
            Err(error) => {
                println!("{}: FAILED: {error:#}", case.example.id);
                failures.push(format!("{}: {error:#}", case.example.id));
            }
        }
    }
    ensure!(failures.is_empty(), "{} of {} failed:\n{}", failures.len(), cases.len(), failures.join("\n"));
    Ok(())
}

/// A lab with what the examples need: a name server and a DHCP server.
async fn lab_with_services() -> Result<(Lab, Service)> {
    let lab = Lab::new().await?;
    lab.dns().on().await?;
    let dhcp = lab.dhcp_on_back(100, "1h");
    dhcp.on().await?;
    Ok((lab, dhcp))
}

/// Records an example and its removal for `docs/features.md`.
async fn record_case(node: &ExampleNode, case: &Case, method: Method) -> Result<()> {
    let version = node.network_manager().await.context("the version of NetworkManager")?;
    for example in [Some(&case.example), case.removal.as_ref()].into_iter().flatten() {
        record(example, case, method, Some(version.clone())).append()?;
    }
    Ok(())
}

fn record(example: &Example, case: &Case, method: Method, network_manager: Option<String>) -> FeatureRecord {
    FeatureRecord {
        example: example.id.clone(),
        title: example.title.clone(),
        node: case.expectation.node.name().to_owned(),
        network_manager,
        method,
        reason: case.expectation.reason.clone(),
        core: case.expectation.core && example.id == case.example.id,
    }
}
