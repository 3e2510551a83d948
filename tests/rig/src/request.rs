//! One request to an API server in the raw, for tests of what it refuses: every verb on every path, and the answer as it
//! is.

use std::fmt;

use anyhow::Result;
use http::{Method, StatusCode, header::CONTENT_TYPE};
use kube::{Client, client::Body};
use serde_json::Value;

/// A request, made by the functions called like the verbs of Kubernetes.
#[derive(Clone, Debug)]
pub struct Request {
    verb: &'static str,
    method: Method,
    path: String,
    content: Option<(&'static str, Value)>,
    headers: Vec<(&'static str, String)>,
}

/// What the API server says to a request.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: StatusCode,
    /// Why it was refused; empty if it was not.
    pub message: String,
}

impl Request {
    /// Gets one object, or lists a collection.
    pub fn read(path: &str) -> Self {
        Self::new("read", Method::GET, path, None)
    }

    /// Watches a collection. The answer does not wait for events.
    pub fn watch(collection: &str) -> Self {
        let query = if collection.contains('?') { '&' } else { '?' };
        Self::new("watch", Method::GET, &format!("{collection}{query}watch=1&timeoutSeconds=1"), None)
    }

    pub fn create(collection: &str, object: Value) -> Self {
        Self::new("create", Method::POST, collection, Some(("application/json", object)))
    }

    /// Puts an object in the place of what is there.
    pub fn update(path: &str, object: Value) -> Self {
        Self::new("update", Method::PUT, path, Some(("application/json", object)))
    }

    pub fn merge(path: &str, patch: Value) -> Self {
        Self::new("patch (merge)", Method::PATCH, path, Some(("application/merge-patch+json", patch)))
    }

    pub fn json_patch(path: &str, patch: Value) -> Self {
        Self::new("patch (json)", Method::PATCH, path, Some(("application/json-patch+json", patch)))
    }

    pub fn apply(path: &str, object: Value) -> Self {
        let path = format!("{path}?fieldManager=rig&force=true");
        Self::new("apply", Method::PATCH, &path, Some(("application/apply-patch+yaml", object)))
    }

    pub fn delete(path: &str) -> Self {
        Self::new("delete", Method::DELETE, path, None)
    }

    pub fn delete_collection(collection: &str) -> Self {
        Self::new("deletecollection", Method::DELETE, collection, None)
    }

    /// As somebody else, which takes a right of its own.
    #[must_use]
    pub fn impersonating(mut self, user: &str) -> Self {
        self.headers.push(("Impersonate-User", user.to_owned()));
        self
    }

    /// As somebody else whose token names a node.
    #[must_use]
    pub fn with_node_claim(mut self, node: &str) -> Self {
        self.headers.push(("Impersonate-Extra-authentication.kubernetes.io%2Fnode-name", node.to_owned()));
        self
    }

    pub fn is_write(&self) -> bool {
        self.method != Method::GET
    }

    pub async fn send(&self, client: &Client) -> Result<Answer> {
        let mut request = http::Request::builder().method(self.method.clone()).uri(&self.path);
        for (header, value) in &self.headers {
            request = request.header(*header, value);
        }
        let request = match &self.content {
            Some((kind, content)) => {
                request.header(CONTENT_TYPE, *kind).body(Body::from(serde_json::to_vec(content)?))?
            }
            None => request.body(Body::empty())?,
        };
        let answer = client.send(request).await?;
        let status = answer.status();
        if status.is_success() {
            return Ok(Answer { status, message: String::new() });
        }
        let said = answer.into_body().collect_bytes().await?;
        let said = String::from_utf8_lossy(&said).into_owned();
        let message = serde_json::from_str::<Value>(&said)
            .ok()
            .and_then(|status| Some(status["message"].as_str()?.to_owned()));
        Ok(Answer { status, message: message.unwrap_or(said) })
    }

    fn new(verb: &'static str, method: Method, path: &str, content: Option<(&'static str, Value)>) -> Self {
        Self { verb, method, path: path.to_owned(), content, headers: Vec::new() }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.verb, self.path)?;
        self.headers.iter().try_for_each(|(header, value)| write!(formatter, " {header}: {value}"))
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.status.as_u16(), self.message)
    }
}
