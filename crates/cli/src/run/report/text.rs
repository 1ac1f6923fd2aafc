//! Names that the command chose, as text that controls no terminal.

use std::fmt::Write;
use thrufs_hostdir::printable;

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

/// Keeps the end of what is longer than `width` characters.
pub(super) fn shortened(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let kept = text.chars().skip(length + 1 - width.max(1));
    std::iter::once('…').chain(kept).collect()
}
