//! Changes that cannot be rolled back: when they are given up, and what is known about them then.

use std::fmt;

use jiff::Timestamp;

/// After so many failed attempts a change is given up.
const MAX_ATTEMPTS: usize = 6;
/// After so many in a row whose errors say that another attempt cannot help, too. Not after the first: an interface
/// that is missing may appear.
const MAX_FINAL_ATTEMPTS: usize = 3;

/// Longer reasons are cut, and longer lists of interfaces, because they become part of an object of the cluster.
const MAX_REASON_BYTES: usize = 500;
const MAX_INTERFACES: usize = 20;

/// Whether a change is given up after these failed attempts, oldest first. Each says whether its error was final, so
/// that another attempt cannot help.
pub fn is_given_up(attempts: &[bool]) -> bool {
    let final_ones = attempts.iter().rev().take_while(|is_final| **is_final).count();
    attempts.len() >= MAX_ATTEMPTS || final_ones >= MAX_FINAL_ATTEMPTS
}

/// A change that could not be rolled back and was given up. It has no secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetAside {
    /// When it was given up.
    pub time: Timestamp,
    /// The interfaces that the change may have touched; empty when that is not known.
    pub interfaces: Vec<String>,
    /// Why it could not be rolled back.
    pub why: String,
    /// The file on the host with everything else, for root only.
    pub file: String,
}

impl SetAside {
    /// The same, cut to a size that is bounded.
    #[must_use]
    pub fn clamped(mut self) -> Self {
        if self.interfaces.len() > MAX_INTERFACES {
            let more = self.interfaces.len() - MAX_INTERFACES;
            self.interfaces.truncate(MAX_INTERFACES);
            self.interfaces.push(format!("and {more} more"));
        }
        if self.why.len() > MAX_REASON_BYTES {
            self.why.truncate(self.why.floor_char_boundary(MAX_REASON_BYTES));
            self.why.push_str(" …");
        }
        self
    }
}

impl fmt::Display for SetAside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { interfaces, why, file, .. } = self;
        let of = if interfaces.is_empty() { String::new() } else { format!(" of {}", interfaces.join(", ")) };
        write!(
            f,
            "a change{of} cannot be rolled back and was given up: {why}; what is known about it is in {file}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_given_up_after_some_attempts_and_earlier_when_no_attempt_can_help() {
        for (attempts, expected) in [
            (&[][..], false),
            (&[true, true], false),
            (&[true, true, true], true),
            (&[true, true, false, true, true], false),
            (&[false, true, true, true], true),
            (&[false; 5], false),
            (&[false; 6], true),
            (&[false; 9], true),
        ] {
            assert_eq!(is_given_up(attempts), expected, "{attempts:?}");
        }
    }

    #[test]
    fn what_is_reported_is_bounded() {
        let long = SetAside {
            time: Timestamp::UNIX_EPOCH,
            interfaces: (0..1000).map(|number| format!("eth{number}")).collect(),
            why: "ä".repeat(10_000),
            file: "/j".to_owned(),
        };
        let short = long.clamped();
        assert_eq!((short.interfaces.len(), &*short.interfaces[20]), (21, "and 980 more"));
        assert!(short.why.len() < 510 && short.why.ends_with("ä …"), "{}", short.why);
    }
}
