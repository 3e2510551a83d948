//! Every version of the objects of a kind, as a watch shows them.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use futures::{StreamExt as _, pin_mut};
use kube::{
    Api, Resource,
    api::{ListParams, WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;
use tokio::task::AbortHandle;

/// All versions since the start of the recording, which ends when dropped.
pub(crate) struct WatchRecording<K> {
    seen: Arc<Mutex<Vec<K>>>,
    task: AbortHandle,
}

impl<K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static> WatchRecording<K> {
    pub(crate) async fn start(api: &Api<K>) -> Result<Self> {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let recorded = seen.clone();
        let version = api.list(&ListParams::default()).await?.metadata.resource_version.unwrap_or_default();
        let stream = api.watch(&WatchParams::default().timeout(290), &version).await?.boxed();
        let task = tokio::spawn(async move {
            pin_mut!(stream);
            while let Some(Ok(
                WatchEvent::Added(now) | WatchEvent::Modified(now) | WatchEvent::Deleted(now),
            )) = stream.next().await
            {
                recorded.lock().unwrap_or_else(PoisonError::into_inner).push(now);
            }
        });
        Ok(Self { seen, task: task.abort_handle() })
    }

    pub(crate) fn seen(&self) -> Vec<K> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<K> Drop for WatchRecording<K> {
    fn drop(&mut self) {
        self.task.abort();
    }
}
