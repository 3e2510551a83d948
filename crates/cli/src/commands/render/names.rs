//! Names that the API server and the machine-config-operator take.

/// The longest name of an object.
const MAX_NAME: usize = 253;
/// The longest value of a label, which the name of a pool becomes.
const MAX_LABEL_VALUE: usize = 63;

/// The name of a pool.
pub(super) fn pool(text: &str) -> Result<String, String> {
    checked(text, MAX_LABEL_VALUE)
}

/// The name of a MachineConfig.
pub(super) fn object(text: &str) -> Result<String, String> {
    checked(text, MAX_NAME)
}

/// The name as it is, if it is one: parts of lower-case letters, digits and dashes, with dots between them.
fn checked(text: &str, most: usize) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_part = |part: &str| {
        part.starts_with(is_plain)
            && part.ends_with(is_plain)
            && part.chars().all(|c| is_plain(c) || c == '-')
    };
    if text.len() <= most && text.split('.').all(is_part) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "{text:?} must be made of at most {most} lower-case letters, digits, dashes and dots, with a letter or digit \
             at both ends of each part"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_dns() {
        for good in ["worker", "99-worker-nmstate-a.b", "a", "0"] {
            assert_eq!(object(good).as_deref(), Ok(good));
        }
        for bad in ["", "Worker", "a_b", "-a", "a-", "a..b", "a.-b", ".", "a/b", "ä", "a\n"] {
            assert!(object(bad).is_err(), "{bad:?}");
        }
        assert!(pool(&"a".repeat(63)).is_ok() && pool(&"a".repeat(64)).is_err());
        assert!(object(&"a".repeat(253)).is_ok() && object(&"a".repeat(254)).is_err());
    }
}
