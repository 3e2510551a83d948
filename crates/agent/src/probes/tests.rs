//! When probes fail early and when they wait, on a simulated machine with a paused clock.

mod wire;

use std::sync::Mutex;

use futures::{FutureExt, future::BoxFuture};
use knmstate_api::{
    enactment::ProbeOutcome::{self, Failed as Bad, Passed},
    probe::{ProbePolicy, TcpProbe},
};
use knmstate_core::probes::{Check, Families, NodeReadiness, Observation};
use knmstate_host::{HostError, Operation};
use knmstate_simulated_host::{Fault, SimulatedHost, SimulatedMachine, Strikes};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{baseline::BaselineEntry, *};

const V4: Families = Families { v4: true, v6: false };
const GATEWAY: Check = Check::DefaultGateway { wanted: V4 };
const DEADLINE: Duration = Duration::from_mins(5);

fn document(value: Value) -> NetworkState {
    NetworkState::parse(value).expect("well-formed")
}

/// A machine with one NIC.
fn machine(rest: &Value) -> SimulatedMachine {
    let mut state = json!({
        "interfaces": [
            { "name": "eth0", "type": "ethernet", "state": "up", "ipv4": {
                "enabled": true, "dhcp": false, "address": [{ "ip": "192.0.2.9", "prefix-length": 24 }],
            } },
        ],
    });
    for (section, value) in rest.as_object().expect("a map") {
        state[section] = value.clone();
    }
    SimulatedMachine::builder("node").nic("eth0").initially(document(state)).build().expect("a machine")
}

fn default_route(address: &str, interface: &str) -> Value {
    let route = json!({
        "destination": "0.0.0.0/0", "next-hop-address": address, "next-hop-interface": interface,
    });
    json!({ "routes": { "config": [route] } })
}

fn no_default_route() -> NetworkState {
    let route = json!({ "destination": "0.0.0.0/0", "state": "absent" });
    document(json!({ "routes": { "config": [route] } }))
}

fn dhcp() -> NetworkState {
    let eth0 = json!({ "name": "eth0", "type": "ethernet", "ipv4": { "enabled": true, "dhcp": true, "address": [] } });
    document(json!({ "interfaces": [eth0] }))
}

fn probe(name: &str, check: Check, policy: ProbePolicy) -> Probe {
    Probe { name: name.to_owned(), check, policy, timeout: Duration::from_mins(2) }
}

fn required(name: &str, check: Check) -> Probe {
    probe(name, check, ProbePolicy::Required)
}

fn prober(machine: &SimulatedMachine) -> Prober<SimulatedHost> {
    Prober::new(machine.host(), None, PROBE_DNS_HOST)
}

/// The baseline if all probes had passed before the change.
fn all_good(machine: &SimulatedMachine, probes: &[Probe]) -> Baseline {
    let seen = Observation { outcome: Passed, families: V4 };
    let entries = probes.iter().map(|probe| BaselineEntry { probe: probe.clone(), seen, why: String::new() });
    Baseline::new(Arc::new(machine.state()), entries.collect())
}

fn outcomes(results: &[ProbeResult]) -> Vec<(&str, Option<ProbeOutcome>, Option<ProbeOutcome>)> {
    results.iter().map(|result| (&*result.name, result.before, result.after)).collect()
}

/// An API server that gives each of these responses once, and the last one for ever.
#[derive(Debug, Default)]
struct FakeApi {
    reach: Mutex<Vec<Option<Result<(), Unreachable>>>>,
    nodes: Mutex<Vec<NodeReadiness>>,
}

fn next<T: Clone>(answers: &Mutex<Vec<T>>) -> Option<T> {
    let mut answers = answers.lock().expect("not poisoned");
    if answers.len() > 1 { Some(answers.remove(0)) } else { answers.first().cloned() }
}

impl ApiEndpoint for FakeApi {
    fn address(&self) -> String {
        "https://10.96.0.1".to_owned()
    }

    fn reach(&self) -> BoxFuture<'_, Result<(), Unreachable>> {
        match next(&self.reach).flatten() {
            Some(answer) => std::future::ready(answer).boxed(),
            None => std::future::pending().boxed(),
        }
    }

    fn node(&self) -> BoxFuture<'_, Result<NodeReadiness, Unreachable>> {
        std::future::ready(next(&self.nodes).ok_or_else(|| Unreachable::because("the node is unknown")))
            .boxed()
    }
}

