use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use serde_json::json;
use tower::service_fn;

use super::*;
use crate::call::LARGEST_ANSWER;

/// A server that answers requests by their query, and records them.
fn client(
    answer: impl Fn(&str) -> String + Clone + Send + 'static,
    requests: &Arc<Mutex<Vec<String>>>,
) -> Client {
    let requests = requests.clone();
    let service = service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let body = answer(&query);
        requests.lock().unwrap().push(query);
        async move { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(body)))) }
    });
    Client::new(service, "default")
}

/// Follows for this time; what was seen.
async fn follow_for(client: Client, time: Duration) -> Vec<String> {
    let mut seen = Vec::new();
    let shown = |object: DeserializeGuard<ConfigMap>| {
        let mark = if object.0.is_ok() { "" } else { "?" };
        format!("{}{mark}", object.name_any())
    };
    let handle = |event| {
        seen.push(match event {
            ObjectEvent::All(all) => {
                format!("all {}", all.into_iter().map(shown).collect::<Vec<_>>().join(" "))
            }
            ObjectEvent::Changed(object) => format!("changed {}", shown(object)),
            ObjectEvent::Gone(object) => format!("gone {}", shown(object)),
        });
    };
    let _ = timeout(time, follow(Api::all(client), Selection::All, "watch", |_| {}, handle)).await;
    seen
}

fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').find_map(|parameter| parameter.strip_prefix(name)?.strip_prefix('='))
}

fn object(name: &str, version: u32) -> String {
    json!({"metadata": {"name": name, "resourceVersion": version.to_string()}}).to_string()
}

fn too_deep(name: &str, version: u32) -> String {
    let nested = format!("{}1{}", r#"{"a":"#.repeat(200), "}".repeat(200));
    object(name, version).replacen('{', &format!(r#"{{"data":{nested},"#), 1)
}

fn page(items: &[String], next: &str) -> String {
    let items = items.join(",");
    format!(r#"{{"metadata":{{"resourceVersion":"5","continue":"{next}"}},"items":[{items}]}}"#)
}

#[test]
fn versions_are_compared_as_numbers() {
    for (version, known, older) in
        [("9", "10", true), ("10", "9", false), ("10", "10", false), ("", "10", false), ("a", "b", false)]
    {
        assert_eq!(is_older(version, known), older, "{version} and {known}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_is_an_event_among_others() {
    let requests = Arc::default();
    let client = client(
        |query| {
            let event = |type_: &str, object: String| format!(r#"{{"type":"{type_}","object":{object}}}"#);
            let lines = [
                event("ADDED", object("c", 6)),
                event("MODIFIED", too_deep("a", 7)),
                event("MODIFIED", r#"{"metadata":{},"data":7}"#.to_owned()),
                String::new(),
                event("DELETED", too_deep("b", 8)),
                event("BOOKMARK", r#"{"metadata":{"resourceVersion":"9"}}"#.to_owned()),
                r#"{"type":"ADDED","object":{"metadata":{"na"#.to_owned(),
            ];
            match (
                parameter(query, "watch"),
                parameter(query, "continue"),
                parameter(query, "resourceVersion"),
            ) {
                (Some(_), _, Some("5")) => lines.join("\n"),
                (Some(_), _, _) => String::new(),
                (None, None, _) => page(&[object("a", 1), too_deep("b", 2)], "next"),
                (None, Some(_), _) => page(&[object("d", 3)], ""),
            }
        },
        &requests,
    );
    let seen = follow_for(client, Duration::from_secs(5)).await;
    assert_eq!(seen, ["all a b? d", "changed c", "changed a?", "gone b?"]);
    let requests = requests.lock().unwrap();
    assert_eq!(parameter(&requests[3], "resourceVersion"), Some("9"), "it goes on from there: {requests:?}");
    assert_eq!(requests.iter().filter(|query| parameter(query, "watch").is_none()).count(), 2, "of pages");
}

#[tokio::test(start_paused = true)]
async fn what_is_too_large_for_one_response_is_listed_in_smaller_pages() {
    let requests = Arc::default();
    let client = client(
        |query| match (parameter(query, "watch"), parameter(query, "limit"), parameter(query, "continue")) {
            (Some(_), ..) => String::new(),
            (None, Some("500"), None) => page(&[object("a", 1)], "next"),
            (None, Some("500" | "125"), Some(_)) => " ".repeat(LARGEST_ANSWER + 1),
            _ => page(&[object("b", 2)], ""),
        },
        &requests,
    );
    assert_eq!(follow_for(client, Duration::from_millis(1)).await, ["all a b"]);
    let requests = requests.lock().unwrap();
    let limits: Vec<_> = requests.iter().filter_map(|query| parameter(query, "limit")).collect();
    assert_eq!(limits, ["500", "500", "125", "31"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_too_large_is_asked_for_again_after_a_while() {
    // An event, then also the object by itself.
    for list in [page(&[], ""), " ".repeat(LARGEST_ANSWER + 1)] {
        let requests = Arc::default();
        let client = client(
            move |query| match parameter(query, "watch") {
                Some(_) => " ".repeat(LARGEST_ANSWER + 1),
                None => list.clone(),
            },
            &requests,
        );
        follow_for(client, Duration::from_mins(1)).await;
        let attempts =
            requests.lock().unwrap().iter().filter(|query| parameter(query, "limit") == Some("500")).count();
        assert!((3..=10).contains(&attempts), "{attempts} attempts in a minute");
    }
}
