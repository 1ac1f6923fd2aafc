//! Names that the command chose, as text that controls no terminal.

use std::fmt::Write;

/// A path from a record, or `.` for the tree itself. Bytes that are not UTF-8 are given as `\xff`, from
/// `hex`.
pub(super) fn path(path: &str, hex: Option<&str>) -> String {
    let Some(bytes) = hex.and_then(bytes) else {
        return if path.is_empty() {
            ".".to_owned()
        } else {
            printable(path)
        };
    };
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(&printable(chunk.valid()));
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.map(byte).collect()
}

/// Escapes, as in Rust, what is not printed as a character of its own: control characters, those that
/// change the direction of text, and combining ones.
pub(crate) fn printable(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for char in name.chars() {
        match char {
            '\'' | '"' => text.push(char),
            other => text.extend(other.escape_debug()),
        }
    }
    text
}

/// Keeps the end of what is longer than `width` characters.
pub(super) fn shortened(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let kept = text.chars().skip(length + 1 - width.max(1));
    std::iter::once('…').chain(kept).collect()
}

/// JSON in ASCII: escapes in JSON leave some characters as they are that control terminals.
pub(super) fn ascii_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for char in json.chars() {
        if matches!(char, ' '..='~') {
            text.push(char);
            continue;
        }
        for unit in char.encode_utf16(&mut [0; 2]) {
            let _ = write!(text, "\\u{unit:04x}");
        }
    }
    text
}
