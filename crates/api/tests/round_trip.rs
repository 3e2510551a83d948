//! Objects as users and tools write them: read, understood, and written back the same.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use knmstate_api::{
    Drift, Mode, NMState, NodeNetworkConfigurationEnactment, NodeNetworkConfigurationPolicy,
    NodeNetworkState, OnDelete, Permit, Persistence,
    enactment::Disruption,
    nmstate::LogLevel,
    probe::{BuiltInProbe, LeaseFamily, ProbePolicy},
    reasons,
    rollout::OnFailure,
};
use kube::{Resource, core::ResourceExt};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

fn read<Kind: DeserializeOwned>(yaml: &str) -> Kind {
    serde_saphyr::from_str(yaml).unwrap_or_else(|error| panic!("{error}\n{yaml}"))
}

/// Reads an object and checks that what is written back is the same, in the version our clients speak.
fn round_trip<Kind>(yaml: &str) -> Kind
where
    Kind: DeserializeOwned + Serialize + Resource<DynamicType = ()>,
{
    let object: Kind = read(yaml);
    let mut expected: Value = read(yaml);
    expected["apiVersion"] = json!(Kind::api_version(&()));
    assert_eq!(serde_json::to_value(&object).unwrap(), expected, "{yaml}");
    object
}

#[test]
fn a_policy_of_today() {
    let policy: NodeNetworkConfigurationPolicy = round_trip(
        r#"
apiVersion: nmstate.io/v1beta1
kind: NodeNetworkConfigurationPolicy
metadata:
  name: bridge-on-default-route
  generation: 4
spec:
  nodeSelector:
    node-role.kubernetes.io/worker: ""
  maxUnavailable: 25%
  capture:
    default-gw: routes.running.destination=="0.0.0.0/0"
  desiredState:
    interfaces:
    - name: br1
      type: linux-bridge
      state: up
      bridge:
        port:
        - name: "{{ capture.default-gw.routes.running.0.next-hop-interface }}"
status:
  unavailableNodeCountMap: {"4": 2}
  conditions:
  - type: Progressing
    status: "True"
    reason: ConfigurationProgressing
    message: Policy is progressing 0/3 nodes finished
    lastHeartbeatTime: "2026-01-01T12:00:00Z"
    lastTransitionTime: "2026-01-01T12:00:00Z"
"#,
    );
    assert_eq!(policy.name_any(), "bridge-on-default-route");
    assert_eq!(policy.spec.node_selector["node-role.kubernetes.io/worker"], "");
    assert_eq!(policy.spec.max_unavailable, Some(IntOrString::String("25%".to_owned())));
    assert_eq!(policy.spec.capture.len(), 1);
    assert!(policy.status.conditions.is_true(reasons::policy::PROGRESSING));
    assert_eq!(policy.status.unavailable_node_count_map["4"], 2);
    // What it does not say means what it has always meant.
    assert_eq!(policy.spec.mode, Mode::Apply);
    assert_eq!(policy.spec.on_delete, OnDelete::Keep);
    assert_eq!(policy.spec.rollout, None);
    assert!(policy.spec.probes.is_empty());
}

