//! A recording of all enactments, version by version, as the API server had them.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use knmstate_api::NodeNetworkConfigurationEnactment as Enactment;
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, WatchEvent, WatchParams},
};
use rig::wait;
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::recording::{Entry, RolloutRecording};

/// The server ends a watch by itself after this time, so that one which hangs is noticed.
const ROUND_SECONDS: u32 = 20;
const SILENCE: Duration = Duration::from_secs(25);
const PAUSE: Duration = Duration::from_millis(100);
const CATCH_UP: Duration = Duration::from_secs(30);

/// Records from its start until it is dropped.
#[derive(Debug)]
pub struct Recorder {
    enactments: Api<Enactment>,
    recording: Arc<Mutex<RolloutRecording>>,
    task: JoinHandle<()>,
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Recorder {
    /// Begins with the existing enactments, and misses no version from then on.
    pub async fn start(enactments: Api<Enactment>) -> Result<Self> {
        let recording = Arc::default();
        let version = list(&enactments, &recording).await?;
        let task = tokio::spawn(record(enactments.clone(), Arc::clone(&recording), version));
        Ok(Self { enactments, recording, task })
    }

    /// What is recorded so far.
    pub fn so_far(&self) -> MutexGuard<'_, RolloutRecording> {
        lock(&self.recording)
    }

    /// The recording, complete up to the current state of the server.
    pub async fn caught_up(&self) -> Result<RolloutRecording> {
        wait::until(CATCH_UP, "the recording to be complete", async || {
            let versions = |list: Vec<Enactment>| -> Vec<_> {
                let mut all: Vec<_> =
                    list.iter().map(|one| (one.name_any(), one.resource_version())).collect();
                all.sort();
                all
            };
            let there = versions(self.enactments.list(&ListParams::default()).await?.items);
            let recording = self.so_far().clone();
            let recorded = versions(recording.last().into_values().collect());
            ensure!(recorded == there, "recorded {recorded:?}, there {there:?}");
            Ok(recording)
        })
        .await
    }
}

async fn record(enactments: Api<Enactment>, recording: Arc<Mutex<RolloutRecording>>, mut version: String) {
    loop {
        match follow(&enactments, &recording, &mut version).await {
            Ok(()) => {}
            // The server no longer has what came after this version: the gap is counted.
            Err(kube::Error::Api(status)) if status.code == 410 => {
                lock(&recording).gaps += 1;
                while let Err(error) = list(&enactments, &recording).await.map(|new| version = new) {
                    println!("the recorder: {error}");
                    sleep(PAUSE).await;
                }
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

async fn list(enactments: &Api<Enactment>, recording: &Arc<Mutex<RolloutRecording>>) -> kube::Result<String> {
    let list = enactments.list(&ListParams::default()).await?;
    lock(recording).entries.push(Entry::All(list.items));
    Ok(list.metadata.resource_version.unwrap_or_default())
}

/// Watches until the server ends the watch, or sends nothing for too long.
async fn follow(
    enactments: &Api<Enactment>,
    recording: &Arc<Mutex<RolloutRecording>>,
    version: &mut String,
) -> kube::Result<()> {
    let params = WatchParams::default().timeout(ROUND_SECONDS);
    let mut events = enactments.watch(&params, version).await?.boxed();
    while let Ok(Some(event)) = timeout(SILENCE, events.try_next()).await.unwrap_or(Ok(None)) {
        let (new, entry) = match event {
            WatchEvent::Added(one) | WatchEvent::Modified(one) => {
                (one.resource_version(), Some(Entry::Present(Box::new(one))))
            }
            WatchEvent::Deleted(one) => (one.resource_version(), Some(Entry::Deleted(Box::new(one)))),
            WatchEvent::Bookmark(bookmark) => (Some(bookmark.metadata.resource_version), None),
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
        };
        *version = new.unwrap_or_default();
        lock(recording).entries.extend(entry);
    }
    Ok(())
}

fn lock(recording: &Arc<Mutex<RolloutRecording>>) -> MutexGuard<'_, RolloutRecording> {
    recording.lock().unwrap_or_else(PoisonError::into_inner)
}
