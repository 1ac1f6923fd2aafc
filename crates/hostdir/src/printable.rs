//! Text that a peer or a user chose (names of files, answers, records), as text that controls no terminal.

use std::fmt::Write;

/// Whether a character is printed as one of its own, from left to right or right to left as it is by itself. Others
/// are control characters, those that change the direction of text, and combining ones.
fn is_plain(char: char) -> bool {
    matches!(char, '\'' | '"' | '\\') || char.escape_debug().len() == 1
}

/// The text with all other characters escaped, as in Rust.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        match is_plain(char) {
            true => shown.push(char),
            false => shown.extend(char.escape_debug()),
        }
    }
    shown
}

/// The same for a line of JSON, which stays the same JSON: serde_json escapes the control characters of ASCII alone.
pub fn printable_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for char in json.chars() {
        if is_plain(char) {
            shown.push(char);
            continue;
        }
        for unit in char.encode_utf16(&mut [0; 2]) {
            let _ = write!(shown, "\\u{unit:04x}");
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_controls_no_terminal_and_keeps_its_direction() {
        assert_eq!(printable("ä b'\"\\😀"), "ä b'\"\\😀");
        let hostile =
            "\u{1b}]0;x\u{7}\n\r\t\u{7f}\u{80}\u{9b}\u{200e}\u{202e}\u{2066}\u{2069}\u{e0001}";
        let shown = printable(hostile);
        assert!(
            shown.chars().all(|char| matches!(char, ' '..='~')),
            "{shown}"
        );
        assert_eq!(printable(&shown), shown);
        let json = printable_json(&serde_json::to_string(&[hostile, "ä"]).unwrap());
        assert!(
            json.chars().all(|char| matches!(char, ' '..='~' | 'ä')),
            "{json}"
        );
        let read: Vec<String> = serde_json::from_str(&json).unwrap();
        assert_eq!(read, [hostile, "ä"]);
    }
}
