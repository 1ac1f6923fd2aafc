//! All that commands print: text and JSON to standard output, messages to standard error. What a peer or a file name
//! says controls no terminal, whichever way it comes to be printed. A closed pipe (`| head`) is not an error.

use serde::Serialize;
use std::fmt::Display;
use std::io::Write;
use thrufs_hostdir::{printable, printable_json};

/// Prints lines to standard output.
pub(crate) fn print(text: impl AsRef<str>) {
    let _ = std::io::stdout().write_all(lines_of(text.as_ref(), printable).as_bytes());
}

/// Indented JSON.
pub(crate) fn print_json(value: &impl Serialize) {
    let text = serde_json::to_string_pretty(value);
    let text = text.expect("texts and numbers are always JSON") + "\n";
    let _ = std::io::stdout().write_all(lines_of(&text, printable_json).as_bytes());
}

/// Prints a message to standard error.
pub(crate) fn report(message: impl Display) {
    let text = format!("{message}\n");
    let _ = std::io::stderr().write_all(lines_of(&text, printable).as_bytes());
}

/// The text with what is between its line feeds and tabs changed.
pub(crate) fn lines_of(text: &str, change: fn(&str) -> String) -> String {
    let mut changed = String::with_capacity(text.len());
    for part in text.split_inclusive(['\n', '\t']) {
        let plain = part.trim_end_matches(['\n', '\t']);
        changed += &change(plain);
        changed += &part[plain.len()..];
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stay_lines() {
        let text = "a\tb\u{9b}\n\nc\u{202e}";
        assert_eq!(lines_of(text, printable), "a\tb\\u{9b}\n\nc\\u{202e}");
        assert_eq!(lines_of(text, printable_json), "a\tb\\u009b\n\nc\\u202e");
    }
}
