use serde_json::{Value, json};

use super::*;

fn pool(role: &str) -> Value {
    json!({"matchLabels": {role: ""}})
}

fn pools(all: &[(&str, Value, bool, Value)]) -> BTreeMap<String, Pool> {
    let read = |value: &Value| serde_json::from_value(value.clone()).unwrap();
    all.iter()
        .map(|(name, selector, paused, max)| {
            let max_unavailable = serde_json::from_value(max.clone()).unwrap();
            ((*name).to_owned(), Pool { node_selector: read(selector), paused: *paused, max_unavailable })
        })
        .collect()
}

fn usual() -> BTreeMap<String, Pool> {
    pools(&[
        ("master", pool("master"), false, Value::Null),
        ("worker", pool("worker"), false, json!(2)),
        ("infra", pool("infra"), false, json!("50%")),
        ("gpu", pool("gpu"), true, Value::Null),
        ("empty", json!({}), false, Value::Null),
        ("none", Value::Null, false, Value::Null),
    ])
}

fn labels(text: &str) -> BTreeMap<String, String> {
    let pair = |word: &str| match word.split_once('=') {
        Some((key, value)) => (key.to_owned(), value.to_owned()),
        None => (word.to_owned(), String::new()),
    };
    text.split_whitespace().map(pair).collect()
}

/// Nodes by name, labels, age (the higher the younger), and whether they are unavailable.
fn cluster(pools: &BTreeMap<String, Pool>, nodes: &[(&str, &str, i64, bool)]) -> Pools {
    let labelled: Vec<_> = nodes.iter().map(|(_, text, _, _)| labels(text)).collect();
    let members = nodes.iter().zip(&labelled).map(|((name, _, age, is_unavailable), labels)| Member {
        name,
        labels,
        created: Timestamp::from_second(*age).ok(),
        is_unavailable: *is_unavailable,
    });
    Pools::new(pools, members)
}

fn names(text: &str) -> BTreeSet<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Which candidates may begin, and the remarks, for nodes that hold a slot and the failed ones among them.
fn choose(pools: &Pools, candidates: &str, holding: &str, failed: &str) -> (String, String) {
    let (candidates, holding, failed) = (names(candidates), names(holding), names(failed));
    let choice = pools.choose(candidates.iter(), &holding.iter().collect(), &failed.iter().collect());
    let nodes: Vec<&str> = choice.nodes.iter().map(|node| node.as_str()).collect();
    (nodes.join(" "), choice.remarks.join("; "))
}

#[test]
fn a_node_has_the_pool_that_the_machine_config_operator_gives_it() {
    let all = usual();
    for (text, expected) in [
        ("worker", Ok("worker")),
        ("worker infra", Ok("infra")),
        ("infra", Ok("infra")),
        ("master worker", Ok("master")),
        ("master infra gpu", Ok("master")),
        ("worker infra gpu", Err("in more than one MachineConfigPool (gpu, infra)")),
        ("other", Err("in no MachineConfigPool")),
        ("", Err("in no MachineConfigPool")),
    ] {
        let labels = labels(text);
        let member = Member { name: "n", labels: &labels, created: None, is_unavailable: false };
        assert_eq!(
            pool_of(&all, &member).map_err(|why| why.clone()),
            expected.map_err(str::to_owned),
            "{text}"
        );
    }
}

#[test]
fn nodes_are_ordered_by_zone_and_the_oldest_first() {
    let zone = |zone: &str| format!("worker {ZONE_LABEL}={zone}");
    let (a, b) = (zone("a"), zone("b"));
    let pools = cluster(
        &usual(),
        &[("n1", "worker", 0, false), ("n2", &b, 1, false), ("n3", &a, 9, false), ("n4", &a, 3, false)],
    );
    assert_eq!(choose(&pools, "n1 n2 n3 n4", "", "").0, "n4 n3");
    assert_eq!(choose(&pools, "n1 n2 n3", "n4", "").0, "n3");
    assert_eq!(choose(&pools, "n1 n2", "", "").0, "n2 n1");
}

#[test]
fn each_pool_has_its_limit() {
    let pools = cluster(
        &usual(),
        &[
            ("i1", "infra", 1, false),
            ("i2", "infra", 2, false),
            ("i3", "infra", 3, false),
            ("m1", "master", 1, false),
            ("m2", "master", 2, false),
            ("w1", "worker", 1, false),
            ("w2", "worker", 2, false),
            ("w3", "worker", 3, false),
        ],
    );
    // Half of three infra nodes is one, two workers by number, and one master by default.
    assert_eq!(choose(&pools, "i1 i2 i3 m1 m2 w1 w2 w3", "", "").0, "i1 m1 w1 w2");
    assert_eq!(choose(&pools, "i2 i3 m2 w3", "i1 m1 w1 w2", "").0, "");
    assert_eq!(choose(&pools, "w2 w3", "w1", "w1").0, "w2");
    // Two have failed, which is tolerated: one more begins.
    assert_eq!(choose(&pools, "w3", "w1 w2", "w1 w2").0, "w3");
    assert!(!pools.reach_a_limit(names("w1").iter()));
    assert!(pools.reach_a_limit(names("w1 w2").iter()));
    assert!(pools.reach_a_limit(names("i3").iter()));
    assert!(!pools.reach_a_limit(names("unknown").iter()));
}

#[test]
fn unavailable_nodes_count_and_do_not_begin() {
    let of = |first: bool, second: bool| {
        cluster(
            &usual(),
            &[("w1", "worker", 1, first), ("w2", "worker", 2, second), ("w3", "worker", 3, false)],
        )
    };
    assert_eq!(choose(&of(true, false), "w1 w2 w3", "", ""), ("w2".to_owned(), String::new()));
    let enough = "MachineConfigPool \"worker\" has reached its maxUnavailable: w1, w2";
    assert_eq!(choose(&of(true, true), "w1 w2 w3", "", ""), (String::new(), enough.to_owned()));
    let not_ready = "w1: not Ready, not schedulable or being updated";
    assert_eq!(choose(&of(true, false), "w1", "", ""), (String::new(), not_ready.to_owned()));
    // One that is unavailable because it is at work counts once.
    assert_eq!(choose(&of(true, false), "w2 w3", "w1", ""), ("w2".to_owned(), String::new()));
    assert_eq!(choose(&of(true, true), "w3", "w1 w2", ""), (String::new(), String::new()));
}

#[test]
fn remarks_name_the_reasons_for_waiting() {
    let pools = cluster(
        &usual(),
        &[
            ("g", "gpu", 1, false),
            ("s1", "", 1, false),
            ("s2", "", 1, false),
            ("s3", "", 1, false),
            ("s4", "", 1, false),
            ("t", "gpu infra", 1, false),
        ],
    );
    let (chosen, remarks) = choose(&pools, "g s1 s2 s3 s4 t", "", "");
    assert_eq!(chosen, "");
    assert_eq!(
        remarks,
        "MachineConfigPool \"gpu\" is paused; t: in more than one MachineConfigPool (gpu, infra); \
         s1, s2, s3 and 1 more: in no MachineConfigPool"
    );
}
