use knmstate_api::ConditionStatus;

use serde_json::json;

use super::*;

fn status(generation: i64) -> NodeNetworkConfigurationEnactmentStatus {
    NodeNetworkConfigurationEnactmentStatus { policy_generation: generation, ..Default::default() }
}

fn stored(generation: i64, version: &str) -> StoredStatus {
    StoredStatus { status: status(generation), version: version.to_owned(), budget: 64 * 1024 }
}

fn with(policies: &[&str]) -> EnactmentStatuses {
    let mut statuses = EnactmentStatuses::default();
    let all = policies.iter().map(|policy| ((*policy).to_owned(), stored(0, "1")));
    statuses.listed(all.collect());
    statuses
}

impl EnactmentStatuses {
    /// The status that is written next, if one may be written at this time; the write has then ended.
    fn next_at(&mut self, now: Instant) -> Option<(String, NodeNetworkConfigurationEnactmentStatus)> {
        let next = self.outbox.take(now);
        if let Some((policy, _)) = &next {
            self.outbox.done(policy);
        }
        next
    }

    fn next(&mut self) -> Option<(String, NodeNetworkConfigurationEnactmentStatus)> {
        self.next_at(Instant::now())
    }
}

#[expect(clippy::unnecessary_wraps, reason = "compared with the next update, if any")]
fn write(policy: &str, generation: i64) -> Option<(String, NodeNetworkConfigurationEnactmentStatus)> {
    Some((policy.to_owned(), status(generation)))
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_before_the_server_was_asked() {
    let mut statuses = EnactmentStatuses::default();
    statuses.report("a", status(1));
    assert_eq!(statuses.next(), None);
    assert!(!statuses.is_delivered());
    statuses.listed([("a".to_owned(), stored(0, "1"))].into());
    assert_eq!(statuses.next(), write("a", 1));
}

#[tokio::test(start_paused = true)]
async fn what_the_server_has_is_not_written() {
    let mut statuses = with(&["a"]);
    statuses.report("a", status(0));
    assert_eq!(statuses.next(), None);
    assert!(statuses.is_delivered());
}

#[tokio::test(start_paused = true)]
async fn an_old_event_after_a_write_causes_no_other_write() {
    let mut statuses = with(&["a"]);
    statuses.report("a", status(2));
    statuses.written("a", status(2), "10".to_owned(), Instant::now());
    statuses.changed("a", stored(1, "9"));
    assert_eq!(statuses.next(), None);
    assert!(statuses.is_delivered());
}

#[tokio::test(start_paused = true)]
async fn what_another_client_changed_is_written_again_after_a_while() {
    let mut statuses = with(&["a"]);
    let later = Instant::now() + MIN_WRITE_INTERVAL;
    statuses.report("a", status(2));
    statuses.written("a", status(2), "10".to_owned(), later);
    statuses.changed("a", stored(1, "11"));
    assert_eq!(statuses.next(), None);
    assert_eq!(statuses.outbox.next_at(), Some(later));
    assert!(statuses.is_delivered(), "it was, once");
    assert_eq!(statuses.next_at(later), write("a", 2));
}

#[tokio::test(start_paused = true)]
async fn a_newer_status_takes_the_place_of_the_one_before() {
    let mut statuses = with(&["a"]);
    statuses.report("a", status(1));
    let (policy, first) = statuses.outbox.take(Instant::now()).unwrap();
    assert_eq!(first, status(1));
    statuses.report("a", status(2));
    // The response to an older one does not delay the newer one.
    let later = Instant::now() + Duration::from_mins(1);
    statuses.written(&policy, status(1), "5".to_owned(), later);
    statuses.outbox.done(&policy);
    assert!(!statuses.is_delivered());
    assert_eq!(statuses.next(), write("a", 2));
}

#[tokio::test(start_paused = true)]
async fn what_may_be_over_in_a_moment_is_not_written_at_once() {
    let at = |type_: &str| {
        let mut status = status(1);
        status.conditions.set(type_, ConditionStatus::True, "", "", jiff::Timestamp::UNIX_EPOCH);
        status
    };
    let written = |status| Some(("a".to_owned(), status));
    let mut statuses = with(&["a"]);
    let soon = Instant::now() + BRIEF;
    statuses.report("a", at(PENDING));
    assert_eq!(statuses.next(), None);
    assert_eq!(statuses.outbox.next_at(), Some(soon));
    tokio::time::advance(BRIEF / 2).await;
    statuses.report("a", at(PROGRESSING));
    assert_eq!(statuses.next(), None);
    assert_eq!(statuses.outbox.next_at(), Some(soon), "both together are as long");
    assert_eq!(statuses.next_at(soon), written(at(PROGRESSING)));
    statuses.report("a", at("Available"));
    assert_eq!(statuses.next(), written(at("Available")));
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_be_written_does_not_hold_up_the_others() {
    let mut statuses = with(&["a", "b", "c"]);
    for policy in ["a", "b", "c"] {
        statuses.report(policy, status(1));
    }
    let fail = |statuses: &mut EnactmentStatuses| {
        let (policy, status) = statuses.outbox.take(Instant::now())?;
        statuses.outbox.failed(policy.clone(), status, Instant::now());
        Some(policy)
    };
    assert_eq!(fail(&mut statuses).as_deref(), Some("a"));
    assert_eq!([statuses.next(), statuses.next(), statuses.next()], [write("b", 1), write("c", 1), None]);
    tokio::time::advance(Duration::from_secs(30)).await;
    assert_eq!(statuses.next(), write("a", 1));
}

#[tokio::test(start_paused = true)]
async fn only_what_exists_is_kept() {
    let mut statuses = EnactmentStatuses::default();
    statuses.report("gone", status(1));
    statuses.listed([("a".to_owned(), stored(0, "1"))].into());
    statuses.report("never", status(1));
    statuses.report("a", status(1));
    statuses.deleted("a");
    assert!(statuses.reported.is_empty() && statuses.outbox.is_empty(), "{statuses:?}");
    assert!(statuses.is_delivered());
}

fn refusal(code: u16) -> CallError {
    let status = kube::core::Status { code, reason: "Invalid".to_owned(), ..Default::default() };
    kube::Error::Api(status.boxed()).into()
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_too_large_is_cut_once_and_then_delivered() {
    let mut statuses = with(&["a"]);
    let large =
        json!({ "policyGeneration": 1, "desiredState": { "hostname": { "config": "x".repeat(100_000) } } });
    let large: NodeNetworkConfigurationEnactmentStatus = serde_json::from_value(large).unwrap();
    statuses.report("a", large.clone());
    let (_, cut) = statuses.next().unwrap();
    assert!(cut.desired_state.is_none() && cut.notes[0].contains("desiredState"), "{:?}", cut.notes);
    statuses.written("a", cut.clone(), "2".to_owned(), Instant::now());
    assert!(statuses.is_delivered());
    // An event, and the same status again.
    statuses.changed("a", StoredStatus { status: cut, ..stored(0, "3") });
    statuses.report("a", large);
    assert_eq!(statuses.next(), None);
    assert!(statuses.is_delivered());
}

#[tokio::test(start_paused = true)]
async fn what_the_server_refuses_is_not_sent_again_but_once_without_what_can_be_missing() {
    let mut statuses = with(&["a", "b"]);
    let mut full = status(1);
    full.features = vec!["feature".to_owned()];
    full.conditions.set("Available", ConditionStatus::True, "", "done", jiff::Timestamp::UNIX_EPOCH);
    statuses.report("a", full.clone());
    let (_, sent) = statuses.next().unwrap();
    assert_eq!(sent, full);
    statuses.refused("a", &sent, &refusal(422));
    let (_, minimal) = statuses.next().unwrap();
    assert_eq!((&minimal.conditions, minimal.policy_generation), (&full.conditions, 1));
    assert!(minimal.features.is_empty() && minimal.notes[0].contains("422"), "{minimal:?}");
    assert!(!statuses.is_delivered());

    statuses.refused("a", &minimal, &refusal(422));
    tokio::time::advance(Duration::from_hours(1)).await;
    statuses.changed("a", stored(0, "1"));
    assert_eq!(statuses.next(), None, "never again");
    assert!(statuses.is_delivered(), "nothing is left to wait for");
    statuses.report("b", status(1));
    assert_eq!(statuses.next(), write("b", 1), "others go on");

    // The reason may be gone with a change of the enactment, or with the next status.
    statuses.changed("a", stored(0, "2"));
    assert_eq!(statuses.next().unwrap().1, full);
    statuses.refused("a", &full, &refusal(413));
    let (_, again) = statuses.next().unwrap();
    statuses.refused("a", &again, &refusal(413));
    assert_eq!(statuses.next(), None);
    statuses.report("a", status(2));
    assert_eq!(statuses.next(), write("a", 2));
}

#[tokio::test(start_paused = true)]
async fn the_refusal_of_an_old_status_does_not_concern_the_new_one() {
    let mut statuses = with(&["a"]);
    statuses.report("a", status(1));
    let (policy, old) = statuses.outbox.take(Instant::now()).unwrap();
    statuses.report("a", status(2));
    statuses.refused("a", &old, &refusal(422));
    statuses.outbox.done(&policy);
    assert_eq!(statuses.next(), write("a", 2));
}
