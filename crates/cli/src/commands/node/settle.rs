//! The end of a change that was left open.

use anyhow::Result;
use knmstate_agent::{commit_open_change, roll_back_open_change};

use super::{
    answer::Answer,
    machine::{Machine, MachineArgs, Rules},
};

/// Which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settling {
    Commit,
    RollBack,
}

pub async fn settle(settling: Settling, checkpoint: Option<&str>, machine: &MachineArgs) -> Result<Answer> {
    // Whether a change is in memory is in its note.
    let machine = match Machine::take(machine, Rules::default()).await? {
        Ok(machine) => machine,
        Err(answer) => return Ok(answer),
    };
    let settled = match settling {
        Settling::Commit => commit_open_change(&machine.host, checkpoint).await,
        Settling::RollBack => roll_back_open_change(&machine.host, checkpoint).await,
    };
    Ok(match settled {
        Ok(settled) => Answer::of_settled(settled),
        Err(error) => Answer::unknown(format!("{error}. {}", error.advice())),
    })
}
