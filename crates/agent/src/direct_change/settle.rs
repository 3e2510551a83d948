//! Commits or rolls back a change that was left open, in whichever process.

use knmstate_core::enactment::ROLLED_BACK;
use knmstate_host::{Checkpoint, Guard, Host, HostError, OpenCheckpoint};

/// How settling a change ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettleResult {
    /// The change is permanent.
    Committed { checkpoint: Checkpoint },
    /// The network is as it was before the change.
    RolledBack { checkpoint: Checkpoint },
    /// No change is open, or the open one must not be settled in this way. The reason is a sentence.
    Refused { checkpoint: Option<Checkpoint>, why: String },
    /// The change could not be committed and was rolled back.
    Lost { checkpoint: Checkpoint, why: String },
    /// The state of the network is not known.
    Unknown { checkpoint: Checkpoint, why: String },
}

/// Commits a change that was left open: the one that is open, or the one with the checkpoint `named`. Fails when the
/// host cannot list its open changes.
pub async fn commit_open_change<H: Host>(host: &H, named: Option<&str>) -> Result<SettleResult, HostError> {
    let open = match find(host, named).await? {
        Ok(open) => open,
        Err(refused) => return Ok(refused),
    };
    let checkpoint = open.checkpoint;
    if open.guard == Guard::Lost {
        let why =
            "NetworkManager was restarted while the change was open, and what it has kept of it is not known";
        return Ok(roll_back_lost(host, checkpoint, why).await);
    }
    if open.left_open.is_none() {
        let why = format!(
            "checkpoint {checkpoint} was not left open to be committed: the program that made the change did not finish \
             it, or its time is over. Roll it back"
        );
        return Ok(SettleResult::Refused { checkpoint: Some(checkpoint), why });
    }
    match host.commit(&checkpoint).await {
        Ok(()) => Ok(SettleResult::Committed { checkpoint }),
        Err(HostError::CheckpointGone { .. }) => {
            let why = "its time passed, or NetworkManager was restarted, at this moment";
            Ok(roll_back_lost(host, checkpoint, why).await)
        }
        Err(error) => Ok(SettleResult::Unknown { checkpoint, why: error.to_string() }),
    }
}

/// Rolls back the change that is open, or the one with the checkpoint `named`. Fails when the host cannot list its open
/// changes.
pub async fn roll_back_open_change<H: Host>(
    host: &H,
    named: Option<&str>,
) -> Result<SettleResult, HostError> {
    let open = match find(host, named).await? {
        Ok(open) => open,
        Err(refused) => return Ok(refused),
    };
    let checkpoint = open.checkpoint;
    Ok(match host.roll_back(&checkpoint).await {
        Ok(()) => SettleResult::RolledBack { checkpoint },
        Err(HostError::CheckpointGone { .. }) => {
            SettleResult::Refused { why: gone(&checkpoint), checkpoint: Some(checkpoint) }
        }
        Err(error) => SettleResult::Unknown { checkpoint, why: error.to_string() },
    })
}

async fn find<H: Host>(
    host: &H,
    named: Option<&str>,
) -> Result<Result<OpenCheckpoint, SettleResult>, HostError> {
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
            Err(SettleResult::Refused { checkpoint: Some(found.checkpoint), why })
        }
        (None, Some(name)) => {
            let checkpoint = Checkpoint::new(name);
            let mut why = gone(&checkpoint);
            if let Some(other) = open.iter().find(|open| open.ours) {
                why = format!("{why}. Another change is open: {}", other.checkpoint);
            }
            Err(SettleResult::Refused { checkpoint: Some(checkpoint), why })
        }
        (None, None) => {
            let why = "no change is open: it was settled before, or its time passed and NetworkManager has rolled it \
                       back, so that the change is gone";
            Err(SettleResult::Refused { checkpoint: None, why: why.to_owned() })
        }
    })
}

fn gone(checkpoint: &Checkpoint) -> String {
    format!(
        "there is no open change with checkpoint {checkpoint}: it was settled before, or its time passed and \
         NetworkManager has rolled it back, so that the change is gone"
    )
}

async fn roll_back_lost<H: Host>(host: &H, checkpoint: Checkpoint, why: &str) -> SettleResult {
    match host.roll_back(&checkpoint).await {
        Ok(()) => SettleResult::Lost { why: format!("{why}{ROLLED_BACK}"), checkpoint },
        Err(HostError::CheckpointGone { .. }) => {
            SettleResult::Refused { why: gone(&checkpoint), checkpoint: Some(checkpoint) }
        }
        Err(error) => SettleResult::Unknown {
            why: format!("{why}, and rolling back was not possible: {error}"),
            checkpoint,
        },
    }
}
