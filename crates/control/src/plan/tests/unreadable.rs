//! What cannot be read is not what was deleted.

use super::*;
use crate::cluster_state::{
    SlimEnactment, SlimNodeState,
    testing::{too_deep, unreadable, unreadable_policy},
};

const WHY: &str =
    "the spec cannot be read: it is nested too deeply; nodes keep what they have of this policy";

/// Two nodes with an order of the policy `p`.
fn with_orders() -> ClusterState {
    let mut cluster = cluster_with(&["a", "b"]);
    for node in ["a", "b"] {
        let order = json!({"permit": "Apply", "policyUID": "uid-of-p"});
        cluster.observe_enactments(changed(enactment(node, "p", 1, Some(order), &json!({}))));
    }
    cluster
}

fn removed(cluster: &ClusterState, origin: &Origin) -> Vec<String> {
    plan_policy(cluster, origin, NOW).removals.into_keys().collect()
}

#[test]
fn the_orders_of_a_policy_that_cannot_be_read_stay() {
    let mut known = with_orders();
    known.observe_policies(changed(policy("p", 1, &json!({"desiredState": mtu(1400)}))));
    // A leader that has just begun has never been able to read it.
    for mut cluster in [known, with_orders()] {
        cluster.observe_policies(changed(unreadable_policy("p", 2)));
        let plan = plan_policy(&cluster, &origin("p"), NOW);
        assert!(plan.orders.is_empty() && plan.removals.is_empty(), "{plan:?}");
        let status = plan.status.clone().unwrap();
        let said = status.conditions.first_true().unwrap();
        assert_eq!((&*said.type_, &*said.message), (DEGRADED, WHY));
        apply_plan(&mut cluster, "p", plan);
        assert_eq!(plan_policy(&cluster, &origin("p"), NOW + 5.seconds()), PolicyPlan::default());

        let other = json!({"desiredState": {"interfaces": [{"name": "eth2", "type": "ethernet"}]}});
        cluster.observe_policies(changed(policy("q", 1, &other)));
        assert_eq!(permits(&plan_policy(&cluster, &origin("q"), NOW)).len(), 2, "others go on");

        cluster.observe_policies(changed(policy("p", 1003, &json!({"desiredState": mtu(1300)}))));
        let corrected = plan_policy(&cluster, &origin("p"), NOW);
        assert!(corrected.orders.contains_key("a") && corrected.removals.is_empty());
        cluster.observe_policies(gone(policy("p", 2000, &json!({}))));
        assert_eq!(removed(&cluster, &origin("p")), ["a", "b"]);
    }
}

#[test]
fn a_policy_of_which_nothing_can_be_read_is_not_a_deleted_one() {
    let mut cluster = with_orders();
    let metadata = json!({"name": "p", "resourceVersion": "5"});
    cluster.observe_policies(ObjectEvent::All(vec![unreadable(metadata)]));
    assert_eq!(plan_policy(&cluster, &origin("p"), NOW), PolicyPlan::default());
    cluster.take_affected();
    cluster.observe_policies(ObjectEvent::Gone(unreadable(json!({"name": "p", "resourceVersion": "6"}))));
    assert!(cluster.take_affected().contains(&origin("p")));
    assert_eq!(removed(&cluster, &origin("p")), ["a", "b"]);
}