#[test]
fn a_policy_with_everything() {
    let policy: NodeNetworkConfigurationPolicy = round_trip(
        r#"
apiVersion: nmstate.io/v1
kind: NodeNetworkConfigurationPolicy
metadata:
  name: storage-vlan
spec:
  nodeLabelSelector:
    matchLabels:
      rack: r1
    matchExpressions:
    - key: node-role.kubernetes.io/control-plane
      operator: DoesNotExist
  values:
    prefix: 24
    servers: [192.0.2.1, 192.0.2.2]
  nodeValues:
    worker-1: {ip: 192.0.2.11}
    worker-2: {ip: 192.0.2.12, prefix: 25}
  maxUnavailable: 2
  rollout:
    maxFailures: 5%
    canary:
      count: 1
      soak: 10m
    paused: true
    onFailure: Revert
    progressDeadline: 1h30m
  probes:
  - name: storage
    ping: {host: 192.0.2.1, interface: eth1.30}
  - name: target
    policy: IfPassingBefore
    timeout: 30s
    tcp: {host: iscsi.example.com, port: 3260}
  - name: registry
    http: {url: "https://registry.example.com/v2/", expectedStatus: 401, insecureSkipTLSVerify: true}
  - name: names
    dns: {name: registry.example.com, server: "2001:db8::53"}
  - name: lease
    timeout: 20s
    lease: {interface: eth1, family: ipv4}
  - name: gateway
    policy: Disabled
    builtIn: DefaultGateway
  drift: Correct
  onDelete: Restore
  mode: Plan
  desiredState:
    interfaces:
    - name: eth1.30
      ipv4:
        address:
        - ip: "{{ values.ip }}"
          prefix-length: "{{ values.prefix }}"
"#,
    );
    let spec = policy.spec;
    assert_eq!(spec.values["prefix"], 24);
    assert_eq!(spec.node_values["worker-2"]["prefix"], 25);
    assert_eq!(spec.max_unavailable, Some(IntOrString::Int(2)));
    let rollout = spec.rollout.unwrap();
    assert!(rollout.paused);
    assert_eq!(rollout.on_failure, OnFailure::Revert);
    assert_eq!(rollout.canary.unwrap().soak.unwrap().as_std().as_secs(), 600);
    assert_eq!(rollout.progress_deadline.unwrap().as_std().as_secs(), 5400);
    let policies: Vec<_> = spec.probes.iter().map(|probe| probe.policy).collect();
    assert_eq!(
        policies,
        [
            ProbePolicy::Required,
            ProbePolicy::IfPassingBefore,
            ProbePolicy::Required,
            ProbePolicy::Required,
            ProbePolicy::Required,
            ProbePolicy::Disabled
        ]
    );
    assert_eq!(spec.probes[1].tcp.as_ref().unwrap().port, 3260);
    assert_eq!(spec.probes[4].lease.as_ref().unwrap().family, LeaseFamily::Ipv4);
    assert_eq!(spec.probes[5].built_in, Some(BuiltInProbe::DefaultGateway));
    assert_eq!((spec.drift, spec.on_delete, spec.mode), (Drift::Correct, OnDelete::Restore, Mode::Plan));
}

#[test]
fn an_enactment_of_kubernetes_nmstate() {
    let enactment: NodeNetworkConfigurationEnactment = round_trip(
        r#"
apiVersion: nmstate.io/v1beta1
kind: NodeNetworkConfigurationEnactment
metadata:
  name: worker-1.p1
  labels: {nmstate.io/node: worker-1, nmstate.io/policy: p1}
  ownerReferences: [{apiVersion: v1, kind: Node, name: worker-1, uid: 8f1c}]
status:
  policyGeneration: 4
  retryCount: {"4": 1}
  features: [static-route, ovn-mapping]
  desiredState: {interfaces: [{name: br1}]}
  desiredStateMetaInfo: {version: "0", time: "2026-01-01T12:00:00Z"}
  capturedStates:
    default-gw:
      state: {routes: {running: []}}
      metaInfo: {version: "0", time: "2026-01-01T12:00:00Z"}
  conditions:
  - {type: Progressing, status: "True", reason: Retrying, message: Retrying 2/5}
  - {type: Aborted, status: "False", reason: SuccessfullyConfigured}
"#,
    );
    assert_eq!(enactment.spec, None);
    assert_eq!(enactment.status.policy_generation, 4);
    assert_eq!(enactment.status.retry_count["4"], 1);
    assert_eq!(enactment.status.conditions.first_true().unwrap().type_, reasons::enactment::PROGRESSING);
}

#[test]
fn an_order_and_its_result() {
    let enactment: NodeNetworkConfigurationEnactment = round_trip(
        r#"
apiVersion: nmstate.io/v1
kind: NodeNetworkConfigurationEnactment
metadata: {name: worker-1.p1}
spec:
  nodeName: worker-1
  policyName: p1
  policyUID: 0b5b7a0a-7a43-4a9d-8b4e-0c5f6f4a8d11
  policyGeneration: 4
  permit: Apply
  capture: {default-gw: 'routes.running.destination=="0.0.0.0/0"'}
  desiredState: {interfaces: [{name: br1}]}
  probes: [{name: storage, ping: {host: 192.0.2.1}}]
  deadlines: {transaction: 8m, probes: 2m}
  drift: Correct
  onDelete: Restore
status:
  policyGeneration: 4
  policyUID: 0b5b7a0a-7a43-4a9d-8b4e-0c5f6f4a8d11
  disruption: LinkBounce
  plan: {time: "2026-01-01T12:00:00Z", difference: {interfaces: [{name: br1, mtu: 9000}]}}
  drift:
    since: "2026-01-01T12:00:00Z"
    differences: [{path: "interfaces[br1].mtu", desired: "9000", actual: "1500"}]
    corrections: 2
    nextCorrectionTime: "2026-01-01T12:05:00Z"
  probes: [{name: storage, before: Passed, after: Failed, message: no answer from 192.0.2.1}]
  timings:
    startTime: "2026-01-01T12:00:00Z"
    completionTime: "2026-01-01T12:00:09Z"
    prepareMilliseconds: 0
    baselineMilliseconds: 900
    applyMilliseconds: 3100
    probeMilliseconds: 5000
    concludeMilliseconds: 40
"#,
    );
    let order = enactment.spec.unwrap();
    assert_eq!((order.permit, order.policy_generation), (Permit::Apply, 4));
    let deadlines = order.deadlines.unwrap();
    assert!(deadlines.probes.unwrap() < deadlines.transaction.unwrap());
    assert!(Disruption::InPlace < enactment.status.disruption.unwrap());
}

