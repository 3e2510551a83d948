//! `knmstate check`: whether an installation works.

use std::{collections::BTreeSet, io::Write, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result};
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Pod};
use knmstate_api::{NMState, NodeNetworkState};
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use tokio::time::{Instant, sleep};

use super::{on_runtime, operator::Place};

/// How often it is looked again.
const PAUSE: Duration = Duration::from_secs(1);

/// Check whether an installation works.
///
/// It does when the NMState is Available, every handler that should run does, and every node with a handler reports its
/// network. Exit code 1 if not.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    place: Place,

    /// How long to wait until it does, in seconds; 0 to look once.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    timeout: u64,
}

/// What was seen of an installation.
#[derive(Clone, Debug, Default)]
struct Observed {
    nmstates: Vec<NMState>,
    /// How many nodes should run a handler and how many handlers are ready; `None` without a DaemonSet.
    handlers: Option<(i32, i32)>,
    /// The nodes that have the pod of a handler.
    with_handler: BTreeSet<String>,
    /// The nodes that have a NodeNetworkState.
    reporting: BTreeSet<String>,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    good: bool,
    text: String,
}

fn good(text: impl Into<String>) -> Finding {
    Finding { good: true, text: text.into() }
}

fn bad(text: impl Into<String>) -> Finding {
    Finding { good: false, text: text.into() }
}

pub fn run(args: Args, out: &mut impl Write) -> Result<ExitCode> {
    let findings = on_runtime(check(args))?;
    let all_good = findings.iter().all(|finding| finding.good);
    for Finding { good, text } in findings {
        let word = if good { "ok" } else { "failed" };
        writeln!(out, "{word:<8}{text}").context("cannot write to standard output")?;
    }
    Ok(if all_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Looks until all is good or the time is over.
async fn check(args: Args) -> Result<Vec<Finding>> {
    let client = args.place.client().await?;
    let start = Instant::now();
    loop {
        let findings = match observe(&client, &args.place).await {
            Ok(observed) => findings(&observed),
            Err(error) => vec![bad(format!("{error:#}"))],
        };
        let over = start.elapsed() >= Duration::from_secs(args.timeout);
        if over || findings.iter().all(|finding| finding.good) {
            return Ok(findings);
        }
        sleep(PAUSE).await;
    }
}

async fn observe(client: &Client, place: &Place) -> Result<Observed> {
    let config = place.config();
    let handler = config.settings(false).handler_workload();
    let everything = ListParams::default();
    let nmstates: Api<NMState> = Api::all(client.clone());
    let nmstates = nmstates.list(&everything).await.context("cannot list NMStates")?.items;
    let workloads: Api<DaemonSet> = Api::namespaced(client.clone(), &config.namespace);
    let workload = workloads.get_opt(&handler).await.context("cannot read the DaemonSet of handlers")?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), &config.namespace);
    let of_handler = ListParams::default().labels(&format!("name={handler}"));
    let pods = pods.list(&of_handler).await.context("cannot list the pods of handlers")?;
    let states: Api<NodeNetworkState> = Api::all(client.clone());
    let states = states.list_metadata(&everything).await.context("cannot list NodeNetworkStates")?;
    Ok(Observed {
        nmstates,
        handlers: workload.and_then(|workload| {
            let current = workload.metadata.generation;
            let status = workload.status?;
            // What it says of an earlier version of itself counts for nothing.
            (status.observed_generation == current)
                .then_some((status.desired_number_scheduled, status.number_ready))
        }),
        with_handler: pods.into_iter().filter_map(|pod| pod.spec?.node_name).collect(),
        reporting: states.into_iter().map(|state| state.name_any()).collect(),
    })
}

fn findings(observed: &Observed) -> Vec<Finding> {
    vec![nmstate(&observed.nmstates), handlers(observed.handlers), reports(observed)]
}

fn nmstate(nmstates: &[NMState]) -> Finding {
    let Some(nmstate) = nmstates.first() else {
        return bad("there is no NMState; node networking is off until one is created");
    };
    let name = nmstate.name_any();
    let conditions = &nmstate.status.conditions;
    if conditions.is_true("Available") {
        return good(format!("NMState {name} is Available"));
    }
    let reported = conditions.first_true();
    let reported = reported.map_or("the operator has not said anything yet", |condition| &condition.message);
    bad(format!("NMState {name} is not Available: {}", reported.replace('\n', "; ")))
}

fn handlers(handlers: Option<(i32, i32)>) -> Finding {
    match handlers {
        None => bad("the DaemonSet of handlers is not there yet"),
        Some((0, _)) => {
            bad("no node is to run a handler; see nodeSelector, affinity and tolerations of the NMState")
        }
        Some((wanted, ready)) if ready < wanted => bad(format!("{ready} of {wanted} handlers are ready")),
        Some((wanted, _)) => good(format!("{wanted} of {wanted} handlers are ready")),
    }
}

fn reports(observed: &Observed) -> Finding {
    let silent: Vec<&str> =
        observed.with_handler.difference(&observed.reporting).map(String::as_str).collect();
    match (silent.as_slice(), observed.with_handler.len()) {
        (_, 0) => bad("no node has a handler"),
        ([], count) => good(format!("{count} of {count} nodes report their network")),
        (silent, _) => {
            bad(format!("these nodes have a handler but no NodeNetworkState: {}", silent.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use knmstate_api::{ConditionStatus, NMStateSpec};

    use super::*;

    fn nmstate_that_says(type_: &str, message: &str) -> NMState {
        let mut nmstate = NMState::new("nmstate", NMStateSpec::default());
        let conditions = &mut nmstate.status.conditions;
        for known in ["Available", "Progressing", "Degraded"] {
            let status = if known == type_ { ConditionStatus::True } else { ConditionStatus::False };
            conditions.set(known, status, "Reason", message, super::super::now());
        }
        nmstate
    }

    fn nodes(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn all_is_well_when_every_node_reports() {
        let observed = Observed {
            nmstates: vec![nmstate_that_says("Available", "")],
            handlers: Some((2, 2)),
            with_handler: nodes(&["a", "b"]),
            reporting: nodes(&["a", "b", "one without a handler"]),
        };
        let found = findings(&observed);
        assert!(found.iter().all(|finding| finding.good), "{found:?}");
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn each_failure_is_reported() {
        let lacking = |observed: &Observed| -> Vec<String> {
            findings(observed)
                .into_iter()
                .filter(|finding| !finding.good)
                .map(|finding| finding.text)
                .collect()
        };
        assert_eq!(
            lacking(&Observed::default()),
            [
                "there is no NMState; node networking is off until one is created",
                "the DaemonSet of handlers is not there yet",
                "no node has a handler",
            ]
        );
        let observed = Observed {
            nmstates: vec![nmstate_that_says("Progressing", "one\ntwo")],
            handlers: Some((3, 1)),
            with_handler: nodes(&["a", "b", "c"]),
            reporting: nodes(&["b"]),
        };
        assert_eq!(
            lacking(&observed),
            [
                "NMState nmstate is not Available: one; two",
                "1 of 3 handlers are ready",
                "these nodes have a handler but no NodeNetworkState: a, c",
            ]
        );
    }
}
