//! Durations as users write them: `90s`, `5m`, `1h30m`, `500ms`.

use std::{borrow::Cow, fmt, str::FromStr, time};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::rules;

/// A duration longer than zero, in hours, minutes, seconds and milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Duration(time::Duration);

/// A text or a `std::time::Duration` that is not a valid [`Duration`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a duration such as \"90s\", \"5m\" or \"1h30m\", longer than zero and below 100000 hours"
)]
pub struct InvalidDuration(String);

/// The first duration that is too long: the hours of shorter ones have at most five digits.
const LIMIT: time::Duration = time::Duration::from_hours(100_000);

/// Units in the order in which they must be written, with their length in milliseconds and the maximum number of
/// digits: few enough that nothing can overflow, here or in the API server.
const UNITS: [(&str, u64, usize); 4] = [("h", 3_600_000, 5), ("m", 60_000, 6), ("s", 1000, 8), ("ms", 1, 9)];

/// The same as [`UNITS`], as a regular expression for the API server.
pub(crate) const PATTERN: &str = "^([0-9]{1,5}h)?([0-9]{1,6}m)?([0-9]{1,8}s)?([0-9]{1,9}ms)?$";

impl Duration {
    /// The duration for clocks and timers.
    pub const fn as_std(self) -> time::Duration {
        self.0
    }
}

impl FromStr for Duration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        let refused = || InvalidDuration(text.to_owned());
        let mut rest = text;
        let mut milliseconds = 0;
        for (unit, length, most_digits) in UNITS {
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (number, after) = rest.split_at(digits);
            let Some(after) = after.strip_prefix(unit) else { continue };
            // "5ms" also starts with "5m".
            if number.is_empty() || number.len() > most_digits || after.starts_with('s') {
                continue;
            }
            milliseconds += number.parse::<u64>().map_err(|_| refused())? * length;
            rest = after;
        }
        if !rest.is_empty() {
            return Err(refused());
        }
        Self::try_from(time::Duration::from_millis(milliseconds)).map_err(|_| refused())
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_millis();
        for (unit, length, _) in UNITS {
            let count = rest / u128::from(length);
            rest %= u128::from(length);
            if count > 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        Ok(())
    }
}

/// Truncates to milliseconds.
impl TryFrom<time::Duration> for Duration {
    type Error = InvalidDuration;

    fn try_from(length: time::Duration) -> Result<Self, InvalidDuration> {
        let milliseconds = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        if milliseconds == 0 || length >= LIMIT {
            return Err(InvalidDuration(format!("{length:?}")));
        }
        Ok(Self(time::Duration::from_millis(milliseconds)))
    }
}

impl TryFrom<String> for Duration {
    type Error = InvalidDuration;

    fn try_from(text: String) -> Result<Self, InvalidDuration> {
        text.parse()
    }
}

impl From<Duration> for String {
    fn from(duration: Duration) -> Self {
        duration.to_string()
    }
}

impl JsonSchema for Duration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": 32,
            "x-kubernetes-validations": [rules::duration()],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        for (text, milliseconds, written) in [
            ("1ms", 1, "1ms"),
            ("90s", 90_000, "1m30s"),
            ("5m", 300_000, "5m"),
            ("1h30m", 5_400_000, "1h30m"),
            ("8760h0m0s", 31_536_000_000, "8760h"),
            ("0h0m5s500ms", 5500, "5s500ms"),
            ("1h1ms", 3_600_001, "1h1ms"),
            ("1500ms", 1500, "1s500ms"),
        ] {
            let duration: Duration = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(duration.as_std(), time::Duration::from_millis(milliseconds), "{text}");
            assert_eq!(duration.to_string(), written);
            assert_eq!(written.parse(), Ok(duration), "what is written is read back");
        }
    }

    #[test]
    fn anything_else_is_refused_with_an_example() {
        for text in [
            "",
            "0s",
            "0h0m0s0ms",
            "5",
            "5 m",
            " 5m",
            "5m ",
            "5M",
            "-5m",
            "+5m",
            "1.5h",
            "5d",
            "m",
            "1m1h",
            "1s1s",
            "1us",
            "5ms5s",
            "100000h",
            "99999h60m",
            "1h1000000m",
            "five",
            "5ms1ms",
        ] {
            let error = text.parse::<Duration>().expect_err(text).to_string();
            assert!(error.contains("such as \"90s\""), "{error}");
        }
    }

    #[test]
    fn lengths_of_time_are_cut_to_milliseconds_and_bounded() {
        let duration = Duration::try_from(time::Duration::from_micros(1999)).unwrap();
        assert_eq!(duration.to_string(), "1ms");
        for wrong in [time::Duration::ZERO, time::Duration::from_micros(999), time::Duration::MAX] {
            assert!(Duration::try_from(wrong).is_err(), "{wrong:?} was taken");
        }
    }

    #[test]
    fn the_pattern_for_the_api_server_says_the_same_as_the_units() {
        let units = UNITS.map(|(unit, _, digits)| format!("([0-9]{{1,{digits}}}{unit})?"));
        assert_eq!(PATTERN, format!("^{}$", units.concat()));
    }
}