#[test]
fn a_node_state() {
    let state: NodeNetworkState = round_trip(
        r#"
apiVersion: nmstate.io/v1
kind: NodeNetworkState
metadata: {name: worker-1}
spec:
  nodeName: worker-1
  managed: true
  desiredState: {interfaces: [{name: eth1, state: up}]}
status:
  currentState: {interfaces: [], routes: {running: [], config: []}}
  lastSuccessfulUpdateTime: "2026-01-01T12:00:00Z"
  handlerNmstateVersion: 2.2.62
  hostNetworkManagerVersion: 1.42.4
"#,
    );
    assert_eq!(state.spec.managed, Some(true));
    assert_eq!(state.status.handler_nmstate_version, "2.2.62");
}

#[test]
fn an_nmstate() {
    let nmstate: NMState = round_trip(
        r#"
apiVersion: nmstate.io/v1beta1
kind: NMState
metadata: {name: nmstate}
spec:
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions: [{key: network, operator: Exists}]
  nodeSelector: {}
  tolerations: [{operator: Exists}]
  infraNodeSelector: {node-role.kubernetes.io/infra: ""}
  infraTolerations: []
  selfSignConfiguration: {caRotateInterval: 8760h0m0s}
  probeConfiguration: {dns: {host: intranet.example.com}}
  metricsConfiguration: {bindAddress: "0"}
  logLevel: debug
  allowNodeStateConfiguration: true
  allowDispatchScripts: true
  persistence: Ephemeral
status:
  conditions: [{type: Available, status: "True", reason: SuccessfullyDeployed}]
"#,
    );
    assert_eq!(nmstate.spec.probe_configuration.dns.host, "intranet.example.com");
    assert_eq!(nmstate.spec.log_level, LogLevel::Debug);
    assert_eq!(nmstate.spec.persistence.as_str().parse(), Ok(Persistence::Ephemeral));
    // Present but empty is not the same as absent: it replaces the default.
    assert_eq!(nmstate.spec.infra_tolerations, Some(vec![]));
    assert!(nmstate.spec.node_selector.unwrap().is_empty());
}

#[test]
fn nothing_but_a_name_is_enough() {
    let nmstate: NMState = read("{apiVersion: nmstate.io/v1, kind: NMState, metadata: {name: x1}}");
    assert_eq!(nmstate.spec.probe_configuration.dns.host, "root-servers.net");
    assert_eq!(nmstate.spec.metrics_configuration.bind_address, ":8089");
    assert_eq!(nmstate.spec.log_level, LogLevel::Info);
    assert!(!nmstate.spec.allow_node_state_configuration);
    assert!(!nmstate.spec.allow_dispatch_scripts);
    assert_eq!(nmstate.spec.persistence, Persistence::Persistent);

    round_trip::<NMState>("{apiVersion: nmstate.io/v1, kind: NMState, metadata: {name: x1}}");
    round_trip::<NodeNetworkState>(
        "{apiVersion: nmstate.io/v1, kind: NodeNetworkState, metadata: {name: x1}}",
    );
    round_trip::<NodeNetworkConfigurationPolicy>(
        "{apiVersion: nmstate.io/v1, kind: NodeNetworkConfigurationPolicy, metadata: {name: x1}}",
    );
    round_trip::<NodeNetworkConfigurationEnactment>(
        "{apiVersion: nmstate.io/v1, kind: NodeNetworkConfigurationEnactment, metadata: {name: x1.p}}",
    );
}

#[test]
fn what_newer_versions_add_does_not_matter() {
    let policy: NodeNetworkConfigurationPolicy = read(
        "{apiVersion: nmstate.io/v1, kind: NodeNetworkConfigurationPolicy, metadata: {name: x1}, \
         spec: {somethingNew: 1, maxUnavailable: asdf}, status: {more: {}}}",
    );
    assert_eq!(policy.spec.max_unavailable, Some(IntOrString::String("asdf".to_owned())));
}
