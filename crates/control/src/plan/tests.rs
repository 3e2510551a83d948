mod unreadable;

use jiff::ToSpan as _;
use knmstate_api::reasons::policy::{AVAILABLE, DEGRADED};
use knmstate_client::watch::ObjectEvent;
use serde_json::{Value, json};

use super::*;
use crate::{
    cluster_state::{
        pools::SlimPool,
        testing::{changed, enactment, gone, node, pod, policy},
    },
    known_checks::KnownChecks,
};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// A cluster with these nodes, each with a handler.
fn cluster_with(nodes: &[&str]) -> ClusterState {
    let mut cluster = ClusterState::default();
    for name in nodes {
        cluster.observe_nodes(changed(node(name, &json!({"name": name}), "True")));
        cluster.observe_handlers(changed(pod(&format!("pod-{name}"), name)), NOW);
    }
    cluster
}

/// Judges and plans one policy.
pub(crate) fn plan_policy(cluster: &ClusterState, origin: &Origin, now: Timestamp) -> PolicyPlan {
    let refusal = question(cluster, origin).and_then(|question| question.refusal(&KnownChecks::default()));
    super::plan_policy(cluster, origin, refusal, now)
}

fn mtu(mtu: u32) -> Value {
    json!({"interfaces": [{"name": "eth1", "type": "ethernet", "state": "up", "mtu": mtu}]})
}

fn origin(name: &str) -> Origin {
    Origin::Policy(name.to_owned())
}

/// Applies a plan to the state, as if the API server had accepted the writes.
fn apply_plan(cluster: &mut ClusterState, name: &str, plan: PolicyPlan) {
    for (node, order) in plan.orders {
        cluster.enactments.decide(name, &node, order);
    }
    if let Some(status) = plan.status {
        cluster.status_written(name, status, "999".to_owned());
    }
}

fn permits(plan: &PolicyPlan) -> Vec<(&str, Permit)> {
    plan.orders.iter().map(|(node, order)| (&**node, order.permit)).collect()
}

#[test]
fn every_selected_node_gets_an_order_and_no_other() {
    let mut cluster = cluster_with(&["a", "b", "c"]);
    cluster.observe_nodes(changed(node("bare", &json!({"name": "bare"}), "True")));
    let spec = json!({"desiredState": mtu(1400), "maxUnavailable": 1,
        "nodeLabelSelector": {"matchExpressions": [{"key": "name", "operator": "NotIn", "values": ["c"]}]}});
    cluster.observe_policies(changed(policy("p", 1, &spec)));
    let first = plan_policy(&cluster, &origin("p"), NOW);
    assert_eq!(
        permits(&first),
        [("a", Permit::Apply), ("b", Permit::Wait)],
        "c is not selected, bare has no handler"
    );
    let order = &first.orders["a"];
    assert_eq!(order.policy_uid.as_deref(), Some("uid-of-p"));
    assert_eq!(order.permit_time, Some(whole_second(NOW)));
    assert_eq!(first.orders["b"].permit_time, None);
    let status = first.status.as_ref().unwrap();
    assert_eq!(status.conditions.first_true().unwrap().message, "Policy is progressing 0/2 nodes finished");
    assert_eq!(status.unavailable_node_count_map, [("1".to_owned(), 1)].into());

    apply_plan(&mut cluster, "p", first);
    assert_eq!(
        plan_policy(&cluster, &origin("p"), NOW + 5.seconds()),
        PolicyPlan::default(),
        "nothing is left to be done"
    );

    cluster.observe_nodes(changed(node("a", &json!({"name": "c"}), "True")));
    let moved = plan_policy(&cluster, &origin("p"), NOW);
    assert!(moved.removals.contains_key("a"), "it is not selected any more");
    assert_eq!(permits(&moved), [("b", Permit::Apply)], "and its slot is free");
    cluster.observe_policies(gone(policy("p", 1000, &json!({}))));
    let removed: Vec<_> = plan_policy(&cluster, &origin("p"), NOW).removals.into_keys().collect();
    assert_eq!(removed, ["a", "b"]);
}

#[test]
fn values_are_filled_in_for_each_node() {
    let mut cluster = cluster_with(&["a", "b"]);
    let spec = json!({"desiredState": {"hostname": {"config": "{{ node.name }}-{{ values.suffix }}"}},
        "nodeValues": {"a": {"suffix": "x"}, "b": {"suffix": "y"}}, "maxUnavailable": 2});
    cluster.observe_policies(changed(policy("p", 1, &spec.clone())));
    let both = plan_policy(&cluster, &origin("p"), NOW);
    let hostnames: Vec<_> = both
        .orders
        .values()
        .map(|order| order.desired_state.clone().unwrap().0["hostname"]["config"].clone())
        .collect();
    assert_eq!(hostnames, ["a-x", "b-y"]);
    apply_plan(&mut cluster, "p", both);
    // A node joins for which the policy has no values.
    cluster.observe_nodes(changed(node("c", &json!({}), "True")));
    cluster.observe_handlers(changed(pod("pod-c", "c")), NOW);
    let incomplete = plan_policy(&cluster, &origin("p"), NOW);
    assert!(incomplete.orders.is_empty(), "the others keep what they have");
    let status = incomplete.status.unwrap();
    let said = &status.conditions.first_true().unwrap();
    assert_eq!(said.type_, DEGRADED);
    assert!(said.message.contains("\"c\"") && said.message.contains("suffix"), "{}", said.message);
}

