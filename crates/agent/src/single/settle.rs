//! The end of a change that was left open: by whoever knows of it, in whichever process.

use knmstate_core::enactment::BACK_AS_BEFORE;
use knmstate_host::{Checkpoint, Guard, Host, HostError, OpenCheckpoint};

/// How settling a change ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    Committed {
        checkpoint: Checkpoint,
    },
    RolledBack {
        checkpoint: Checkpoint,
    },
    /// There is nothing to settle, or not by this. The reason is a sentence.
    Refused {
        checkpoint: Option<Checkpoint>,
        why: String,
    },
    /// It could not be committed, and the network is as before the change.
    Lost {
        checkpoint: Checkpoint,
        why: String,
    },
    /// What the network is like is not known.
    Unknown {
        checkpoint: Checkpoint,
        why: String,
    },
}

/// Makes a change permanent that was left open: the one that is open, or the one that is named.
pub async fn commit<H: Host>(host: &H, named: Option<&str>) -> Result<Settled, HostError> {
    let open = match find(host, named).await? {
        Ok(open) => open,
        Err(refused) => return Ok(refused),
    };
    let checkpoint = open.checkpoint;
    if open.guard == Guard::Lost {
        let why =
            "NetworkManager was restarted while the change was open, and nobody knows what it has kept of it";
        return Ok(put_back(host, checkpoint, why).await);
    }
    if open.left_open.is_none() {
        let why = format!(
            "checkpoint {checkpoint} was not left open to be committed: whoever made the change did not finish it, or \
             its time is over. Roll it back"
        );
        return Ok(Settled::Refused { checkpoint: Some(checkpoint), why });
    }
    match host.commit(&checkpoint).await {
        Ok(()) => Ok(Settled::Committed { checkpoint }),
        Err(HostError::CheckpointGone { .. }) => {
            let why = "its time passed, or NetworkManager was restarted, at this very moment";
            Ok(put_back(host, checkpoint, why).await)
        }
        Err(error) => Ok(Settled::Unknown { checkpoint, why: error.to_string() }),
    }
}

/// Puts the network back as it was before the change that is open, or before the one that is named.
pub async fn roll_back<H: Host>(host: &H, named: Option<&str>) -> Result<Settled, HostError> {
    let open = match find(host, named).await? {
        Ok(open) => open,
        Err(refused) => return Ok(refused),
    };
    let checkpoint = open.checkpoint;
    Ok(match host.roll_back(&checkpoint).await {
        Ok(()) => Settled::RolledBack { checkpoint },
        Err(HostError::CheckpointGone { .. }) => {
            Settled::Refused { why: gone(&checkpoint), checkpoint: Some(checkpoint) }
        }
        Err(error) => Settled::Unknown { checkpoint, why: error.to_string() },
    })
}

async fn find<H: Host>(host: &H, named: Option<&str>) -> Result<Result<OpenCheckpoint, Settled>, HostError> {
    let open = host.open_checkpoints().await?;
    let is_meant = |open: &&OpenCheckpoint| match named {
        Some(name) => open.checkpoint.as_str() == name,
        None => open.ours,
    };
    let found = open.iter().find(is_meant).cloned();
    Ok(match (found, named) {
        (Some(found), _) if found.ours => Ok(found),
        (Some(found), _) => {
            let why = HostError::NotOurs { checkpoint: found.checkpoint.clone() }.to_string();
            Err(Settled::Refused { checkpoint: Some(found.checkpoint), why })
        }
        (None, Some(name)) => {
            let checkpoint = Checkpoint::new(name);
            let mut why = gone(&checkpoint);
            if let Some(other) = open.iter().find(|open| open.ours) {
                why = format!("{why}. Another change is open: {}", other.checkpoint);
            }
            Err(Settled::Refused { checkpoint: Some(checkpoint), why })
        }
        (None, None) => {
            let why = "no change is open: it was settled before, or its time passed and NetworkManager has rolled it \
                       back, so that the change is gone";
            Err(Settled::Refused { checkpoint: None, why: why.to_owned() })
        }
    })
}

fn gone(checkpoint: &Checkpoint) -> String {
    format!(
        "there is no open change with checkpoint {checkpoint}: it was settled before, or its time passed and \
         NetworkManager has rolled it back, so that the change is gone"
    )
}

async fn put_back<H: Host>(host: &H, checkpoint: Checkpoint, why: &str) -> Settled {
    match host.roll_back(&checkpoint).await {
        Ok(()) => Settled::Lost { why: format!("{why}{BACK_AS_BEFORE}"), checkpoint },
        Err(HostError::CheckpointGone { .. }) => {
            Settled::Refused { why: gone(&checkpoint), checkpoint: Some(checkpoint) }
        }
        Err(error) => {
            Settled::Unknown { why: format!("{why}, and rolling back was not possible: {error}"), checkpoint }
        }
    }
}
