//! How long certificates are valid, and how long two of them overlap.

use std::time::Duration;

use knmstate_api::nmstate::SelfSignConfiguration;

const HOUR: Duration = Duration::from_hours(1);
/// Validity has a resolution of one second.
const SHORTEST: Duration = Duration::from_secs(2);

/// When certificates are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotationIntervals {
    /// The lifetime of an authority.
    pub authority: Duration,
    /// How long before it expires an authority is replaced. Both are trusted in that time.
    pub authority_overlap: Duration,
    /// The lifetime of a certificate of the webhook.
    pub certificate: Duration,
    /// How long before it expires a certificate is replaced.
    pub certificate_overlap: Duration,
}

impl Default for RotationIntervals {
    fn default() -> Self {
        Self {
            authority: 8760 * HOUR,
            authority_overlap: 24 * HOUR,
            certificate: 4380 * HOUR,
            certificate_overlap: 24 * HOUR,
        }
    }
}

/// The intervals that the NMState asks for, and a remark for each value that had to be corrected. A missing value has its
/// default, reduced where it does not fit those that are given.
pub(crate) fn parse_intervals(wanted: Option<&SelfSignConfiguration>) -> (RotationIntervals, Vec<String>) {
    let nothing = SelfSignConfiguration::default();
    let wanted = wanted.unwrap_or(&nothing);
    let mut remarks = Vec::new();
    let mut read = |key: &str, text: Option<&String>| -> Option<Duration> {
        let text = text?;
        match go_duration(text) {
            Some(length) if length >= SHORTEST => Some(length),
            Some(_) => {
                remarks.push(format!(
                    "{key} is {text}, which is too short; {} is used",
                    format_duration(SHORTEST)
                ));
                Some(SHORTEST)
            }
            None => {
                remarks.push(format!(
                    "{key} is {text:?}, which is not a duration such as \"24h\"; the default is used"
                ));
                None
            }
        }
    };
    let authority = read("caRotateInterval", wanted.ca_rotate_interval.as_ref());
    let authority_overlap = read("caOverlapInterval", wanted.ca_overlap_interval.as_ref());
    let certificate = read("certRotateInterval", wanted.cert_rotate_interval.as_ref());
    let certificate_overlap = read("certOverlapInterval", wanted.cert_overlap_interval.as_ref());

    let default = RotationIntervals::default();
    let authority = authority.unwrap_or(default.authority);
    let mut at_most = |key: &str, wanted: Option<Duration>, default: Duration, most: Duration, of: &str| {
        if let Some(wanted) = wanted.filter(|wanted| *wanted > most) {
            remarks.push(format!(
                "{key} is {}, which is more than {of} allows; {} is used",
                format_duration(wanted),
                format_duration(most)
            ));
        }
        wanted.unwrap_or(default).min(most)
    };
    let certificate =
        at_most("certRotateInterval", certificate, default.certificate, authority, "caRotateInterval");
    // An overlap as long as the whole lifetime would replace a certificate as soon as it is created.
    let authority_overlap = at_most(
        "caOverlapInterval",
        authority_overlap,
        default.authority_overlap,
        authority / 2,
        "half of caRotateInterval",
    );
    let certificate_overlap = at_most(
        "certOverlapInterval",
        certificate_overlap,
        default.certificate_overlap,
        certificate / 2,
        "half of certRotateInterval",
    );
    (RotationIntervals { authority, authority_overlap, certificate, certificate_overlap }, remarks)
}

fn format_duration(length: Duration) -> String {
    let seconds = length.as_secs();
    if seconds > 0 && seconds.is_multiple_of(3600) {
        format!("{}h", seconds / 3600)
    } else {
        format!("{}s", length.as_secs_f64())
    }
}

/// A duration in Go's syntax: `1h30m`, `1.5h`, `100ms`. Fractions of a nanosecond are cut off.
fn go_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let nanoseconds: u128 = match unit {
            "h" => 3_600_000_000_000,
            "m" => 60_000_000_000,
            "s" => 1_000_000_000,
            "ms" => 1_000_000,
            "us" | "µs" | "μs" => 1_000,
            "ns" => 1,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let fraction = &fraction[..fraction.len().min(12)];
        let part: u128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
        let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
        let length = whole.checked_mul(nanoseconds)?.checked_add(part * nanoseconds / scale)?;
        total = total.checked_add(Duration::from_nanos(u64::try_from(length).ok()?))?;
        rest = after;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(texts: [&str; 4]) -> SelfSignConfiguration {
        let [ca_rotate, ca_overlap, cert_rotate, cert_overlap] =
            texts.map(|text| (!text.is_empty()).then(|| text.to_owned()));
        SelfSignConfiguration {
            ca_rotate_interval: ca_rotate,
            ca_overlap_interval: ca_overlap,
            cert_rotate_interval: cert_rotate,
            cert_overlap_interval: cert_overlap,
        }
    }

    #[test]
    fn missing_values_have_defaults_and_invalid_ones_are_corrected() {
        // Seconds: authority, its overlap, certificate, its overlap; and how many remarks.
        for (texts, seconds, remarks) in [
            (["", "", "", ""], [31_536_000, 86_400, 15_768_000, 86_400], 0),
            (["8760h0m0s", "24h0m0s", "4380h0m0s", "24h0m0s"], [31_536_000, 86_400, 15_768_000, 86_400], 0),
            // Part of the configuration is enough; defaults that do not fit are reduced without a remark.
            (["10h", "", "", ""], [36_000, 18_000, 36_000, 18_000], 0),
            (["", "", "10h", ""], [31_536_000, 86_400, 36_000, 18_000], 0),
            (["10h", "10h", "10h", "1h"], [36_000, 18_000, 36_000, 3600], 1),
            (["10h", "1h", "20h", "11h"], [36_000, 3600, 36_000, 18_000], 2),
            (["often", "1h", "1h", "1h"], [31_536_000, 3600, 3600, 1800], 2),
            (["12s", "4s", "8s", "3s"], [12, 4, 8, 3], 0),
            (["100h", "1ms", "", ""], [360_000, 2, 360_000, 86_400], 1),
        ] {
            let (found, remarked) = parse_intervals(Some(&wanted(texts)));
            let [authority, authority_overlap, certificate, certificate_overlap] =
                seconds.map(Duration::from_secs);
            assert_eq!(
                found,
                RotationIntervals { authority, authority_overlap, certificate, certificate_overlap },
                "{texts:?}"
            );
            assert_eq!(remarked.len(), remarks, "{texts:?}: {remarked:?}");
        }
        assert_eq!(parse_intervals(None), (RotationIntervals::default(), Vec::new()));
    }

    #[test]
    fn durations_have_the_syntax_of_go() {
        for (text, expected) in [
            ("1h", Some(3_600_000)),
            ("1h30m", Some(5_400_000)),
            ("8760h0m0s", Some(31_536_000_000)),
            ("1.5h", Some(5_400_000)),
            (".5s", Some(500)),
            ("1.s", Some(1000)),
            ("100ms", Some(100)),
            ("1000us", Some(1)),
            ("1000000ns", Some(1)),
            ("", None),
            ("5", None),
            ("h", None),
            ("1d", None),
            ("1h ", None),
            ("-1h", None),
            ("1.2.3s", None),
            ("99999999999999999999h", None),
            (".s", None),
        ] {
            assert_eq!(go_duration(text), expected.map(Duration::from_millis), "{text}");
        }
    }
}
