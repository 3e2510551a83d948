//! The statuses of an order over time.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use futures::{StreamExt as _, pin_mut};
use knmstate_api::names;
use kube::api::{ListParams, WatchEvent, WatchParams};
use serde_json::Value;
use tokio::task::AbortHandle;

use super::{HandlerFixture, NODE};

/// Every status that an enactment had since the recording began; it ends when dropped.
pub(super) struct StatusRecording {
    statuses: Arc<Mutex<Vec<Value>>>,
    task: AbortHandle,
}

impl StatusRecording {
    /// To be called before the order is written.
    pub(super) async fn start(fixture: &HandlerFixture, policy: &str) -> Result<Self> {
        let statuses = Arc::new(Mutex::new(Vec::new()));
        let recorded = statuses.clone();
        let version = fixture.enactments.list(&ListParams::default()).await?.metadata.resource_version;
        let name = format!("metadata.name={}", names::enactment_name(NODE, policy));
        let params = WatchParams::default().fields(&name).timeout(290);
        let stream = fixture.enactments.watch(&params, &version.unwrap_or_default()).await?.boxed();
        let task = tokio::spawn(async move {
            pin_mut!(stream);
            while let Some(Ok(WatchEvent::Added(now) | WatchEvent::Modified(now))) = stream.next().await {
                let status = serde_json::to_value(now.status).unwrap_or_default();
                recorded.lock().unwrap_or_else(PoisonError::into_inner).push(status);
            }
        });
        Ok(Self { statuses, task: task.abort_handle() })
    }

    pub(super) fn statuses(&self) -> Vec<Value> {
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for StatusRecording {
    fn drop(&mut self) {
        self.task.abort();
    }
}
