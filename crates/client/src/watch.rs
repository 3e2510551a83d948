//! A watch that never hangs: it knows at any time whether the API server is there.
//!
//! kube's own watcher resumes in silence and so cannot say when the server is back; and on a quiet cluster it takes
//! minutes to notice that a server has stopped answering without closing its connections.

use std::{fmt::Debug, pin::pin, time::Duration};

use futures::StreamExt as _;
use kube::{
    Api, Resource, ResourceExt as _,
    api::{ListParams, WatchEvent, WatchParams},
    core::DeserializeGuard,
};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};

use crate::call::{CallError, Pauses, Trouble, within_limit};

/// The server ends a watch after this time, and it is begun anew. That is the sign of life on a quiet cluster, and
/// costs one request that is served from memory.
const ROUND_SECONDS: u32 = 30;
/// A server that has not even ended the watch by then is not there.
const SILENCE: Duration = Duration::from_secs(ROUND_SECONDS as u64 + 5);
/// A watch that ends sooner was not served, and is not begun anew at once.
const SHORTEST_ROUND: Duration = Duration::from_secs(1);

/// How many objects are listed at once.
const PAGE: u32 = 500;

/// What a watch has seen. An object that cannot be read is a name with a reason.
#[derive(Debug)]
pub enum Seen<K> {
    /// These are there, and no others.
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
        params.timeout(ROUND_SECONDS)
    }
}

/// Watches for ever. `connected` is told whether the server answers, `see` what it says.
pub async fn follow<K>(
    api: Api<DeserializeGuard<K>>,
    selection: Selection,
    doing: &'static str,
    connected: impl Fn(bool),
    mut see: impl FnMut(Seen<K>),
) where
    K: Resource + DeserializeOwned + Clone + Debug,
{
    let mut version = None;
    let mut trouble = Trouble::new(doing);
    let mut pauses = Pauses::new();
    loop {
        let began = Instant::now();
        let end = round(&api, &selection, &mut version, &mut see, || {
            connected(true);
            trouble.over();
        })
        .await;
        // The pauses grow only as long as nothing works.
        if began.elapsed() >= SILENCE {
            pauses = Pauses::new();
        }
        match end {
            Ok(()) if began.elapsed() >= SHORTEST_ROUND => pauses = Pauses::new(),
            Ok(()) => sleep(pauses.longer()).await,
            Err(error) => {
                let expired = error.code() == Some(410);
                if !expired {
                    connected(false);
                    trouble.failed(&error);
                }
                // A server that has answered, but not with what was asked for, may have forgotten this version.
                if !matches!(error, CallError::NoAnswer) && !is_transport(&error) {
                    version = None;
                }
                sleep(pauses.longer()).await;
            }
        }
    }
}

/// Lists if need be, then watches until the server ends it.
async fn round<K>(
    api: &Api<DeserializeGuard<K>>,
    selection: &Selection,
    version: &mut Option<String>,
    see: &mut impl FnMut(Seen<K>),
    mut answered: impl FnMut(),
) -> Result<(), CallError>
where
    K: Resource + DeserializeOwned + Clone + Debug,
{
    if version.is_none() {
        let (listed, all) = list(api, selection).await?;
        *version = Some(listed);
        see(Seen::All(all));
        answered();
    }
    let from = version.clone().unwrap_or_default();
    let stream = within_limit(api.watch(&selection.watch(), &from)).await?;
    answered();
    let mut stream = pin!(stream);
    loop {
        let Ok(event) = timeout(SILENCE, stream.next()).await else { return Err(CallError::NoAnswer) };
        let (new_version, seen) = match event {
            None => return Ok(()),
            Some(Err(error)) => return Err(error.into()),
            Some(Ok(WatchEvent::Error(status))) => return Err(kube::Error::Api(status).into()),
            Some(Ok(WatchEvent::Bookmark(bookmark))) => (Some(bookmark.metadata.resource_version), None),
            Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                (object.resource_version(), Some(Seen::Changed(object)))
            }
            Some(Ok(WatchEvent::Deleted(object))) => (object.resource_version(), Some(Seen::Gone(object))),
        };
        *version = new_version;
        if let Some(seen) = seen {
            see(seen);
        }
    }
}

/// All objects, in pages of which each is answered in time, and the version of the whole.
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

/// Whether the failure is one of the way to the server, which says nothing about what the server knows.
fn is_transport(error: &CallError) -> bool {
    matches!(
        error,
        CallError::Failed(kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_))
    )
}

/// Whether `version` of an object was there before `known`. Versions that are no numbers have no order.
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
