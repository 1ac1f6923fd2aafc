//! Prints to standard output, text and JSON. A closed pipe (`| head`) is not an error.

use serde::Serialize;
use std::io::Write;

pub(crate) fn print(text: impl AsRef<[u8]>) {
    let _ = std::io::stdout().write_all(text.as_ref());
}

/// Indented JSON.
pub(crate) fn print_json(value: &impl Serialize) {
    let text = serde_json::to_string_pretty(value);
    print(text.expect("texts and numbers are always JSON") + "\n");
}
