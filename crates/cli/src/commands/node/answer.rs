//! What a command has to say in the end: to a person, or to a program.

use std::{
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use anyhow::Result;
use knmstate_agent::{DirectChangeResult, SettleResult};
use knmstate_api::enactment::ProbeResult;
use knmstate_host::{Checkpoint, HostError};
use serde::Serialize;

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Applied and permanent.
    Changed,
    /// It was so already.
    Unchanged,
    /// Applied, and waiting to be committed or rolled back.
    Open,
    Committed,
    RolledBack,
    /// Nothing was changed.
    Refused,
    /// The arguments or the document cannot be understood; nothing was changed.
    NotUnderstood,
    /// Tried and taken back: the network is as before.
    Failed,
    /// The network is not known to be as before.
    Unknown,
}

impl Outcome {
    fn code(self) -> u8 {
        match self {
            Self::Changed | Self::Unchanged | Self::Open | Self::Committed | Self::RolledBack => 0,
            Self::Refused | Self::Failed => 1,
            Self::NotUnderstood => 2,
            Self::Unknown => 3,
        }
    }
}

/// One answer; what is printed with --json, key by key.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    pub result: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
    /// How long the change stays open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    pub message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<ProbeResult>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Answer {
    fn new(result: Outcome, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            result,
            checkpoint: None,
            timeout_seconds: None,
            message,
            probes: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn of(self, checkpoint: &Checkpoint) -> Self {
        Self { checkpoint: Some(checkpoint.to_string()), ..self }
    }

    pub fn refused(why: impl Into<String>) -> Self {
        Self::new(Outcome::Refused, why)
    }

    pub fn not_understood(why: impl Into<String>) -> Self {
        Self::new(Outcome::NotUnderstood, why)
    }

    /// What is open cannot be found out, and so neither what the network is like.
    pub fn unknown(why: impl Into<String>) -> Self {
        Self::new(Outcome::Unknown, why)
    }

    pub fn no_such_interface(name: Option<&str>) -> Self {
        Self::refused(format!("there is no interface {} on this machine", name.unwrap_or_default()))
    }

    /// Nothing was touched, for this reason.
    pub fn of_error(error: &HostError) -> Self {
        let result = match error {
            HostError::Invalid { .. } => Outcome::NotUnderstood,
            _ => Outcome::Refused,
        };
        let advice = match error {
            HostError::Busy { .. } => "Commit it or roll it back first, or wait until it is rolled back.",
            HostError::Unavailable { .. } => "Check that NetworkManager runs.",
            error => error.advice(),
        };
        Self::new(result, format!("{error}; nothing was changed. {advice}"))
    }

    /// `open_for` is how long the change was to be left open, if it was.
    pub fn of_end(end: DirectChangeResult, open_for: Option<Duration>) -> Self {
        let left_open = |answer: Self, checkpoint: &Checkpoint| match open_for {
            Some(time) => Self { timeout_seconds: Some(time.as_secs()), ..answer.of(checkpoint) },
            None => answer,
        };
        match end {
            DirectChangeResult::Unchanged { checkpoint: None } => {
                Self::new(Outcome::Unchanged, "everything is as desired already; nothing was touched")
            }
            DirectChangeResult::Unchanged { checkpoint: Some(checkpoint) } => {
                let message = "everything is as desired already; nothing was touched, and there is nothing to lose by \
                               committing or by rolling back";
                left_open(Self::new(Outcome::Unchanged, message), &checkpoint)
            }
            DirectChangeResult::Changed { checkpoint, probes, notes } => {
                let answer = match open_for {
                    None => Self::new(Outcome::Changed, "the state is applied, and permanent"),
                    Some(time) => Self::new(
                        Outcome::Open,
                        format!(
                            "the state is applied and not yet permanent: NetworkManager rolls it back in {} s unless \
                             it is committed before",
                            time.as_secs()
                        ),
                    ),
                };
                Self { probes, notes, ..left_open(answer, &checkpoint) }
            }
            DirectChangeResult::Refused(error) => Self::of_error(&error),
            DirectChangeResult::Failed { why, probes, as_before } => {
                let result = if as_before { Outcome::Failed } else { Outcome::Unknown };
                Self { probes, ..Self::new(result, why) }
            }
        }
    }

    pub fn of_settled(settled: SettleResult) -> Self {
        match settled {
            SettleResult::Committed { checkpoint } => {
                Self::new(Outcome::Committed, "the change is permanent").of(&checkpoint)
            }
            SettleResult::RolledBack { checkpoint } => {
                Self::new(Outcome::RolledBack, "the network is as it was before the change").of(&checkpoint)
            }
            SettleResult::Refused { checkpoint, why } => {
                Self { checkpoint: checkpoint.map(|name| name.to_string()), ..Self::refused(why) }
            }
            SettleResult::Lost { checkpoint, why } => Self::new(Outcome::Failed, why).of(&checkpoint),
            SettleResult::Unknown { checkpoint, why } => Self::new(Outcome::Unknown, why).of(&checkpoint),
        }
    }

    pub fn code(&self) -> ExitCode {
        ExitCode::from(self.result.code())
    }

    pub fn is_success(&self) -> bool {
        self.result.code() == 0
    }

    /// Says it: as JSON on standard output, or in words, which go to standard error when it went wrong.
    pub fn write(&self, out: &mut impl Write, json: bool) -> Result<ExitCode> {
        if json {
            serde_json::to_writer(&mut *out, self)?;
            writeln!(out)?;
        } else if self.is_success() {
            self.write_words(out)?;
        } else {
            self.write_words(&mut io::stderr())?;
        }
        out.flush()?;
        Ok(self.code())
    }

    fn write_words(&self, out: &mut impl Write) -> io::Result<()> {
        let who = if self.is_success() { "" } else { "knmstate: " };
        writeln!(out, "{who}{}", self.message)?;
        for note in &self.notes {
            writeln!(out, "note: {note}")?;
        }
        match &self.checkpoint {
            Some(checkpoint) if self.is_success() => writeln!(out, "checkpoint: {checkpoint}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_end_has_its_code_and_its_word() {
        let checkpoint = Checkpoint::new("/C/1");
        let changed =
            || DirectChangeResult::Changed { checkpoint: checkpoint.clone(), probes: vec![], notes: vec![] };
        let failed =
            |as_before| DirectChangeResult::Failed { why: "w".to_owned(), probes: vec![], as_before };
        let invalid = HostError::Invalid { place: knmstate_host::Place::document(), why: "w".to_owned() };
        let busy = HostError::Busy { checkpoint: checkpoint.clone(), rolls_back_in: None };
        let minute = Some(Duration::from_mins(1));
        for (end, open_for, word, code) in [
            (DirectChangeResult::Unchanged { checkpoint: None }, None, "unchanged", 0),
            (DirectChangeResult::Unchanged { checkpoint: Some(checkpoint.clone()) }, minute, "unchanged", 0),
            (changed(), None, "changed", 0),
            (changed(), minute, "open", 0),
            (DirectChangeResult::Refused(invalid), None, "not-understood", 2),
            (DirectChangeResult::Refused(busy), None, "refused", 1),
            (failed(true), None, "failed", 1),
            (failed(false), None, "unknown", 3),
        ] {
            let answer = Answer::of_end(end.clone(), open_for);
            let shown = serde_json::to_value(&answer).unwrap();
            assert_eq!((&shown["result"], answer.result.code()), (&json!(word), code), "{end:?}");
            assert_eq!(shown.get("checkpoint").is_some(), open_for.is_some(), "{end:?}");
            assert_eq!(shown.get("timeoutSeconds").is_some(), open_for.is_some(), "{end:?}");
        }
    }
}
