//! The syntax of references: `{{ values.ip }}`.

use std::fmt;

/// A part of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    Text(&'a str),
    Reference {
        /// The text between the braces.
        inside: &'a str,
        /// The text with the braces.
        written: &'a str,
    },
}

/// What a reference refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reference<'a> {
    /// The name of the capture; the node resolves the rest.
    Capture(&'a str),
    Value(&'a str),
    NodeName,
    Label(&'a str),
}

impl fmt::Display for Reference<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capture(name) => write!(formatter, "capture.{name}"),
            Self::Value(key) if is_word(key) => write!(formatter, "values.{key}"),
            Self::Value(key) => write!(formatter, "values[{key:?}]"),
            Self::NodeName => formatter.write_str("node.name"),
            Self::Label(label) => write!(formatter, "node.labels[{label:?}]"),
        }
    }
}

/// The parts of a string. A reference ends at the first closing braces, also inside quotes.
pub(super) fn parts(text: &str) -> Result<Vec<Part<'_>>, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(begin) = rest.find("{{") {
        if begin > 0 {
            parts.push(Part::Text(&rest[..begin]));
        }
        let Some(length) = rest[begin..].find("}}") else {
            return Err("a reference starts with {{ but has no closing }}".to_owned());
        };
        let end = begin + length + 2;
        parts.push(Part::Reference { inside: &rest[begin + 2..end - 2], written: &rest[begin..end] });
        rest = &rest[end..];
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest));
    }
    Ok(parts)
}

/// Whether a string has opening braces followed by one of our prefixes, so that it is meant as a reference.
pub(super) fn is_meant(text: &str) -> bool {
    text.match_indices("{{").any(|(at, _)| {
        let inside = text[at + 2..].trim_start();
        ["capture", "values", "node"]
            .iter()
            .any(|prefix| inside.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(['.', '['])))
    })
}

impl<'a> Reference<'a> {
    /// Parses the text between the braces.
    pub(super) fn read(inside: &'a str) -> Result<Self, String> {
        let inside = inside.trim();
        if let Some(path) = inside.strip_prefix("capture.") {
            return Ok(Self::Capture(path.split('.').next().unwrap_or_default().trim()));
        }
        if let Some(key) = inside.strip_prefix("values") {
            let key = key.strip_prefix('.').filter(|key| is_word(key)).or_else(|| in_brackets(key));
            return key
                .map(Self::Value)
                .ok_or_else(|| format!("{inside} is not a reference: write values.key or values[\"key\"]"));
        }
        if let Some(what) = inside.strip_prefix("node.") {
            if what == "name" {
                return Ok(Self::NodeName);
            }
            let label = what.strip_prefix("labels").and_then(in_brackets);
            return label.map(Self::Label).ok_or_else(|| {
                format!("{inside} is not a reference: write node.name or node.labels[\"key\"]")
            });
        }
        Err(format!(
            "{inside} is not a reference: it must start with capture, values, node.name or node.labels"
        ))
    }
}

fn in_brackets(text: &str) -> Option<&str> {
    let inside = text.strip_prefix('[')?.strip_suffix(']')?.trim();
    let key = ['"', '\''].into_iter().find_map(|quote| inside.strip_prefix(quote)?.strip_suffix(quote))?;
    (!key.is_empty() && !key.contains(['"', '\''])).then_some(key)
}

/// Whether a key can be written without brackets and quotes.
fn is_word(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read() {
        for (inside, expected) in [
            (" capture.default-gw.interfaces.0.name ", Some(Reference::Capture("default-gw"))),
            ("capture.x", Some(Reference::Capture("x"))),
            (" values.ip ", Some(Reference::Value("ip"))),
            ("values[\"a.b\"]", Some(Reference::Value("a.b"))),
            ("values['a b']", Some(Reference::Value("a b"))),
            ("node.name", Some(Reference::NodeName)),
            (
                " node.labels[\"topology.kubernetes.io/zone\"] ",
                Some(Reference::Label("topology.kubernetes.io/zone")),
            ),
            ("node.labels['rack']", Some(Reference::Label("rack"))),
            ("", None),
            ("values", None),
            ("values.", None),
            ("values.a.b", None),
            ("values.a b", None),
            ("values[]", None),
            ("values[\"\"]", None),
            ("valuesip", None),
            ("node", None),
            ("node.uid", None),
            ("node.labels", None),
            ("node.labels.rack", None),
            ("foo.bar", None),
            ("captures.x", None),
        ] {
            assert_eq!(Reference::read(inside).ok(), expected, "{inside}");
        }
    }

    #[test]
    fn a_printed_reference_is_parsed_again() {
        for reference in
            [Reference::Value("ip"), Reference::Value("a.b"), Reference::NodeName, Reference::Label("a/b")]
        {
            assert_eq!(Reference::read(&reference.to_string()), Ok(reference));
        }
    }

    #[test]
    fn only_braces_with_a_prefix_are_references_in_a_secret() {
        for (text, expected) in [
            ("{{ values.x }}", true),
            ("a{{node.name}}", true),
            ("{{capture.x.y}}", true),
            ("{{ valuesx }}", false),
            ("p{{x}}", false),
            ("values.x", false),
        ] {
            assert_eq!(is_meant(text), expected, "{text}");
        }
    }
}
