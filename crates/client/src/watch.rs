//! A watch that never hangs, and reports whether the API server responds.
//!
//! kube's own watcher reconnects silently and so cannot report when the server is back. The connection shows within half
//! a minute that a server does not respond; see [`connection`](crate::connection).

use std::{
    fmt::Debug,
    hash::{BuildHasher as _, RandomState},
    ops::RangeInclusive,
    pin::pin,
    time::Duration,
};

use futures::StreamExt as _;
use kube::{
    Api, Resource, ResourceExt as _,
    api::{ListParams, WatchEvent, WatchParams},
    core::DeserializeGuard,
};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};

use crate::call::{Backoff, CallError, FailureLog, within_limit};

/// After how many seconds the server ends a watch, which then begins again. The time is random, so that the watches of
/// all nodes do not begin again together.
const ROUND_SECONDS: RangeInclusive<u32> = 240..=360;
/// Servers send a bookmark every minute. A watch that has received nothing for this time begins again.
const LONGEST_SILENCE: Duration = Duration::from_secs(150);
/// After this time of a working watch, its next failure is the first one again.
const STABLE_AFTER: Duration = Duration::from_secs(30);
/// A watch that ends sooner was not served, and does not begin again at once.
const SHORTEST_ROUND: Duration = Duration::from_secs(1);

/// How many objects are listed at once.
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
    let mut version = None;
    let mut failures = FailureLog::new(doing);
    let mut backoff = Backoff::new();
    loop {
        let began = Instant::now();
        let end = round(&api, &selection, &mut version, &mut handle, || {
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

/// Lists, unless there is a version to watch from, then watches until the server ends the watch.
async fn round<K>(
    api: &Api<DeserializeGuard<K>>,
    selection: &Selection,
    version: &mut Option<String>,
    handle: &mut impl FnMut(ObjectEvent<K>),
    mut responded: impl FnMut(),
) -> Result<(), CallError>
where
    K: Resource + DeserializeOwned + Clone + Debug,
{
    if version.is_none() {
        let (listed, all) = list(api, selection).await?;
        *version = Some(listed);
        handle(ObjectEvent::All(all));
        responded();
    }
    let from = version.clone().unwrap_or_default();
    let stream = within_limit(api.watch(&selection.watch(), &from)).await?;
    responded();
    let mut stream = pin!(stream);
    loop {
        let Ok(event) = timeout(LONGEST_SILENCE, stream.next()).await else { return Ok(()) };
        let (new_version, event) = match event {
            None => return Ok(()),
            Some(Err(error)) => return Err(error.into()),
            Some(Ok(WatchEvent::Error(status))) => return Err(kube::Error::Api(status).into()),
            Some(Ok(WatchEvent::Bookmark(bookmark))) => (Some(bookmark.metadata.resource_version), None),
            Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                (object.resource_version(), Some(ObjectEvent::Changed(object)))
            }
            Some(Ok(WatchEvent::Deleted(object))) => {
                (object.resource_version(), Some(ObjectEvent::Gone(object)))
            }
        };
        *version = new_version;
        if let Some(event) = event {
            handle(event);
        }
    }
}

/// All objects, and the version of the list. The time limit is for each page.
async fn list<K>(
    api: &Api<DeserializeGuard<K>>,
    selection: &Selection,
) -> Result<(String, Vec<DeserializeGuard<K>>), CallError>
where
    K: Resource + DeserializeOwned + Clone + Debug,
{
    let mut all = Vec::new();
    let mut page = selection.list().limit(PAGE);
    loop {
        let list = within_limit(api.list(&page)).await?;
        all.extend(list.items);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok((list.metadata.resource_version.unwrap_or_default(), all)),
        }
    }
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
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        for (version, known, older) in
            [("9", "10", true), ("10", "9", false), ("10", "10", false), ("", "10", false), ("a", "b", false)]
        {
            assert_eq!(is_older(version, known), older, "{version} and {known}");
        }
    }
}
