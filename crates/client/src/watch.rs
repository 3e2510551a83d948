//! A watch that never hangs, and reports whether the API server responds.
//!
//! kube's own watcher reconnects silently and so cannot report when the server is back. The connection shows within half
//! a minute that a server does not respond; see [`connection`](crate::connection).
//!
//! Objects are read one by one; see [`raw`](crate::raw). One that cannot be read is an event like any other.

use std::{
    fmt::Debug,
    hash::{BuildHasher as _, RandomState},
    ops::RangeInclusive,
    pin::pin,
    time::Duration,
};

use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{ListParams, WatchParams},
    core::{DeserializeGuard, Request},
};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    body::{next_line, whole_body},
    call::{Backoff, CallError, FailureLog, within_limit},
    raw::{Line, Page},
};

/// After how many seconds the server ends a watch, which then begins again. The time is random, so that the watches of
/// all nodes do not begin again together.
const ROUND_SECONDS: RangeInclusive<u32> = 240..=360;
/// Servers send a bookmark every minute. A watch that has received nothing for this time begins again.
const LONGEST_SILENCE: Duration = Duration::from_secs(150);
/// After this time of a working watch, its next failure is the first one again.
const STABLE_AFTER: Duration = Duration::from_secs(30);
/// A watch that ends sooner was not served, and does not begin again at once.
const SHORTEST_ROUND: Duration = Duration::from_secs(1);

/// How many objects are listed at once; fewer where that is too much for one response.
const PAGE: u32 = 500;

/// What a watch has received. An object that cannot be read is its metadata with an error.
#[derive(Debug)]
pub enum ObjectEvent<K> {
    /// These objects exist, and no others.
    All(Vec<DeserializeGuard<K>>),
    Changed(DeserializeGuard<K>),
    Gone(DeserializeGuard<K>),
}

/// Which objects to watch.
#[derive(Clone, Debug)]
pub enum Selection {
    All,
    Label(String),
    Name(String),
}

impl Selection {
    fn list(&self) -> ListParams {
        match self {
            Self::All => ListParams::default(),
            Self::Label(selector) => ListParams::default().labels(selector),
            Self::Name(name) => ListParams::default().fields(&format!("metadata.name={name}")),
        }
    }

    fn watch(&self) -> WatchParams {
        let params = match self {
            Self::All => WatchParams::default(),
            Self::Label(selector) => WatchParams::default().labels(selector),
            Self::Name(name) => WatchParams::default().fields(&format!("metadata.name={name}")),
        };
        params.timeout(round_seconds())
    }
}

fn round_seconds() -> u32 {
    let (least, most) = (*ROUND_SECONDS.start(), *ROUND_SECONDS.end());
    // The standard library's only source of randomness.
    let random = RandomState::new().hash_one(()) % u64::from(most - least + 1);
    least + u32::try_from(random).unwrap_or_default()
}

/// Watches for ever. `connected` is called with whether the server responds, `handle` with each event.
///
/// `doing` completes the log message "cannot …".
pub async fn follow<K>(
    api: Api<DeserializeGuard<K>>,
    selection: Selection,
    doing: &'static str,
    connected: impl Fn(bool),
    mut handle: impl FnMut(ObjectEvent<K>),
) where
    K: Resource + DeserializeOwned + Clone + Debug,
{
    let source =
        Source { request: Request::new(api.resource_url()), client: api.into_client(), doing, selection };
    let mut version = None;
    let mut failures = FailureLog::new(doing);
    let mut backoff = Backoff::new();
    loop {
        let began = Instant::now();
        let end = source
            .round(&mut version, &mut handle, || {
                connected(true);
                failures.succeeded();
            })
            .await;
        if began.elapsed() >= STABLE_AFTER {
            backoff = Backoff::new();
        }
        match end {
            Ok(()) if began.elapsed() >= SHORTEST_ROUND => backoff = Backoff::new(),
            Ok(()) => sleep(backoff.next_delay()).await,
            Err(error) => {
                let expired = error.code() == Some(410);
                if !expired {
                    connected(false);
                    failures.failed(&error);
                }
                // A server that has refused the watch may not have this version any more.
                if !matches!(error, CallError::NoAnswer) && !is_transport(&error) {
                    version = None;
                }
                sleep(backoff.next_delay()).await;
            }
        }
    }
}

