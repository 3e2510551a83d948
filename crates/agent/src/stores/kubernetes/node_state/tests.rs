use knmstate_api::State;
use serde_json::{Value, json};

use knmstate_api::whole_second;

use super::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn network(mtu: u32) -> ReportedNetwork {
    let state = json!({"interfaces": [{"name": "eth1", "mtu": mtu}]});
    ReportedNetwork {
        state: serde_json::from_value::<State>(state).unwrap(),
        omitted: Vec::new(),
        links: Vec::new(),
        set_aside: Vec::new(),
        nmstate_version: "2.2".to_owned(),
        network_manager_version: "1.42".to_owned(),
    }
}

fn node_state() -> NodeState {
    NodeState::new("n".to_owned(), [("label".to_owned(), "value".to_owned())].into(), || NOW)
}

fn object(version: &str, refresh: Option<&str>, status: &Value) -> DeserializeGuard<NodeNetworkState> {
    let mut object: NodeNetworkState = serde_json::from_value(json!({
        "metadata": {
            "name": "n",
            "resourceVersion": version,
            "labels": {"label": "value", "other": "too"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}],
        },
        "spec": {"nodeName": "n"},
        "status": status,
    }))
    .unwrap();
    if let Some(value) = refresh {
        object.labels_mut().insert(FORCE_REFRESH_LABEL.to_owned(), value.to_owned());
    }
    DeserializeGuard(Ok(object))
}

/// As it is stored after `network(1500)` was written long ago.
fn shown() -> Value {
    json!({
        "currentState": {"interfaces": [{"mtu": 1500, "name": "eth1"}]},
        "lastSuccessfulUpdateTime": "2001-01-01T00:00:00Z",
        "handlerNmstateVersion": "2.2",
        "hostNetworkManagerVersion": "1.42",
    })
}

/// The next update, if one may be written at this time; the write has then ended.
fn next_at(state: &mut NodeState, now: Instant) -> Option<NodeStateUpdate> {
    let next = state.outbox.take(now);
    state.outbox.done(&());
    next.map(|((), update)| update)
}

fn next(state: &mut NodeState) -> Option<NodeStateUpdate> {
    next_at(state, Instant::now())
}

fn next_status(state: &mut NodeState) -> NodeNetworkStateStatus {
    match next(state) {
        Some(NodeStateUpdate::Status(status)) => *status,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_before_the_server_was_asked() {
    let mut state = node_state();
    state.publish(network(1500));
    assert_eq!(next(&mut state), None);
    assert!(!state.is_delivered());
    state.handle(ObjectEvent::All(vec![]));
    assert_eq!(next(&mut state), Some(NodeStateUpdate::Object));
}

#[tokio::test(start_paused = true)]
async fn what_is_shown_already_is_not_written() {
    let mut state = node_state();
    state.handle(ObjectEvent::All(vec![object("1", None, &shown())]));
    state.publish(network(1500));
    assert_eq!(next(&mut state), None);
    assert!(state.is_delivered());
}

#[tokio::test(start_paused = true)]
async fn the_time_moves_with_the_network_and_not_with_a_version() {
    let mut state = node_state();
    state.handle(ObjectEvent::All(vec![object("1", None, &shown())]));
    state.publish(ReportedNetwork { nmstate_version: "3".to_owned(), ..network(1500) });
    let status = next_status(&mut state);
    assert_eq!(status.handler_nmstate_version, "3");
    assert_eq!(status.last_successful_update_time.unwrap().0.to_string(), "2001-01-01T00:00:00Z");
    state.publish(network(9000));
    assert_eq!(next_status(&mut state).last_successful_update_time, Some(whole_second(NOW)));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_lacks_its_owner_or_a_label_is_completed_once() {
    let mut state = node_state();
    let mut bare = object("1", None, &shown());
    bare.0.as_mut().unwrap().metadata.owner_references = None;
    state.handle(ObjectEvent::All(vec![bare.clone()]));
    state.publish(network(1500));
    assert_eq!(next(&mut state), Some(NodeStateUpdate::Object));
    // A server that drops a field is not sent it for ever.
    state.object_written(bare.0.unwrap());
    assert_eq!(next(&mut state), None);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_one_is_created_again_with_what_is_known() {
    let mut state = node_state();
    state.handle(ObjectEvent::All(vec![object("1", None, &shown())]));
    state.publish(network(1500));
    state.handle(ObjectEvent::Gone(object("2", None, &shown())));
    assert_eq!(next(&mut state), Some(NodeStateUpdate::Object));
    state.object_written(object("3", None, &json!({})).0.unwrap());
    assert_eq!(next_status(&mut state).current_state, Some(network(1500).state));
}

#[tokio::test(start_paused = true)]
async fn old_events_after_a_write_cause_no_other_write() {
    let mut state = node_state();
    state.handle(ObjectEvent::All(vec![object("1", None, &shown())]));
    state.publish(network(9000));
    let status = next_status(&mut state);
    state.status_written(status, "10".to_owned(), Instant::now());
    assert!(state.is_delivered());
    state.handle(ObjectEvent::Changed(object("9", None, &shown())));
    state.handle(ObjectEvent::Gone(object("8", None, &shown())));
    assert_eq!(next(&mut state), None);
}

#[tokio::test(start_paused = true)]
async fn what_another_client_changed_is_written_again_after_a_while() {
    let mut state = node_state();
    state.handle(ObjectEvent::All(vec![object("1", None, &shown())]));
    state.publish(network(9000));
    let status = next_status(&mut state);
    let later = Instant::now() + MIN_WRITE_INTERVAL;
    state.status_written(status, "10".to_owned(), later);
    state.handle(ObjectEvent::Changed(object("11", None, &json!({}))));
    assert_eq!(next(&mut state), None);
    assert_eq!(state.outbox.next_at(), Some(later));
    assert!(next_at(&mut state, later).is_some());
}

#[test]
fn a_report_is_asked_for_by_a_new_value_of_the_label() {
    let mut state = node_state();
    for (version, refresh, asked) in [
        ("1", Some("a"), false), // what was asked before the start is answered by starting
        ("2", Some("a"), false),
        ("3", Some("b"), true),
        ("4", None, false),
        ("5", Some("b"), true),
    ] {
        let object = object(version, refresh, &shown());
        let event =
            if version == "1" { ObjectEvent::All(vec![object]) } else { ObjectEvent::Changed(object) };
        assert_eq!(state.handle(event), asked, "version {version}");
    }
    // Asked while the handler was not connected.
    assert!(state.handle(ObjectEvent::All(vec![object("6", Some("c"), &shown())])));
}
