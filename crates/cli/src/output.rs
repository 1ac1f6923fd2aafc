//! All that commands print: text and JSON to standard output, messages to standard error. What a peer or a file name
//! says controls no terminal, whichever way it comes to be printed. A closed pipe (`| head`) is not an error.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use thrufs_hostdir::{printable, printable_json};

/// Prints lines to standard output.
pub(crate) fn print(text: impl AsRef<str>) {
    let _ = io::stdout().write_all(lines_of(text.as_ref(), printable).as_bytes());
}

/// Indented JSON.
pub(crate) fn print_json(value: &impl Serialize) {
    let text = serde_json::to_string_pretty(value);
    let text = text.expect("texts and numbers are always JSON") + "\n";
    let _ = io::stdout().write_all(lines_of(&text, printable_json).as_bytes());
}

/// Prints a message to standard error.
pub(crate) fn report(message: impl Display) {
    let text = format!("{message}\n");
    let _ = io::stderr().write_all(lines_of(&text, printable).as_bytes());
}

/// Writes all of a text to standard error, also where a command has left that without blocking.
///
/// # Errors
///
/// Those of write(2), as where the command has shut a socket down.
pub(crate) fn report_surely(text: &str) -> io::Result<()> {
    write_to_standard_error(lines_of(text, printable).as_bytes())
}

fn write_to_standard_error(mut rest: &[u8]) -> io::Result<()> {
    let stderr = io::stderr();
    while !rest.is_empty() {
        match rustix::io::write(stderr.as_fd(), rest) {
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], None);
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Ends what a command may have begun on the terminal: a sequence (CAN, ST), which would take in what is written next,
/// and attributes (SGR 0), which could make it invisible.
pub(crate) fn reset_terminal() -> io::Result<()> {
    match io::stderr().is_terminal() {
        true => write_to_standard_error(b"\x18\x1b\\\x1b[0m"),
        false => Ok(()),
    }
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
