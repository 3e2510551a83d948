use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::*;

const SECRET: &str = "hunter2";

#[derive(Clone, Debug, Deserialize)]
struct Object {
    #[serde(deserialize_with = "metadata")]
    metadata: ObjectMeta,
    #[serde(default)]
    data: BTreeMap<String, Value>,
}

crate::reads_like!(Object, ConfigMap);

/// An object within an object, and so on.
fn nested(depth: usize) -> String {
    format!("{}{SECRET:?}{}", r#"{"a":"#.repeat(depth), "}".repeat(depth))
}

fn good(name: &str) -> String {
    json!({"metadata": {"name": name, "resourceVersion": "1"}, "data": {"a": SECRET}}).to_string()
}

/// An object with the same metadata every time, and this as its data.
fn odd(data: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"odd","namespace":"n","uid":"u","resourceVersion":"7","generation":3,
            "labels":{{"l":"v"}},"annotations":{{"last-applied":"{SECRET}"}}}},"data":{data}}}"#
    )
}

fn page(items: &[String]) -> Page<Object> {
    let items = items.join(",");
    let body = format!(r#"{{"metadata":{{"resourceVersion":"9","continue":"next"}},"items":[{items}]}}"#);
    Page::read(body.as_bytes()).unwrap()
}

fn line(type_: &str, object: &str) -> serde_json::Result<Line<Object>> {
    Line::read(format!(r#"{{"type":"{type_}","object":{object}}}"#).as_bytes())
}

fn assert_is_odd(object: &DeserializeGuard<Object>, why: Unreadable) {
    let Err(invalid) = &object.0 else { panic!("it was read") };
    assert_eq!(invalid.error, why.to_string());
    let expected = json!({"name": "odd", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 3,
        "labels": {"l": "v"}});
    assert_eq!(serde_json::to_value(&invalid.metadata).unwrap(), expected);
    assert!(!format!("{object:?}").contains(SECRET), "{object:?}");
}

#[test]
fn one_object_that_cannot_be_read_does_not_take_its_page_with_it() {
    for (data, why) in [
        (nested(200), Unreadable::TooDeep),
        (nested(100_000), Unreadable::TooDeep),
        (format!("{SECRET:?}"), Unreadable::UnexpectedValue),
        (format!(r#"["{SECRET}"]"#), Unreadable::UnexpectedValue),
    ] {
        let page = page(&[good("a"), odd(&data), good("b")]);
        assert_eq!((&*page.version, page.next.as_deref(), page.left_out), ("9", Some("next"), 0));
        let names: Vec<String> = page.objects.iter().map(ResourceExt::name_any).collect();
        assert_eq!(names, ["a", "odd", "b"]);
        let data = page.objects.iter().filter_map(|object| object.0.as_ref().ok()?.data.get("a"));
        assert!(data.eq([SECRET, SECRET]), "the others are read");
        assert_is_odd(&page.objects[1], why);
    }
}

#[test]
fn one_object_that_cannot_be_read_does_not_end_its_watch() {
    for type_ in ["ADDED", "MODIFIED", "DELETED"] {
        match line(type_, &odd(&nested(200))).unwrap() {
            Line::Changed(object) if type_ != "DELETED" => assert_is_odd(&object, Unreadable::TooDeep),
            Line::Gone(object) if type_ == "DELETED" => assert_is_odd(&object, Unreadable::TooDeep),
            _ => panic!("{type_}"),
        }
        assert!(
            matches!(line(type_, &good("a")).unwrap(), Line::Changed(object) | Line::Gone(object) if object.0.is_ok())
        );
    }
}

#[test]
fn metadata_are_read_without_what_is_nested() {
    let json = format!(
        r#"{{"metadata":{{"name":"a","managedFields":[{{"fieldsV1":{}}}],"generation":3,"annotations":{{"k":"v"}},
            "creationTimestamp":"2026-01-01T00:00:00Z"}}}}"#,
        nested(200)
    );
    let Object { metadata, .. } = serde_json::from_str(&json).unwrap();
    let expected = json!({"name": "a", "generation": 3, "annotations": {"k": "v"},
        "creationTimestamp": "2026-01-01T00:00:00Z"});
    assert_eq!(serde_json::to_value(&metadata).unwrap(), expected);
}

#[test]
fn an_object_without_a_readable_name_is_left_out_and_counted() {
    let nameless = [
        "7".to_owned(),
        format!(r#"{{"metadata":{},"data":7}}"#, nested(200)),
        format!(r#"{{"metadata":{{"name":{{"is":"{SECRET}"}}}}}}"#),
        format!(r#"{{"metadata":{{"name":"a","labels":"{SECRET}"}}}}"#),
    ];
    for one in &nameless {
        assert!(matches!(line("MODIFIED", one).unwrap(), Line::LeftOut), "{one}");
        assert!(matches!(line("DELETED", one).unwrap(), Line::LeftOut), "{one}");
    }
    let mut items = nameless.to_vec();
    items.push(good("a"));
    let page = page(&items);
    assert_eq!((page.objects.len(), page.left_out), (1, 4));
}

#[test]
fn the_last_page_has_no_next_one() {
    for (body, version) in [
        (json!({"metadata": {"resourceVersion": "9", "continue": ""}, "items": null}), "9"),
        (json!({"metadata": {}, "items": []}), ""),
        (json!({}), ""),
    ] {
        let page: Page<Object> = Page::read(body.to_string().as_bytes()).unwrap();
        assert_eq!((&*page.version, page.next, page.objects.len()), (version, None, 0));
    }
    assert!(Page::<Object>::read(b"<html>").is_err());
}

#[test]
fn what_is_no_change_is_understood() {
    let bookmark = line("BOOKMARK", r#"{"kind":"ConfigMap","metadata":{"resourceVersion":"5"}}"#).unwrap();
    assert!(matches!(bookmark, Line::Bookmark(version) if version == "5"));
    let gone = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410});
    for line in [line("ERROR", &gone.to_string()), Line::read(gone.to_string().as_bytes())] {
        assert!(matches!(line.unwrap(), Line::Error(status) if status.code == 410));
    }
    let whole = format!(r#"{{"type":"ADDED","object":{}}}"#, good("a"));
    for cut in [0, 1, 20, whole.len() - 1] {
        let line = Line::<Object>::read(&whole.as_bytes()[..cut]).unwrap();
        assert!(matches!(line, Line::Incomplete), "{cut}");
    }
    assert!(line("DANCED", &good("a")).is_err());
}

#[test]
fn a_part_that_cannot_be_read_does_not_take_its_object_with_it() {
    #[derive(Debug, Default, Deserialize, PartialEq)]
    struct Parts {
        name: String,
        #[serde(default)]
        part: Part<Value>,
        #[serde(default)]
        number: Part<u8>,
    }
    for (json, part, number) in [
        (r#"{"name":"a"}"#.to_owned(), Ok(Value::Null), Ok(0)),
        (r#"{"number":7,"part":{"b":1},"name":"a"}"#.to_owned(), Ok(json!({"b": 1})), Ok(7)),
        (format!(r#"{{"part":{},"number":1,"name":"a"}}"#, nested(200)), Err(Unreadable::TooDeep), Ok(1)),
        (format!(r#"{{"number":"{SECRET}","name":"a"}}"#), Ok(Value::Null), Err(Unreadable::UnexpectedValue)),
    ] {
        let read: Parts = serde_json::from_str(&json).unwrap();
        assert_eq!(read, Parts { name: "a".to_owned(), part: Part(part), number: Part(number) });
        assert!(!format!("{read:?}").contains(SECRET));
    }
}
