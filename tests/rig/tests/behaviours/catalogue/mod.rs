//! Every example of `examples/` is applied to a real kernel, looked at there, and taken away again. What was seen to work
//! makes `docs/features.md`.
//!
//! `KNMSTATE_EXAMPLES=bond/,vlan/on-card` tries only those whose name has one of these in it.

mod check;
mod complete;
mod course;
mod example;
mod keyfile;
mod reported;
mod stage;
mod through_cluster;

use anyhow::{Context as _, Result, ensure};
use rig::{
    Lab, Userland,
    features::{Seen, Way},
    parts,
    services::Service,
};
use tokio::time::Instant;

use example::{Case, Example, NodeKind, cases};
use stage::{Node, Stage};
use through_cluster::Cluster;

#[tokio::test(flavor = "multi_thread")]
async fn standalone_in_namespaces() -> Result<()> {
    standalone(Node::Usual(NodeKind::Namespaces), of_kind(NodeKind::Namespaces)?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn standalone_on_a_full_kernel_first_half() -> Result<()> {
    standalone(Node::Usual(NodeKind::FullKernel), every_second(of_kind(NodeKind::FullKernel)?, 0)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn standalone_on_a_full_kernel_second_half() -> Result<()> {
    standalone(Node::Usual(NodeKind::FullKernel), every_second(of_kind(NodeKind::FullKernel)?, 1)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn standalone_with_open_vswitch() -> Result<()> {
    standalone(Node::Usual(NodeKind::OpenVswitch), of_kind(NodeKind::OpenVswitch)?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn standalone_with_virtual_functions() -> Result<()> {
    standalone(Node::Usual(NodeKind::SrIov), of_kind(NodeKind::SrIov)?).await
}

// Nodes of namespaces have the NetworkManager of Debian 12, the usual full kernel that of Debian 13.

#[tokio::test(flavor = "multi_thread")]
async fn core_with_the_network_manager_of_debian_12() -> Result<()> {
    let cases = chosen(|case| case.expectation.core && case.expectation.node == NodeKind::FullKernel)?;
    standalone(Node::With(Userland::Debian12), cases).await
}

#[tokio::test(flavor = "multi_thread")]
async fn core_with_the_network_manager_of_debian_13() -> Result<()> {
    let cases = chosen(|case| case.expectation.core && case.expectation.node == NodeKind::Namespaces)?;
    standalone(Node::With(Userland::Debian13), cases).await
}

#[tokio::test(flavor = "multi_thread")]
async fn core_with_the_network_manager_of_debian_14() -> Result<()> {
    standalone(Node::With(Userland::Debian14), chosen(|case| case.expectation.core)?).await
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
    let wanted = parts::wanted_examples().unwrap_or_default();
    let mut cases = cases()?;
    let is_wanted = |case: &Case| wanted.split(',').any(|part| case.example.id.contains(part));
    cases.retain(|case| is_meant(case) && is_wanted(case));
    Ok(cases)
}

fn every_second(cases: Vec<Case>, from: usize) -> Vec<Case> {
    cases.into_iter().skip(from).step_by(2).collect()
}

async fn standalone(node: Node, cases: Vec<Case>) -> Result<()> {
    let start = async |lab: Lab| Stage::start(&lab, node).await;
    let walk = async |stage: &Stage, case: &Case| {
        course::walk(stage, case).await?;
        note(stage, case, Way::Standalone).await
    };
    one_after_the_other(cases, start, walk).await
}

async fn through_cluster(kind: NodeKind) -> Result<()> {
    let cases = chosen(|case| case.expectation.cluster && case.expectation.node == kind)?;
    let start = async |lab: Lab| Cluster::start(&lab, Node::Usual(kind)).await;
    let walk = async |cluster: &Cluster, case: &Case| {
        cluster.walk(case).await?;
        note(&cluster.stage, case, Way::Cluster).await
    };
    one_after_the_other(cases, start, walk).await
}

/// One that has failed may leave anything behind: the next one gets a new node.
async fn one_after_the_other<T>(
    cases: Vec<Case>,
    start: impl AsyncFn(Lab) -> Result<T>,
    walk: impl AsyncFn(&T, &Case) -> Result<()>,
) -> Result<()> {
    let mut failures = Vec::new();
    let mut at_hand = None;
    for case in &cases {
        let (on, services) = if let Some(at_hand) = at_hand.take() {
            at_hand
        } else {
            let (lab, services) = lab_with_services().await?;
            (start(lab).await?, services)
        };
        let begun = Instant::now();
        match walk(&on, case).await {
            Ok(()) => {
                println!("{}: {:.1} s", case.example.id, begun.elapsed().as_secs_f32());
                at_hand = Some((on, services));
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

/// What examples take for granted: name servers that answer, and somebody who lends addresses.
async fn lab_with_services() -> Result<(Lab, Service)> {
    let lab = Lab::new().await?;
    lab.dns().on().await?;
    let lender = lab.lender(100, "1h");
    lender.on().await?;
    Ok((lab, lender))
}

/// Notes an example, and the one that took it away again, for `docs/features.md`.
async fn note(stage: &Stage, case: &Case, way: Way) -> Result<()> {
    let version = stage.network_manager().await.context("the version of NetworkManager")?;
    for example in [Some(&case.example), case.removal.as_ref()].into_iter().flatten() {
        seen(example, case, way, Some(version.clone())).note()?;
    }
    Ok(())
}

fn seen(example: &Example, case: &Case, way: Way, network_manager: Option<String>) -> Seen {
    Seen {
        example: example.id.clone(),
        title: example.title.clone(),
        node: case.expectation.node.name().to_owned(),
        network_manager,
        way,
        because: case.expectation.because.clone(),
        core: case.expectation.core && example.id == case.example.id,
    }
}
