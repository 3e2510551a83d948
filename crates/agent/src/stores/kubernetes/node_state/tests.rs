use knmstate_api::State;
use serde_json::{Value, json};

use knmstate_api::condition::whole_second;

use super::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn network(mtu: u32) -> ReportedNetwork {
    let state = json!({"interfaces": [{"name": "eth1", "mtu": mtu}]});
    ReportedNetwork {
        state: serde_json::from_value::<State>(state).unwrap(),
        omitted: Vec::new(),
        links: Vec::new(),
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

fn next_status(state: &mut NodeState) -> NodeNetworkStateStatus {
    match state.next(Instant::now()) {
        Next::Write(Write::Status(status)) => *status,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_before_the_server_was_asked() {
    let mut state = node_state();
    state.publish(network(1500));
    assert_eq!(state.next(Instant::now()), Next::Nothing);
    assert!(!state.is_delivered());
    state.see(Seen::All(vec![]));
    assert_eq!(state.next(Instant::now()), Next::Write(Write::Object));
}

#[tokio::test(start_paused = true)]
async fn what_is_shown_already_is_not_written() {
    let mut state = node_state();
    state.see(Seen::All(vec![object("1", None, &shown())]));
    state.publish(network(1500));
    assert_eq!(state.next(Instant::now()), Next::Nothing);
    assert!(state.is_delivered());
}

#[tokio::test(start_paused = true)]
async fn the_time_moves_with_the_network_and_not_with_a_version() {
    let mut state = node_state();
    state.see(Seen::All(vec![object("1", None, &shown())]));
    state.publish(ReportedNetwork { nmstate_version: "3".to_owned(), ..network(1500) });
    let status = next_status(&mut state);
    assert_eq!(status.handler_nmstate_version, "3");
    assert_eq!(status.last_successful_update_time.unwrap().0.to_string(), "2001-01-01T00:00:00Z");
    state.publish(network(9000));
    assert_eq!(next_status(&mut state).last_successful_update_time, Some(whole_second(NOW)));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_lacks_its_owner_or_a_label_is_furnished_once() {
    let mut state = node_state();
    let mut bare = object("1", None, &shown());
    bare.0.as_mut().unwrap().metadata.owner_references = None;
    state.see(Seen::All(vec![bare.clone()]));
    state.publish(network(1500));
    assert_eq!(state.next(Instant::now()), Next::Write(Write::Object));
    // A server that drops what it is given is not asked for ever.
    state.furnished(bare.0.unwrap());
    assert_eq!(state.next(Instant::now()), Next::Nothing);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_one_is_made_again_with_what_is_known() {
    let mut state = node_state();
    state.see(Seen::All(vec![object("1", None, &shown())]));
    state.publish(network(1500));
    state.see(Seen::Gone(object("2", None, &shown())));
    assert_eq!(state.next(Instant::now()), Next::Write(Write::Object));
    state.furnished(object("3", None, &json!({})).0.unwrap());
    assert_eq!(next_status(&mut state).current_state, Some(network(1500).state));
}

#[tokio::test(start_paused = true)]
async fn old_events_after_a_write_cause_no_other_write() {
    let mut state = node_state();
    state.see(Seen::All(vec![object("1", None, &shown())]));
    state.publish(network(9000));
    let status = next_status(&mut state);
    state.written(status, "10".to_owned(), Instant::now());
    assert!(state.is_delivered());
    state.see(Seen::Changed(object("9", None, &shown())));
    state.see(Seen::Gone(object("8", None, &shown())));
    assert_eq!(state.next(Instant::now()), Next::Nothing);
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_changed_is_put_right_after_a_while() {
    let mut state = node_state();
    state.see(Seen::All(vec![object("1", None, &shown())]));
    state.publish(network(9000));
    let status = next_status(&mut state);
    let later = Instant::now() + PEACE;
    state.written(status, "10".to_owned(), later);
    state.see(Seen::Changed(object("11", None, &json!({}))));
    assert_eq!(state.next(Instant::now()), Next::Later(later));
    assert!(matches!(state.next(later), Next::Write(_)));
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
        let seen = object(version, refresh, &shown());
        let seen = if version == "1" { Seen::All(vec![seen]) } else { Seen::Changed(seen) };
        assert_eq!(state.see(seen), asked, "version {version}");
    }
    // Asked while nobody could hear it.
    assert!(state.see(Seen::All(vec![object("6", Some("c"), &shown())])));
}