#[test]
fn of_two_policies_in_conflict_the_one_that_has_begun_goes_on() {
    let mut cluster = cluster_with(&["a", "b"]);
    cluster.observe_policies(changed(policy("small", 1, &json!({"desiredState": mtu(1400)}))));
    let begun = plan_policy(&cluster, &origin("small"), NOW);
    apply_plan(&mut cluster, "small", begun);
    cluster.observe_policies(changed(policy("big", 1, &json!({"desiredState": mtu(9000)}))));
    let refused = plan_policy(&cluster, &origin("big"), NOW);
    assert!(refused.orders.is_empty() && refused.removals.is_empty());
    let status = refused.status.unwrap();
    let said = status.conditions.first_true().unwrap();
    assert_eq!((&*said.type_, &*said.reason), (DEGRADED, "FailedToConfigure"));
    for word in ["small", "interfaces[eth1].mtu", "9000", "1400"] {
        assert!(said.message.contains(word), "{word} is not in: {}", said.message);
    }
    assert_eq!(plan_policy(&cluster, &origin("small"), NOW), PolicyPlan::default());
    cluster.observe_policies(gone(policy("small", 1000, &json!({}))));
    assert!(!plan_policy(&cluster, &origin("big"), NOW).orders.is_empty(), "there is no conflict any more");
}

#[test]
fn what_nmstate_cannot_parse_is_never_ordered() {
    let mut cluster = cluster_with(&["a"]);
    let spec = json!({"desiredState": {"interfaces": [{"name": "eth1", "type": "ethernet", "mtuu": 1400}]}});
    cluster.observe_policies(changed(policy("p", 1, &spec)));
    let refused = plan_policy(&cluster, &origin("p"), NOW);
    assert!(refused.orders.is_empty());
    let said = refused.status.unwrap().conditions.first_true().unwrap().message.clone();
    assert!(said.contains("mtuu"), "{said}");
}

#[test]
fn what_kubernetes_nmstate_has_left_is_taken_over_as_it_is() {
    let mut cluster = cluster_with(&["a", "b"]);
    let mut old = policy("p", 3, &json!({"desiredState": mtu(1400), "maxUnavailable": 1}));
    let available = |message: &str| {
        json!([{"type": "Available", "status": "True", "reason": "SuccessfullyConfigured", "message": message},
            {"type": "Degraded", "status": "False", "reason": "SuccessfullyConfigured"},
            {"type": "Progressing", "status": "False", "reason": "SuccessfullyConfigured"},
            {"type": "Ignored", "status": "False", "reason": "SuccessfullyConfigured"}])
    };
    old.status = serde_json::from_value(json!({
        "conditions": available("2/2 nodes successfully configured"),
        "unavailableNodeCountMap": {"2": 1}, "unavailableNodeCount": 0,
    }))
    .unwrap();
    cluster.observe_policies(changed(old));
    let done = json!({"policyGeneration": 3, "conditions": available("successfully reconciled")});
    for name in ["a", "b"] {
        cluster.observe_enactments(changed(enactment(name, "p", 1, None, &done)));
    }
    let taken = plan_policy(&cluster, &origin("p"), NOW);
    assert_eq!(
        permits(&taken),
        [("a", Permit::Apply), ("b", Permit::Apply)],
        "slots are for what is to be done"
    );
    let status = taken.status.clone().unwrap();
    assert_eq!(status.unavailable_node_count_map, BTreeMap::new());
    assert!(status.conditions.is_true(AVAILABLE));
    apply_plan(&mut cluster, "p", taken);
    assert_eq!(
        plan_policy(&cluster, &origin("p"), NOW),
        PolicyPlan::default(),
        "and the status of the policy stays"
    );
    let orphan = enactment("a", "gone", 1, None, &done);
    cluster.observe_enactments(changed(orphan));
    assert!(plan_policy(&cluster, &origin("gone"), NOW).removals.contains_key("a"));
}

#[test]
fn a_state_that_an_admin_manages_is_a_policy_of_one_node() {
    let mut cluster = cluster_with(&["a", "b"]);
    let object = json!({"apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkState",
        "metadata": {"name": "b", "uid": "s", "generation": 4},
        "spec": {"managed": true, "desiredState": mtu(1400)}});
    cluster.observe_node_states(changed(serde_json::from_value(object).unwrap()));
    let settings = json!({"apiVersion": "nmstate.io/v1", "kind": "NMState", "metadata": {"name": "nmstate"},
        "spec": {"allowNodeStateConfiguration": true}});
    cluster.observe_nmstates(changed(serde_json::from_value(settings).unwrap()));
    let origin = Origin::NodeState("b".to_owned());
    let first = plan_policy(&cluster, &origin, NOW);
    assert_eq!(permits(&first), [("b", Permit::Apply)]);
    let order = &first.orders["b"];
    assert_eq!((&*order.policy_name, order.policy_generation), ("node-network-state", 4));
    assert!(first.status.is_none(), "there is no policy with a status");
    cluster.observe_nmstates(ObjectEvent::All(Vec::new()));
    cluster.enactments.decide(origin.label(), "b", order.clone());
    assert!(plan_policy(&cluster, &origin, NOW).removals.contains_key("b"), "it is not allowed any more");
}