/// What is watched.
struct Source {
    client: Client,
    /// Makes the requests for its kind.
    request: Request,
    selection: Selection,
    doing: &'static str,
}

impl Source {
    /// Lists, unless there is a version to watch from, then watches until the server ends the watch.
    async fn round<K>(
        &self,
        version: &mut Option<String>,
        handle: &mut impl FnMut(ObjectEvent<K>),
        mut responded: impl FnMut(),
    ) -> Result<(), CallError>
    where
        K: Resource + DeserializeOwned,
    {
        if version.is_none() {
            let (listed, all) = self.list().await?;
            *version = Some(listed);
            handle(ObjectEvent::All(all));
            responded();
        }
        let from = version.clone().unwrap_or_default();
        let request =
            self.request.watch(&self.selection.watch(), &from).map_err(kube::Error::BuildRequest)?;
        let stream = within_limit(self.client.request_stream(uncompressed(request))).await?;
        responded();
        let mut stream = pin!(stream);
        loop {
            let Ok(line) = timeout(LONGEST_SILENCE, next_line(&mut stream)).await else { return Ok(()) };
            let Some(line) = line? else { return Ok(()) };
            let event = match Line::read(&line).map_err(kube::Error::SerdeError)? {
                Line::Changed(object) => ObjectEvent::Changed(object),
                Line::Gone(object) => ObjectEvent::Gone(object),
                Line::Bookmark(new_version) => {
                    *version = Some(new_version);
                    continue;
                }
                Line::Error(status) => return Err(kube::Error::Api(status).into()),
                Line::LeftOut => {
                    self.left_out(1);
                    continue;
                }
                Line::Incomplete => continue,
            };
            if let ObjectEvent::Changed(object) | ObjectEvent::Gone(object) = &event {
                *version = object.resource_version();
            }
            handle(event);
        }
    }

    /// All objects, and the version of the list. The time limit is for each page.
    async fn list<K>(&self) -> Result<(String, Vec<DeserializeGuard<K>>), CallError>
    where
        K: DeserializeOwned,
    {
        let mut all = Vec::new();
        let mut left_out = 0;
        let mut size = PAGE;
        let mut params = self.selection.list();
        loop {
            params.limit = Some(size);
            let request = self.request.list(&params).map_err(kube::Error::BuildRequest)?;
            let body = match within_limit(whole_body(&self.client, request)).await? {
                Some(body) => body,
                None if size == 1 => return Err(CallError::TooLarge),
                None => {
                    size = (size / 4).max(1);
                    continue;
                }
            };
            let page = Page::read(&body).map_err(kube::Error::SerdeError)?;
            all.extend(page.objects);
            left_out += page.left_out;
            let Some(next) = page.next else {
                self.left_out(left_out);
                return Ok((page.version, all));
            };
            params = params.continue_token(&next);
        }
    }

    fn left_out(&self, count: usize) {
        if count > 0 {
            tracing::warn!(count, doing = self.doing, "objects without a readable name are left out");
        }
    }
}

/// Watches are not compressed: kube reads the first part of a compressed stream only.
fn uncompressed(mut request: http::Request<Vec<u8>>) -> http::Request<Vec<u8>> {
    let identity = http::HeaderValue::from_static("identity");
    request.headers_mut().insert(http::header::ACCEPT_ENCODING, identity);
    request
}

/// Whether the request or its response was lost on the way, which says nothing about the version.
fn is_transport(error: &CallError) -> bool {
    matches!(
        error,
        CallError::Failed(kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_))
    )
}

/// Whether `version` of an object is older than `known`. Versions that are no numbers have no order.
pub fn is_older(version: &str, known: &str) -> bool {
    matches!((version.parse::<u64>(), known.parse::<u64>()), (Ok(version), Ok(known)) if version < known)
}

#[cfg(test)]
mod tests;
