//! Labels of metrics from texts that handlers report. A handler could report a new one each time, and every label is a
//! series that the controller and Prometheus keep.

use std::collections::BTreeSet;

/// The label of everything that has none of its own.
pub(crate) const OTHER: &str = "other";

/// The length of a longest label: that of a probe's name, in bytes.
const MAX_LENGTH: usize = 63;

/// Labels of one metric, up to a number of them.
#[derive(Debug, Default)]
pub(crate) struct Labels(BTreeSet<String>);

impl Labels {
    /// The label for a reported text: that text, or [`OTHER`] if it is too long or there are `most` labels already.
    pub(crate) fn label<'a>(&mut self, reported: &'a str, most: usize) -> &'a str {
        if self.0.contains(reported) {
            return reported;
        }
        if reported.len() > MAX_LENGTH || self.0.len() >= most {
            return OTHER;
        }
        self.0.insert(reported.to_owned());
        reported
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_limited_in_length_and_number() {
        let mut labels = Labels::default();
        let longest = "x".repeat(63);
        let too_long = "x".repeat(64);
        for (reported, expected) in [
            ("a", "a"),
            (&*too_long, OTHER),
            (&*longest, &*longest),
            ("b", "b"),
            ("c", OTHER),
            ("a", "a"),
            ("b", "b"),
        ] {
            assert_eq!(labels.label(reported, 3), expected, "{reported}");
        }
    }
}
