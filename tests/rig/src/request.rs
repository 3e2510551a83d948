//! Single requests to an API server, any verb on any path, for tests of what the API server refuses.

use std::fmt;

use anyhow::Result;
use http::{Method, StatusCode, header::CONTENT_TYPE};
use kube::{Client, client::Body};
use serde_json::Value;

/// A request. The constructors have the names of the verbs of Kubernetes.
#[derive(Clone, Debug)]
pub struct Request {
    verb: &'static str,
    method: Method,
    path: String,
    content: Option<(&'static str, Value)>,
    headers: Vec<(&'static str, String)>,
}

/// The API server's response to a request.
#[derive(Clone, Debug)]
pub struct Response {
    pub status: StatusCode,
    /// Why the request was refused; empty if it succeeded.
    pub message: String,
}

impl Request {
    /// Gets one object, or lists a collection.
    pub fn read(path: &str) -> Self {
        Self::new("read", Method::GET, path, None)
    }

    /// Watches a collection for a second. The response does not have the events.
    pub fn watch(collection: &str) -> Self {
        let query = if collection.contains('?') { '&' } else { '?' };
        Self::new("watch", Method::GET, &format!("{collection}{query}watch=1&timeoutSeconds=1"), None)
    }

    /// Creates an object.
    pub fn create(collection: &str, object: Value) -> Self {
        Self::new("create", Method::POST, collection, Some(("application/json", object)))
    }

    /// Replaces an object.
    pub fn update(path: &str, object: Value) -> Self {
        Self::new("update", Method::PUT, path, Some(("application/json", object)))
    }

    /// Changes an object by a merge patch.
    pub fn merge(path: &str, patch: Value) -> Self {
        Self::new("patch (merge)", Method::PATCH, path, Some(("application/merge-patch+json", patch)))
    }

    /// Changes an object by a JSON patch.
    pub fn json_patch(path: &str, patch: Value) -> Self {
        Self::new("patch (json)", Method::PATCH, path, Some(("application/json-patch+json", patch)))
    }

    /// Applies an object by server-side apply, with force.
    pub fn apply(path: &str, object: Value) -> Self {
        let path = format!("{path}?fieldManager=rig&force=true");
        Self::new("apply", Method::PATCH, &path, Some(("application/apply-patch+yaml", object)))
    }

    /// Deletes an object.
    pub fn delete(path: &str) -> Self {
        Self::new("delete", Method::DELETE, path, None)
    }

    /// Deletes all objects of a collection.
    pub fn delete_collection(collection: &str) -> Self {
        Self::new("deletecollection", Method::DELETE, collection, None)
    }

    /// Impersonates a user. The client needs the right to do that.
    #[must_use]
    pub fn impersonating(mut self, user: &str) -> Self {
        self.headers.push(("Impersonate-User", user.to_owned()));
        self
    }

    /// Impersonates a user whose token has the claim of this node.
    #[must_use]
    pub fn with_node_claim(mut self, node: &str) -> Self {
        self.headers.push(("Impersonate-Extra-authentication.kubernetes.io%2Fnode-name", node.to_owned()));
        self
    }

    /// Whether the request can change anything.
    pub fn is_write(&self) -> bool {
        self.method != Method::GET
    }

    /// Sends the request. Fails only if there is no response.
    pub async fn send(&self, client: &Client) -> Result<Response> {
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
        let response = client.send(request).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(Response { status, message: String::new() });
        }
        let body = response.into_body().collect_bytes().await?;
        let body = String::from_utf8_lossy(&body).into_owned();
        let message = serde_json::from_str::<Value>(&body)
            .ok()
            .and_then(|status| Some(status["message"].as_str()?.to_owned()));
        Ok(Response { status, message: message.unwrap_or(body) })
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

impl fmt::Display for Response {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.status.as_u16(), self.message)
    }
}
