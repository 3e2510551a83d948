//! YAML that is easy to read, and that all parsers read in the same way.

use std::io;

use serde::{Serialize, Serializer};
use serde_json::Value;

/// Texts longer than this are written as literal blocks if they would need quotes and escapes otherwise.
const WIDTH: usize = 80;

/// Writes a value as one YAML document. Fails when the value cannot be represented in JSON.
pub fn document(value: &impl Serialize) -> io::Result<String> {
    let value = serde_json::to_value(value)?;
    let yaml = serde_saphyr::to_string(&Readable(&value)).map_err(io::Error::other)?;
    Ok(without_blank_indents(&yaml))
}

struct Readable<'a>(&'a Value);

impl Serialize for Readable<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(map) => {
                serializer.collect_map(map.iter().map(|(key, value)| (key, Readable(value))))
            }
            Value::Array(list) => serializer.collect_seq(list.iter().map(Readable)),
            Value::String(text) if text.chars().count() > WIDTH && is_quoted(text) => {
                serde_saphyr::LitStr(text).serialize(serializer)
            }
            Value::Number(number) => match whole(number) {
                Some(whole) => whole.serialize(serializer),
                None => number.serialize(serializer),
            },
            value => value.serialize(serializer),
        }
    }
}

/// Whether the text would be written in quotes, which makes a long one hard to read.
fn is_quoted(text: &str) -> bool {
    serde_saphyr::to_string(&text).is_ok_and(|yaml| yaml.starts_with(['"', '\'']))
}

/// The number as an integer, if it is one: bounds in schemas are floating-point numbers in the Kubernetes API, and `1`
/// reads better than `1.0`.
fn whole(number: &serde_json::Number) -> Option<i64> {
    number.as_i64().or_else(|| number.as_f64()?.to_string().parse().ok())
}

/// Without the blanks that the library writes in the empty lines of a text: parsers ignore them, linters complain.
fn without_blank_indents(yaml: &str) -> String {
    let lines = yaml.lines().map(|line| if line.trim().is_empty() { "" } else { line });
    lines.flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_that_look_like_another_type_are_quoted() {
        for text in
            ["no", "on", "Off", "y", "1", "1.5", "0777", "12:30:45", "2024-01-01", "::1", "null", "~", ""]
        {
            let yaml = document(&json!({ "a": text })).unwrap();
            assert!(yaml.starts_with("a: \"") || yaml.starts_with("a: '"), "{text:?} is written as {yaml}");
        }
    }

    #[test]
    fn long_texts_are_written_without_escapes_and_read_back_equal() {
        let long = "words and \"quotes\" ".repeat(8);
        for text in [
            long.trim().to_owned(),
            format!("a: {}", long.trim()),
            format!("{}\n\n- item: one\n- item: two", long.trim()),
            format!("'{long}' + \"x\" # {}", "[0-9]{1,5}".repeat(10)),
        ] {
            let yaml = document(&json!({ "text": text, "next": 1 })).unwrap();
            assert!(!yaml.contains("\\\""), "{yaml}");
            assert!(
                yaml.lines().all(|line| line.trim_end() == line),
                "blanks at the end of a line in {yaml:?}"
            );
            let read: Value = serde_saphyr::from_str(&yaml).unwrap();
            assert_eq!(read, json!({ "text": text, "next": 1 }), "{yaml}");
        }
    }

    #[test]
    fn whole_numbers_have_no_fraction() {
        let yaml = document(&json!([1.0, 65535.0, 1.5, -3, u64::MAX])).unwrap();
        assert_eq!(yaml, "- 1\n- 65535\n- 1.5\n- -3\n- 18446744073709551615\n");
    }
}
