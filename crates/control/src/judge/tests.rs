use std::sync::mpsc;

use serde_json::json;

use super::*;

fn origin(name: &str) -> Origin {
    Origin::Policy(name.to_owned())
}

fn question(name: &str, generation: i64) -> Question {
    let spec = json!({ "desiredState": { "interfaces": [{ "name": "eth1", "mtuu": 1400 }] } });
    let spec = Arc::new(serde_json::from_value(spec).expect("a spec"));
    let policy = JudgedPolicy { name: name.to_owned(), uid: "u".to_owned(), generation, spec };
    Question { policy, others: Vec::new(), nodes: Vec::new() }
}

fn judge() -> Judge {
    Judge::new(KnownChecks::default())
}

fn known(refusal: Option<&str>) -> Verdict {
    Verdict::Known { refusal: refusal.map(str::to_owned), again_at: None }
}

#[tokio::test]
async fn a_verdict_counts_for_its_question_only() {
    let mut judge = judge();
    assert_eq!(judge.verdict(&origin("p"), Some(question("p", 1))), Verdict::Pending);
    assert_eq!(judge.next().await, Some(origin("p")));
    let Verdict::Known { refusal: Some(refusal), .. } = judge.verdict(&origin("p"), Some(question("p", 1)))
    else {
        panic!("it is not refused");
    };
    assert!(refusal.contains("did you mean \"mtu\""), "{refusal}");
    assert_eq!(judge.next().await, None, "it is not judged again");

    let with_a_node = Question { nodes: vec![("a".to_owned(), Arc::default())], ..question("p", 1) };
    let with_another = Question { others: vec![question("q", 1).policy], ..question("p", 1) };
    for other in [question("p", 2), with_a_node, with_another] {
        assert_eq!(judge.verdict(&origin("p"), Some(other.clone())), Verdict::Pending, "{other:?}");
        judge.next().await;
        assert!(matches!(judge.verdict(&origin("p"), Some(other)), Verdict::Known { .. }));
    }
    assert_eq!(judge.verdict(&origin("p"), None), known(None), "it needs none any more");
    assert!(judge.verdicts.is_empty());
}

#[tokio::test]
async fn one_that_takes_long_delays_neither_another_nor_the_caller() {
    let mut judge = judge();
    let (go_on, wait) = mpsc::channel();
    judge.start(&origin("slow"), question("slow", 1), move |_| wait.recv().ok());
    assert_eq!(judge.verdict(&origin("slow"), Some(question("slow", 1))), Verdict::Pending);
    assert_eq!(judge.verdict(&origin("slow"), Some(question("slow", 2))), Verdict::Pending, "one at a time");
    assert_eq!(judge.verdict(&origin("slow"), None), known(None));
    assert_eq!(judge.verdict(&origin("slow"), Some(question("slow", 2))), Verdict::Pending, "it still runs");
    judge.verdict(&origin("other"), Some(question("other", 1)));
    assert_eq!(judge.next().await, Some(origin("other")));
    go_on.send("because".to_owned()).expect("it runs");
    assert_eq!(judge.next().await, Some(origin("slow")));
    assert_eq!(judge.verdict(&origin("slow"), Some(question("slow", 1))), known(Some("because")));
    assert_eq!(
        judge.verdict(&origin("slow"), Some(question("slow", 2))),
        Verdict::Pending,
        "the newer question"
    );
}

#[tokio::test]
async fn a_panic_is_a_refusal() {
    let mut judge = judge();
    judge.start(&origin("p"), question("p", 1), |_| panic!("as nmstate's parser might"));
    assert_eq!(judge.next().await, Some(origin("p")));
    assert_eq!(judge.verdict(&origin("p"), Some(question("p", 1))), known(Some(CANNOT_BE_CHECKED)));
}

#[tokio::test(start_paused = true)]
async fn what_takes_too_long_is_refused_and_not_tried_again_at_once() {
    let mut judge = judge();
    let (go_on, wait) = mpsc::channel::<String>();
    let wait = Arc::new(std::sync::Mutex::new(wait));
    for index in 0..=MAX_CONCURRENT {
        let wait = wait.clone();
        let name = format!("slow{index}");
        let work = move |_: &Question| wait.lock().ok()?.recv().ok();
        judge.start(&origin(&name), question(&name, 1), work);
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    tokio::time::advance(LIMIT + Duration::from_secs(1)).await;
    for _ in 0..MAX_CONCURRENT {
        let judged = judge.next().await.expect("a verdict");
        let Origin::Policy(name) = &judged else { panic!("{judged:?}") };
        let refused = judge.verdict(&judged, Some(question(name, 1)));
        assert_eq!(refused, known(Some(&takes_too_long(LIMIT))));
        let Verdict::Known { refusal: Some(_), again_at: Some(again_at) } =
            judge.verdict(&judged, Some(question(name, 2)))
        else {
            panic!("the threads still run");
        };
        assert!(again_at > Instant::now() + LIMIT);
    }
    // The threads occupy all places, also those that nothing waits for any more.
    assert_eq!(judge.room.available_permits(), 0);
    drop(go_on);
    let last = judge.next().await.expect("the last one has a place now");
    assert_eq!(judge.verdict(&last, Some(question(&format!("slow{MAX_CONCURRENT}"), 1))), known(None));
    tokio::time::advance(PAUSE_AFTER_LIMIT).await;
    assert_eq!(judge.verdict(&origin("slow0"), Some(question("slow0", 2))), Verdict::Pending);
}
