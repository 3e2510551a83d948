//! Every verb on an object, and the answers of the API server.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use kube::Client;
use rig::request::{Request, Response};
use serde_json::{Value, json};

/// An object that the attempts try to read or change.
pub struct Target {
    collection: String,
    name: String,
    api_version: String,
    kind: String,
    /// The name of an object of the kind that does not exist.
    new_name: String,
    /// A status to write, if the kind has one.
    status: Option<Value>,
    /// The reads that are not tried, because they are allowed.
    readable: &'static [Read],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    Get,
    List,
    Watch,
}

impl Target {
    pub fn new(api_version: &str, kind: &str, resource: &str, name: &str) -> Self {
        let group = if api_version.contains('/') { "apis" } else { "api" };
        Self {
            collection: format!("/{group}/{api_version}/{resource}"),
            name: name.to_owned(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            new_name: format!("{name}-new"),
            status: None,
            readable: &[],
        }
    }

    pub fn with_new_name(self, name: &str) -> Self {
        Self { new_name: name.to_owned(), ..self }
    }

    pub fn with_status(self, status: Value) -> Self {
        Self { status: Some(status), ..self }
    }

    pub fn readable(self, readable: &'static [Read]) -> Self {
        Self { readable, ..self }
    }

    /// Every verb, on the object, its collection and its status.
    pub async fn attempts(&self, admin: &Client) -> Result<Vec<Request>> {
        let path = format!("{}/{}", self.collection, self.name);
        let mut attempts = Vec::new();
        for (read, request) in [
            (Read::Get, Request::read(&path)),
            (Read::List, Request::read(&self.collection)),
            (Read::Watch, Request::watch(&self.collection)),
        ] {
            if !self.readable.contains(&read) {
                attempts.push(request);
            }
        }
        attempts.extend([
            Request::create(&self.collection, self.object(&self.new_name)),
            Request::apply(&format!("{}/{}", self.collection, self.new_name), self.object(&self.new_name)),
            Request::delete(&path),
            Request::delete_collection(&self.collection),
        ]);
        let mut mark = json!({"metadata": {"annotations": {"stolen": "yes"}}});
        attempts.extend(self.writes(admin, &path, &mark).await?);
        if let Some(status) = &self.status {
            let path = format!("{path}/status");
            mark = json!({"status": status});
            attempts.push(Request::read(&path));
            attempts.extend(self.writes(admin, &path, &mark).await?);
        }
        Ok(attempts)
    }

    /// All verbs that change an existing object.
    pub async fn writes(&self, admin: &Client, path: &str, change: &Value) -> Result<[Request; 4]> {
        let mut whole = read(admin, path).await?;
        let mut applied = self.object(&self.name);
        let mut operations = Vec::new();
        for (key, value) in change.as_object().into_iter().flatten() {
            if whole.get(key).is_none() {
                operations.push(json!({"op": "add", "path": format!("/{key}"), "value": {}}));
            }
            for (field, value) in value.as_object().into_iter().flatten() {
                whole[key][field] = value.clone();
                applied[key][field] = value.clone();
                operations.push(json!({"op": "add", "path": format!("/{key}/{field}"), "value": value}));
            }
        }
        Ok([
            Request::update(path, whole),
            Request::merge(path, change.clone()),
            Request::json_patch(path, operations.into()),
            Request::apply(path, applied),
        ])
    }

    pub fn path(&self) -> String {
        format!("{}/{}", self.collection, self.name)
    }

    fn object(&self, name: &str) -> Value {
        json!({"apiVersion": self.api_version, "kind": self.kind, "metadata": {"name": name}})
    }

    /// The resource versions of all objects of the kind.
    pub async fn versions(&self, admin: &Client) -> Result<BTreeMap<String, String>> {
        let list = read(admin, &self.collection).await?;
        let items = list["items"].as_array().context("a list")?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let versions = items.iter().map(|item| {
            let metadata = &item["metadata"];
            (format!("{}/{}", self.collection, text(&metadata["name"])), text(&metadata["resourceVersion"]))
        });
        Ok(versions.collect())
    }
}

pub async fn read(client: &Client, path: &str) -> Result<Value> {
    let request = http::Request::get(path).body(Vec::new())?;
    client.request(request).await.with_context(|| format!("reading {path}"))
}

/// The attempts and their results.
#[derive(Default)]
pub struct AttemptLog {
    pub count: usize,
    wrong: Vec<String>,
}

impl AttemptLog {
    pub async fn must_be_refused(
        &mut self,
        user: &str,
        client: &Client,
        request: &Request,
        message: &str,
    ) -> Result<()> {
        let answer = request.send(client).await?;
        // Any other error, such as "not found", means that the attempt itself is wrong.
        let refused = answer.status == http::StatusCode::FORBIDDEN && answer.message.contains(message);
        self.add(user, request, &answer, refused);
        Ok(())
    }

    pub async fn must_work(&mut self, user: &str, client: &Client, request: &Request) -> Result<()> {
        let answer = request.send(client).await?;
        self.add(user, request, &answer, answer.status.is_success());
        Ok(())
    }

    fn add(&mut self, user: &str, request: &Request, answer: &Response, as_expected: bool) {
        self.count += 1;
        let line = format!("{user}: {request}\n    {answer}");
        println!("{line}");
        if !as_expected {
            self.wrong.push(line);
        }
    }

    pub fn conclusion(self) -> Result<()> {
        println!("{} attempts, {} not as expected", self.count, self.wrong.len());
        anyhow::ensure!(self.wrong.is_empty(), "not as expected:\n{}", self.wrong.join("\n"));
        Ok(())
    }
}
