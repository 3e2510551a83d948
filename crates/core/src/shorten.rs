//! Limits to the length of texts that others have written.

use std::borrow::Cow;

const ELLIPSIS: &str = "…";

/// The text if it has at most this many bytes, or else its beginning with an ellipsis, in as many.
pub fn shorten(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return text.into();
    }
    let end = text.floor_char_boundary(most.saturating_sub(ELLIPSIS.len()));
    format!("{}{ELLIPSIS}", &text[..end]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        for (text, most, expected) in [
            ("", 5, ""),
            ("abcde", 5, "abcde"),
            ("abcdef", 5, "ab…"),
            // Each of these has two bytes.
            ("äöü", 6, "äöü"),
            ("äöüß", 6, "ä…"),
            ("äöüß", 7, "äö…"),
        ] {
            assert_eq!(shorten(text, most), expected, "{text} in {most}");
            assert!(expected.len() <= most);
        }
    }
}