#[test]
fn a_node_state_that_cannot_be_read_is_not_a_deleted_one() {
    let settings = || {
        changed(
            serde_json::from_value(json!({"metadata": {"name": "nmstate"},
                "spec": {"allowNodeStateConfiguration": true}}))
            .unwrap(),
        )
    };
    let state = |desired: &str| {
        let json = format!(
            r#"{{"metadata":{{"name":"a","uid":"s","generation":4}},
                "spec":{{"managed":true,"desiredState":{desired}}},"status":{{"currentState":{}}}}}"#,
            too_deep()
        );
        serde_json::from_str::<SlimNodeState>(&json)
    };
    let origin = Origin::NodeState("a".to_owned());
    let with_order = || {
        let mut cluster = cluster_with(&["a"]);
        cluster.observe_enactments(changed(enactment(
            "a",
            "node-network-state",
            1,
            Some(json!({})),
            &json!({}),
        )));
        cluster
    };
    // What the handler has reported does not matter to what was asked for.
    let mut cluster = with_order();
    cluster.observe_nmstates(settings());
    cluster.observe_node_states(changed(state(&mtu(1400).to_string()).unwrap()));
    assert_eq!(permits(&plan_policy(&cluster, &origin, NOW)), [("a", Permit::Apply)]);

    let unread = || ObjectEvent::All(vec![unreadable(json!({"name": "a", "resourceVersion": "5"}))]);
    assert!(state(&too_deep()).is_err());
    cluster.observe_node_states(unread());
    assert_eq!(plan_policy(&cluster, &origin, NOW), PolicyPlan::default());
    let mut cluster = with_order();
    cluster.observe_nmstates(settings());
    assert_eq!(removed(&cluster, &origin), ["a"]);
    cluster.observe_node_states(unread());
    assert!(removed(&cluster, &origin).is_empty());
    cluster.take_affected();
    cluster.observe_node_states(ObjectEvent::Gone(unreadable(json!({"name": "a", "resourceVersion": "6"}))));
    assert_eq!(cluster.take_affected(), [origin.clone()].into());
    assert_eq!(removed(&cluster, &origin), ["a"]);

    // Whether it is allowed is not known.
    let mut cluster = with_order();
    cluster.observe_node_states(changed(state(&mtu(1400).to_string()).unwrap()));
    assert_eq!(removed(&cluster, &origin), ["a"]);
    cluster.observe_nmstates(ObjectEvent::All(vec![unreadable(json!({"name": "nmstate"}))]));
    assert!(removed(&cluster, &origin).is_empty());
}

#[test]
fn a_node_that_cannot_be_read_keeps_its_enactment() {
    let mut cluster = with_orders();
    cluster.observe_policies(changed(policy("p", 1, &json!({"desiredState": mtu(1400)}))));
    let a = node("a", &json!({}), "True");
    let list = |a| ObjectEvent::All(vec![a]);
    cluster.observe_nodes(list(kube::core::DeserializeGuard(Ok(a))));
    assert_eq!(removed(&cluster, &origin("p")), ["b"]);
    let b = unreadable(json!({"name": "b"}));
    cluster.observe_nodes(list(b));
    assert_eq!(removed(&cluster, &origin("p")), ["a"], "b may be one that is selected");
}

#[test]
fn an_enactment_that_cannot_be_read_keeps_its_value_until_it_is_deleted() {
    let mut cluster = with_orders();
    let labels = json!({"nmstate.io/node": "a", "nmstate.io/policy": "p"});
    let odd = |version: &str| {
        unreadable::<SlimEnactment>(
            json!({"name": "a.p", "resourceVersion": version, "labels": labels.clone()}),
        )
    };
    let permit = |cluster: &ClusterState| {
        cluster.enactments.get("p", "a").and_then(|one| one.order()).map(|order| order.permit)
    };
    cluster.observe_enactments(ObjectEvent::Changed(odd("2")));
    assert_eq!(permit(&cluster), Some(Permit::Apply));
    cluster.observe_enactments(ObjectEvent::All(vec![odd("2")]));
    assert_eq!(permit(&cluster), Some(Permit::Apply));
    assert!(cluster.enactments.get("p", "b").is_none(), "it is not in the list");
    cluster.observe_enactments(ObjectEvent::Gone(odd("3")));
    assert_eq!(permit(&cluster), None);
}

#[test]
fn what_a_handler_reports_cannot_hide_its_result() {
    let deep = too_deep();
    let json = format!(
        r#"{{"metadata":{{"name":"a.p","labels":{{"nmstate.io/node":"a","nmstate.io/policy":"p"}}}},
            "status":{{"desiredState":{deep},"capturedStates":{deep},"notes":{deep},"policyGeneration":7,
                "features":["lldp"],"conditions":[{{"type":"Available","status":"True"}}]}}}}"#
    );
    let mut cluster = ClusterState::default();
    cluster.observe_enactments(changed(serde_json::from_str(&json).unwrap()));
    let status = &cluster.enactments.get("p", "a").unwrap().status;
    assert!(status.conditions.is_true(AVAILABLE));
    assert_eq!((status.policy_generation, &*status.features), (7, &["lldp".to_owned()][..]));
}
