//! Text from files made safe for a terminal.
//!
//! Names of layers and tensors are what a file says: escape sequences in them would drive the terminal, and a name of a
//! megabyte would flood it.

use std::fmt::Write;

/// Words longer than this are shortened.
const WORD: usize = 400;
/// Number of characters that are kept at the beginning and at the end.
const KEPT: [usize; 2] = [240, 80];

/// The text with everything escaped that a terminal would obey, and with very long words shortened. Line feeds stay.
pub fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (i, line) in text.split('\n').enumerate() {
        if i > 0 {
            out.push('\n');
        }
        for (j, word) in line.split(' ').enumerate() {
            if j > 0 {
                out.push(' ');
            }
            push_word(&mut out, word);
        }
    }
    out
}

/// The text of a table's cell: one line.
pub fn cell(text: &str) -> String {
    shown(text).replace('\n', "\\n")
}

/// JSON whose strings hold nothing that a terminal would obey; the values are the same.
pub fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push(c),
            c if obeyed(c) => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    // Writing to a string does not fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out
}

fn push_word(out: &mut String, word: &str) {
    // Bytes are at least as many as characters: most words are short and need no count.
    let count = if word.len() > WORD { word.chars().count() } else { 0 };
    if count <= WORD {
        return word.chars().for_each(|c| push(out, c));
    }
    word.chars().take(KEPT[0]).for_each(|c| push(out, c));
    let _ = write!(out, "[… {} characters …]", count - KEPT[0] - KEPT[1]);
    word.chars().skip(count - KEPT[1]).for_each(|c| push(out, c));
}

fn push(out: &mut String, c: char) {
    if obeyed(c) { out.extend(c.escape_default()) } else { out.push(c) }
}

/// Whether a terminal acts on a character instead of showing it: control codes, and marks that reverse the direction.
fn obeyed(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_terminals_obey_is_escaped() {
        assert_eq!(shown("a\u{1b}]0;x\u{7}b\r\nc\u{9b}2J"), "a\\u{1b}]0;x\\u{7}b\\r\nc\\u{9b}2J");
        assert_eq!(shown("\u{202e}evil"), "\\u{202e}evil");
        assert_eq!(shown("größe — ok  2"), "größe — ok  2");
        assert_eq!(cell("a\nb"), "a\\nb");
        let value = serde_json::json!({"name": "\u{1b}[2J \u{9b}\u{7f}\u{202e} ä"});
        let text = json(&value.to_string());
        assert!(!text.chars().any(obeyed), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).ok(), Some(value));
    }

    #[test]
    fn long_names_are_shortened() {
        let long = format!("layer \"{}\" fails", "ab".repeat(500_000));
        let text = shown(&long);
        assert!(
            text.len() < 500 && text.starts_with("layer \"abab") && text.ends_with("ab\" fails"),
            "{text}"
        );
    }
}
