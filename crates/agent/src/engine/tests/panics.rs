//! Orders that are the end of the code that prepares them.

use std::{
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_panic_while_an_order_is_prepared_is_a_failed_attempt_of_it_alone() {
    let fixture = Fixture::new();
    fixture.store.set_orders([mtu("bad", "eth1", 1400), mtu("good", "eth2", 1400)]);
    let mut engine = fixture.engine().await;
    let attempts = Arc::new(AtomicU32::new(0));
    let counted = attempts.clone();
    engine.on_prepare = Hook::new(move |policy| {
        if policy == "bad" {
            counted.fetch_add(1, Ordering::Relaxed);
            panic!("hush");
        }
    });
    let outcomes = timeout(LONG, engine.run_once()).await.unwrap().unwrap();
    let found = results(&outcomes);
    assert!(found[0].1.contains("internal error") && !found[0].1.contains("hush"), "{found:?}");
    assert_eq!(found[1], ("good", "changed"));
    // Once more in the first attempt, after the change of the other one.
    assert_eq!(attempts.load(Ordering::Relaxed), 5 + 1, "its attempts are limited");
    assert_eq!(fixture.last("bad").retry_count, [("1".to_owned(), 5)].into());
}

#[tokio::test(start_paused = true)]
async fn an_order_that_kills_the_process_while_it_is_prepared_fails_for_good_in_the_end() {
    // The file in the ledger at the moment of death.
    let left_behind = Arc::new(Mutex::new(None::<Vec<u8>>));
    for _ in 0..5 {
        let fixture = Fixture::new();
        if let Some(file) = left_behind.lock().unwrap().take() {
            fs::create_dir(fixture.ledger()).unwrap();
            fs::write(fixture.ledger().join("p.json"), file).unwrap();
        }
        fixture.store.set_orders([mtu("p", "eth1", 1400)]);
        let mut engine = fixture.engine().await;
        let (file, dying) = (fixture.ledger().join("p.json"), left_behind.clone());
        engine.on_prepare = Hook::new(move |_| {
            *dying.lock().unwrap() = fs::read(&file).ok();
            panic!("dies here");
        });
        let running = tokio::spawn(engine.run());
        while left_behind.lock().unwrap().is_none() {
            sleep(Duration::from_millis(10)).await;
        }
        running.abort();
        assert_eq!(fixture.machine.checkpoints_made(), 0);
    }
    let fixture = Fixture::new();
    fs::create_dir(fixture.ledger()).unwrap();
    fs::write(fixture.ledger().join("p.json"), left_behind.lock().unwrap().take().unwrap()).unwrap();
    // Without the hook: it would be applied.
    let outcomes = fixture.run_once([mtu("p", "eth1", 1400)]).await;
    assert!(results(&outcomes)[0].1.contains("ended while it prepared the change"), "{outcomes:?}");
    assert_eq!(fixture.mtu("eth1"), 1500);
    let status = fixture.last("p");
    assert!(status.conditions.is_true(FAILING) && !status.conditions.is_true(PROGRESSING));
}