/// A node that its pool is not updating.
fn in_pool(name: &str, pool: &str, state: &str) -> crate::cluster_state::SlimNode {
    let mut node = node(name, &json!({"pool": pool}), "True");
    node.metadata.annotations =
        Some([("machineconfiguration.openshift.io/state".to_owned(), state.to_owned())].into());
    node
}

fn pool(name: &str, paused: bool) -> SlimPool {
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"paused": paused,
        "nodeSelector": {"matchLabels": {"pool": name}}}}))
    .unwrap()
}

fn said(plan: &PolicyPlan) -> &str {
    &plan.status.as_ref().unwrap().conditions.first_true().unwrap().message
}

#[test]
fn a_policy_goes_through_the_pools_of_its_nodes() {
    use Permit::{Apply, Wait};
    let mut cluster = cluster_with(&["a", "b", "c", "d"]);
    for (name, pool) in [("a", "one"), ("b", "one"), ("c", "two")] {
        cluster.observe_nodes(changed(in_pool(name, pool, "Done")));
    }
    let spec = json!({"desiredState": mtu(1400), "rollout": {"through": "MachineConfigPool"}});
    cluster.observe_policies(changed(policy("p", 1, &spec)));
    assert_eq!(
        plan_policy(&cluster, &origin("p"), NOW),
        PolicyPlan::default(),
        "the pools are not known yet"
    );

    cluster.set_pools(KnownPools::NoSuchKind);
    let refused = plan_policy(&cluster, &origin("p"), NOW);
    assert_eq!(
        (refused.orders.len(), refused.status.as_ref().unwrap().conditions.is_true(DEGRADED)),
        (0, true)
    );
    assert!(said(&refused).contains("this cluster has none"), "{}", said(&refused));

    cluster.observe_pools(ObjectEvent::All(Vec::new()));
    cluster.observe_pools(changed(pool("one", false)));
    cluster.observe_pools(changed(pool("two", true)));
    let first = plan_policy(&cluster, &origin("p"), NOW);
    assert_eq!(permits(&first), [("a", Apply), ("b", Wait), ("c", Wait), ("d", Wait)]);
    assert_eq!(
        said(&first),
        "Policy is progressing 0/4 nodes finished: MachineConfigPool \"two\" is paused; d: in no MachineConfigPool"
    );
    apply_plan(&mut cluster, "p", first);

    // A second policy finds that the first pool lacks a node already, and so does an update of the cluster.
    let other = json!({"desiredState": {"interfaces": [{"name": "eth2", "type": "ethernet"}]},
        "rollout": {"through": "MachineConfigPool"}});
    cluster.observe_policies(changed(policy("q", 1, &other)));
    cluster.observe_pools(changed(pool("two", false)));
    let second = plan_policy(&cluster, &origin("q"), NOW);
    assert_eq!(permits(&second), [("a", Wait), ("b", Wait), ("c", Apply), ("d", Wait)]);
    let part = "MachineConfigPool \"one\" has reached its maxUnavailable: a";
    assert!(said(&second).contains(part), "{}", said(&second));

    cluster.observe_nodes(changed(in_pool("c", "two", "Working")));
    let held = plan_policy(&cluster, &origin("p"), NOW);
    assert_eq!(permits(&held), [], "c is being updated");
    assert!(said(&held).contains("\"two\" has reached its maxUnavailable: c"), "{}", said(&held));
    assert_eq!(held.again_at, Some(NOW + 1.minute()));
}

#[test]
fn a_change_of_one_policy_affects_those_that_share_its_pools() {
    let mut cluster = cluster_with(&["a"]);
    let through = json!({"rollout": {"through": "MachineConfigPool"}});
    for (name, spec) in [("p", &through), ("q", &through), ("r", &json!({}))] {
        cluster.observe_policies(changed(policy(name, 1, spec)));
    }
    cluster.take_affected();
    assert!(cluster.needs_pools());
    cluster.observe_enactments(changed(enactment("a", "r", 1, Some(json!({})), &json!({}))));
    assert_eq!(cluster.take_affected(), [origin("p"), origin("q"), origin("r")].into());
    assert!(cluster.take_affected().is_empty());
    cluster.observe_pools(changed(pool("one", false)));
    assert_eq!(cluster.take_affected(), [origin("p"), origin("q")].into());
    cluster.observe_pools(changed(pool("one", false)));
    assert!(cluster.take_affected().is_empty(), "nothing has changed");
}