fn with_api(machine: &SimulatedMachine, api: FakeApi) -> Prober<SimulatedHost> {
    Prober::new(machine.host(), Some(Arc::new(api)), PROBE_DNS_HOST)
}

#[tokio::test(start_paused = true)]
async fn a_node_with_no_gateway_and_no_name_server_passes_at_once() {
    let machine = machine(&json!({}));
    let prober = prober(&machine);
    let probes = [
        probe(
            "default-gateway",
            Check::DefaultGateway { wanted: Families::NONE },
            ProbePolicy::IfPassingBefore,
        ),
        probe("name-servers", Check::NameServers, ProbePolicy::IfPassingBefore),
    ];
    let begun = Instant::now();
    let baseline = prober.baseline(&probes, &machine.state()).await;
    let before = [("default-gateway", Some(Bad), None), ("name-servers", Some(Bad), None)];
    assert_eq!(outcomes(&baseline.results()), before);
    assert_eq!(baseline.results()[0].message, "no default route is left");
    assert_eq!(baseline.results()[1].message, "no name server is configured");

    machine.arm(Operation::Observe, Strikes::Always, Fault::Hang);
    let results = prober.after(&probes, &baseline, DEADLINE).await.expect("nothing counts");
    assert_eq!(outcomes(&results), before);
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_permanent_loss_fails_at_once() {
    let machine = machine(&default_route("192.0.2.1", "eth0"));
    let probes = [
        required("default-gateway", GATEWAY),
        required("hanging", Check::Tcp(TcpProbe { host: "name.example".to_owned(), port: 1 })),
    ];
    let baseline = all_good(&machine, &probes);
    machine.change_behind_your_back(&no_default_route()).expect("a change");
    let begun = Instant::now();
    let failed = prober(&machine).after(&probes[..1], &baseline, DEADLINE).await.expect_err("no way out");
    assert_eq!(begun.elapsed(), Duration::from_secs(1), "a second reading, and no more");
    assert!(failed.cannot_pass);
    assert_eq!(failed.probe, "default-gateway");
    assert_eq!(
        failed.message,
        r#"probe "default-gateway" (before: 192.0.2.1 on eth0) failed 1 s after the change: no default route is left"#
    );
    assert_eq!(outcomes(&failed.results), [("default-gateway", Some(Passed), Some(Bad))]);

    let failed = prober(&machine).after(&probes[1..], &baseline, DEADLINE).await.expect_err("no name server");
    assert!(failed.cannot_pass);
    assert_eq!(
        failed.message,
        r#"probe "hanging" (tcp name.example:1) failed 1 s after the change: looking up name.example: no name server is configured"#
    );
}

#[tokio::test(start_paused = true)]
async fn a_loss_that_is_over_at_the_second_reading_is_none() {
    let machine = machine(&json!({}));
    let probes = [required("default-gateway", GATEWAY)];
    let baseline = all_good(&machine, &probes);
    let prober = prober(&machine);
    let back = async {
        sleep(Duration::from_millis(700)).await;
        machine.change_behind_your_back(&dhcp()).expect("a change");
    };
    let (ended, ()) = tokio::join!(prober.after(&probes, &baseline, Duration::from_secs(20)), back);
    let failed = ended.expect_err("there is no DHCP server");
    assert!(!failed.cannot_pass, "{failed:?}");
    assert_eq!(
        failed.message,
        r#"probe "default-gateway" failed: no answer within 20 s; last: no IPv4 default route yet"#
    );
}

#[tokio::test(start_paused = true)]
async fn a_loss_counts_only_when_another_reading_confirms_it() {
    let machine = machine(&json!({}));
    let probes = [required("default-gateway", GATEWAY)];
    let prober = prober(&machine);
    let begun = Instant::now();
    let blind = async {
        sleep(Duration::from_millis(100)).await;
        let gone = HostError::Unavailable { why: "it is being restarted".to_owned() };
        machine.arm(Operation::Observe, Strikes::Once, Fault::Fail(gone));
    };
    let baseline = Baseline::default();
    let (ended, ()) = tokio::join!(prober.after(&probes, &baseline, DEADLINE), blind);
    assert!(ended.expect_err("no way out").cannot_pass);
    // A failed reading of two seconds is no loss; after that the loss has to last for another second.
    assert!(begun.elapsed() >= Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_may_still_appear_is_waited_for_until_it_cannot() {
    let machine = machine(&json!({ "dns-resolver": { "config": { "server": ["192.0.2.53"] } } }));
    let probes = [required("name-servers", Check::NameServers)];
    let baseline = all_good(&machine, &probes);
    let nothing = document(json!({ "dns-resolver": { "config": { "server": [] } } }));
    machine.change_behind_your_back(&nothing).expect("a change");
    machine.change_behind_your_back(&dhcp()).expect("a change");
    let prober = prober(&machine);
    let begun = Instant::now();
    let give_up = async {
        sleep(Duration::from_secs(30)).await;
        let eth0 = json!({ "name": "eth0", "type": "ethernet", "ipv4": { "enabled": false } });
        machine.change_behind_your_back(&document(json!({ "interfaces": [eth0] }))).expect("a change");
    };
    let (ended, ()) = tokio::join!(prober.after(&probes, &baseline, DEADLINE), give_up);
    let failed = ended.expect_err("no name server appeared");
    let elapsed = begun.elapsed();
    assert!(failed.cannot_pass, "{failed:?}");
    assert!((Duration::from_secs(31)..Duration::from_secs(33)).contains(&elapsed), "{elapsed:?}");
    assert!(failed.message.contains("(before: 192.0.2.53)"), "{failed:?}");
    assert!(failed.message.ends_with("after the change: no name server is configured"), "{failed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_probe_ends_with_its_own_timeout_or_with_that_of_all() {
    let machine = machine(&json!({}));
    let refused = || Some(Err(Unreachable::because("connection refused")));
    for (timeout, deadline, expected) in [(30, 300, 30), (120, 45, 45)] {
        let server = FakeApi { reach: Mutex::new(vec![refused()]), ..Default::default() };
        let mut api = required("api-server", Check::ApiServer);
        api.timeout = Duration::from_secs(timeout);
        let begun = Instant::now();
        let failed = with_api(&machine, server)
            .after(&[api], &Baseline::default(), Duration::from_secs(deadline))
            .await
            .expect_err("the API server refuses");
        assert_eq!(begun.elapsed(), Duration::from_secs(expected));
        assert!(!failed.cannot_pass);
        assert_eq!(
            failed.message,
            format!(
                r#"probe "api-server" (https://10.96.0.1) failed: no answer within {expected} s; last: connection refused"#
            )
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_without_a_route_to_it_is_not_waited_for() {
    let no_route = Some(Err(Unreachable { why: "no route to the address".to_owned(), no_route: true }));
    let api = || FakeApi { reach: Mutex::new(vec![no_route.clone()]), ..Default::default() };
    let probes = [required("api-server", Check::ApiServer)];

    let cut = machine(&json!({}));
    let failed = with_api(&cut, api()).after(&probes, &Baseline::default(), DEADLINE).await;
    let failed = failed.expect_err("there is no route");
    assert!(failed.cannot_pass);
    assert_eq!(
        failed.message,
        r#"probe "api-server" (https://10.96.0.1) failed 1 s after the change: no route to the address"#
    );

    // With a route the error may be older than the route, so the probe goes on.
    let routed = machine(&default_route("192.0.2.1", "eth0"));
    let failed = with_api(&routed, api()).after(&probes, &Baseline::default(), DEADLINE).await;
    assert!(!failed.expect_err("it was never reached").cannot_pass);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_hangs_is_followed_by_another() {
    let machine = machine(&json!({}));
    let api = FakeApi { reach: Mutex::new(vec![None, Some(Ok(()))]), ..Default::default() };
    let begun = Instant::now();
    let probes = [required("api-server", Check::ApiServer)];
    let results = with_api(&machine, api).after(&probes, &Baseline::default(), DEADLINE).await;
    assert_eq!(outcomes(&results.expect("reached")), [("api-server", None, Some(Passed))]);
    assert_eq!(begun.elapsed(), Duration::from_secs(6));
}

#[tokio::test(start_paused = true)]
async fn a_node_is_ready_when_its_kubelet_has_reported_after_the_change() {
    let at = |second| Timestamp::from_second(second).expect("in range");
    let renewed = |second| NodeReadiness { not_ready: None, renewed: Some(at(second)) };
    let probes = [required("node-readiness", Check::NodeReadiness)];
    let machine = machine(&json!({}));

    let api =
        FakeApi { nodes: Mutex::new(vec![renewed(95), renewed(95), renewed(105)]), ..Default::default() };
    let reporting = with_api(&machine, api);
    let baseline = reporting.baseline(&probes, &machine.state()).await;
    assert_eq!(
        outcomes(&baseline.results()),
        [("node-readiness", Some(Passed), None)],
        "before the change an old report is enough"
    );
    let begun = Instant::now();
    let results = reporting.after_change_at(at(100), &probes, &baseline, DEADLINE).await.expect("ready");
    assert_eq!(outcomes(&results), [("node-readiness", Some(Passed), Some(Passed))]);
    assert_eq!(begun.elapsed(), Duration::from_secs(1));

    let api = FakeApi { nodes: Mutex::new(vec![renewed(95)]), ..Default::default() };
    let silent = with_api(&machine, api).after_change_at(at(100), &probes, &baseline, DEADLINE).await;
    let message = silent.expect_err("no report after the change").message;
    assert!(
        message.starts_with(r#"probe "node-readiness" failed: not ready within 120 s; last: its kubelet"#),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_first_failure_ends_all_probes() {
    let machine = machine(&default_route("192.0.2.1", "eth0"));
    machine.change_behind_your_back(&no_default_route()).expect("a change");
    let probes = [
        required("api-server", Check::ApiServer),
        required("default-gateway", GATEWAY),
        required("node-readiness", Check::NodeReadiness),
    ];
    let node = NodeReadiness { not_ready: None, renewed: None };
    let api = FakeApi { nodes: Mutex::new(vec![node]), ..Default::default() };
    let begun = Instant::now();
    let failed = with_api(&machine, api).after(&probes, &Baseline::default(), DEADLINE).await;
    let failed = failed.expect_err("no way out");
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
    assert_eq!(failed.probe, "default-gateway");
    assert_eq!(
        outcomes(&failed.results),
        [
            ("api-server", None, None),
            ("default-gateway", None, Some(Bad)),
            ("node-readiness", None, Some(Passed))
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_cannot_be_read_does_not_fail_early() {
    let machine = machine(&json!({}));
    let gone = HostError::Unavailable { why: "it is being restarted".to_owned() };
    machine.arm(Operation::Observe, Strikes::Always, Fault::Fail(gone));
    let probes = [required("default-gateway", GATEWAY)];
    let after = || async {
        prober(&machine)
            .after(&probes, &Baseline::default(), Duration::from_mins(1))
            .await
            .expect_err("no gateway")
    };
    let failed = after().await;
    assert!(!failed.cannot_pass);
    assert!(
        failed.message.contains("within 60 s; last: the network of this node cannot be read: "),
        "{failed:?}"
    );

    machine.clear_faults();
    machine.arm(Operation::Observe, Strikes::Always, Fault::Hang);
    assert!(after().await.message.contains("not done after 10s"));
}

#[tokio::test(start_paused = true)]
async fn the_baseline_takes_three_seconds_at_most() {
    let machine = machine(&json!({}));
    let hanging = with_api(&machine, FakeApi { reach: Mutex::new(vec![None]), ..Default::default() });
    let probes: Vec<_> = (0..40).map(|number| required(&format!("api-{number}"), Check::ApiServer)).collect();
    let begun = Instant::now();
    let baseline = hanging.baseline(&probes, &machine.state()).await;
    assert_eq!(begun.elapsed(), Duration::from_secs(3));
    assert!(
        baseline.results().iter().all(|result| result.before == Some(Bad) && result.message == "no answer")
    );
}

#[tokio::test(start_paused = true)]
async fn probes_can_run_in_a_task_of_their_own() {
    let machine = machine(&default_route("192.0.2.1", "eth0"));
    let probes = [required("default-gateway", GATEWAY), required("name-servers", Check::NameServers)];
    let task = async move {
        let prober = prober(&machine);
        machine.change_behind_your_back(&no_default_route()).expect("a change");
        let baseline = prober.baseline(&probes, &machine.state()).await;
        prober.after(&probes, &baseline, DEADLINE).await
    };
    let failed = tokio::spawn(task).await.expect("the task ended").expect_err("there is nothing");
    assert!(failed.cannot_pass);
}
