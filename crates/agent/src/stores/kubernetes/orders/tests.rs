use kube::core::{DeserializeGuard, error_boundary::InvalidObject};
use serde_json::{Value, json};

use super::*;

fn enactment(node: &str, policy: &str, generation: i64, status: &Value) -> Value {
    json!({
        "metadata": {"name": format!("{node}.{policy}"), "resourceVersion": "1"},
        "spec": {"nodeName": node, "policyName": policy, "policyGeneration": generation, "permit": "Apply"},
        "status": status,
    })
}

fn read(enactment: Value) -> DeserializeGuard<OwnEnactment> {
    let metadata = serde_json::from_value(enactment["metadata"].clone()).unwrap();
    DeserializeGuard(
        serde_json::from_value(enactment)
            .map_err(|error| InvalidObject { error: error.to_string(), metadata }),
    )
}

fn reader() -> (Reader, watch::Receiver<Option<Arc<Orders>>>) {
    let (sender, orders) = watch::channel(None);
    let statuses = Arc::new(SharedOutbox::new(EnactmentStatuses::default()));
    (Reader::new("n".to_owned(), sender, statuses), orders)
}

/// The policies with their generations, if they were given on since the last look.
fn given(orders: &mut watch::Receiver<Option<Arc<Orders>>>) -> Option<String> {
    orders.has_changed().unwrap().then(|| {
        let orders = orders.borrow_and_update().clone().unwrap();
        let said = orders.iter().map(|(policy, order)| format!("{policy}@{}", order.spec.policy_generation));
        said.collect::<Vec<_>>().join(" ")
    })
}

#[test]
fn only_what_is_to_be_done_makes_new_orders() {
    let (mut reader, mut orders) = reader();
    assert_eq!(given(&mut orders).as_deref(), None);
    reader.handle(ObjectEvent::All(vec![]));
    assert_eq!(given(&mut orders).as_deref(), Some(""), "none is an answer");

    let said = json!({"policyGeneration": 1});
    reader.handle(ObjectEvent::Changed(read(enactment("n", "a", 1, &json!({})))));
    assert_eq!(given(&mut orders).as_deref(), Some("a@1"));
    reader.handle(ObjectEvent::Changed(read(enactment("n", "a", 1, &said))));
    assert_eq!(given(&mut orders).as_deref(), None, "a status is no order");
    reader.handle(ObjectEvent::All(vec![read(enactment("n", "a", 1, &said))]));
    assert_eq!(given(&mut orders).as_deref(), None, "the same again is nothing new");
    reader.handle(ObjectEvent::Changed(read(enactment("n", "a", 2, &said))));
    assert_eq!(given(&mut orders).as_deref(), Some("a@2"));
    let order = orders.borrow().clone().unwrap()["a"].clone();
    assert_eq!(order.status.unwrap().policy_generation, 1, "what was said is handed on");
    reader.handle(ObjectEvent::Gone(read(enactment("n", "a", 2, &said))));
    assert_eq!(given(&mut orders).as_deref(), Some(""));
}

#[test]
fn what_is_no_order_of_this_node_is_ignored() {
    let (mut reader, mut orders) = reader();
    let of_another_node = enactment("other", "a", 1, &json!({}));
    let mut with_a_false_name = enactment("n", "a", 1, &json!({}));
    with_a_false_name["spec"]["nodeName"] = json!("other");
    let mut of_kubernetes_nmstate = enactment("n", "b", 1, &json!({}));
    of_kubernetes_nmstate.as_object_mut().unwrap().remove("spec");
    for ignored in [of_another_node, with_a_false_name, of_kubernetes_nmstate] {
        reader
            .handle(ObjectEvent::All(vec![read(ignored.clone()), read(enactment("n", "c", 1, &json!({})))]));
        reader.handle(ObjectEvent::Changed(read(ignored)));
    }
    assert_eq!(given(&mut orders).as_deref(), Some("c@1"));
}

#[test]
fn an_order_in_unknown_words_leaves_the_one_before_in_force() {
    let (mut reader, mut orders) = reader();
    let mut strange = enactment("n", "a", 2, &json!({}));
    strange["spec"]["permit"] = json!("Dance");
    reader.handle(ObjectEvent::All(vec![read(strange.clone())]));
    assert_eq!(given(&mut orders).as_deref(), Some(""));
    reader.handle(ObjectEvent::Changed(read(enactment("n", "a", 1, &json!({})))));
    assert_eq!(given(&mut orders).as_deref(), Some("a@1"));
    reader.handle(ObjectEvent::Changed(read(strange.clone())));
    reader.handle(ObjectEvent::All(vec![read(strange)]));
    assert_eq!(given(&mut orders).as_deref(), None);
}

#[test]
fn an_order_that_cannot_be_read_is_not_one_that_was_removed() {
    let (mut reader, mut orders) = reader();
    let unreadable = reader.unreadable();
    let names = || unreadable.borrow().iter().cloned().collect::<Vec<_>>();
    let mut strange = enactment("n", "a", 2, &json!({}));
    strange["spec"]["permit"] = json!("Dance");
    reader.handle(ObjectEvent::All(vec![read(strange.clone())]));
    assert_eq!((given(&mut orders).as_deref(), names()), (Some(""), vec!["a".to_owned()]));
    reader.handle(ObjectEvent::Gone(read(strange)));
    assert_eq!((given(&mut orders).as_deref(), names()), (Some(""), vec![]), "now it was removed");
}

#[test]
fn the_order_of_an_enactment_can_be_read_without_its_status() {
    let (mut reader, mut orders) = reader();
    let mut object = enactment("n", "a", 1, &json!({}));
    object.as_object_mut().unwrap().remove("status");
    let deep = format!("{}1{}", r#"{"a":"#.repeat(200), "}".repeat(200));
    let object = object.to_string();
    let object = format!(r#"{},"status":{{"desiredState":{deep}}}}}"#, object.strip_suffix('}').unwrap());
    let object: OwnEnactment = serde_json::from_str(&object).unwrap();
    reader.handle(ObjectEvent::All(vec![DeserializeGuard(Ok(object))]));
    assert_eq!(given(&mut orders).as_deref(), Some("a@1"));
    assert_eq!(orders.borrow().clone().unwrap()["a"].status, None);
}
