//! All that commands print: text and JSON to standard output, messages to standard error. What a peer or a file name
//! says controls no terminal, whichever way it comes to be printed. A closed pipe (`| head`) is not an error.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use thrufs_hostdir::{printable, printable_json};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// Whether each line of standard error is a JSON object.
static REPORTS_JSON: AtomicBool = AtomicBool::new(false);

/// From now on, each line of standard error is a JSON object, as of the log.
pub(crate) fn report_as_json() {
    REPORTS_JSON.store(true, Ordering::Relaxed);
}

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
    let _ = write_report(&format!("{message}\n"));
}

/// Prints what is to be known of a mount or share to standard error, in one write, as the file may be shared. Lines begin
/// with its path, which is a field of JSON.
pub(crate) fn report_of(place: &Path, text: &str) {
    let text = match REPORTS_JSON.load(Ordering::Relaxed) {
        true => {
            let prefix = format!("thrufs: {}: ", place.display());
            let lines = text.lines().filter(|line| !line.is_empty());
            let object = |line: &str| {
                let message = line.strip_prefix(&prefix).unwrap_or(line);
                let place = place.to_string_lossy();
                json!({ "time": now(), "level": "INFO", "place": place, "message": message })
            };
            let objects = lines.map(|line| format!("{}\n", object(line)));
            lines_of(&objects.collect::<String>(), printable_json)
        }
        false => lines_of(&format!("{text}\n"), printable),
    };
    // It may be closed.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Prints why a command failed to standard error.
pub(crate) fn report_failure(message: impl Display) {
    let text = reported(&format!("{message}\n"), "ERROR");
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Writes lines of a message or a log to standard error.
///
/// # Errors
///
/// Those of write(2).
pub(crate) fn write_report(text: &str) -> io::Result<()> {
    io::stderr().write_all(reported(text, "INFO").as_bytes())
}

fn reported(text: &str, level: &str) -> String {
    match REPORTS_JSON.load(Ordering::Relaxed) {
        true => text
            .lines()
            .map(|line| as_json(line, level) + "\n")
            .collect(),
        false => lines_of(text, printable),
    }
}

/// The line itself if it is an object, and an object with it otherwise.
fn as_json(line: &str, level: &str) -> String {
    let line = match serde_json::from_str::<Map<String, Value>>(line) {
        Ok(_) => line.to_owned(),
        Err(_) => json!({ "time": now(), "level": level, "message": line }).to_string(),
    };
    printable_json(&line)
}

/// The time as in RFC 3339.
pub(crate) fn now() -> String {
    let mut now = String::new();
    let _ = SystemTime.format_time(&mut Writer::new(&mut now));
    now
}

/// Writes all of a text to standard error, also where a command has left that without blocking.
///
/// # Errors
///
/// Those of write(2), as where the command has shut a socket down.
pub(crate) fn report_surely(text: &str) -> io::Result<()> {
    write_to_standard_error(reported(text, "INFO").as_bytes())
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
    fn lines_are_objects_once_and_control_no_terminal() {
        let hostile = as_json("a \u{9b}\t\"b\"", "INFO");
        assert!(hostile.is_ascii(), "{hostile}");
        let object: Value = serde_json::from_str(&hostile).unwrap();
        assert_eq!(object["message"], "a \u{9b}\t\"b\"");
        assert_eq!(as_json(&hostile, "ERROR"), hostile);
        for no_object in ["", "5", "[1]", "{"] {
            let object: Value = serde_json::from_str(&as_json(no_object, "INFO")).unwrap();
            assert_eq!(
                (&object["message"], &object["level"]),
                (&json!(no_object), &json!("INFO"))
            );
        }
    }

    #[test]
    fn lines_stay_lines() {
        let text = "a\tb\u{9b}\n\nc\u{202e}";
        assert_eq!(lines_of(text, printable), "a\tb\\u{9b}\n\nc\\u{202e}");
        assert_eq!(lines_of(text, printable_json), "a\tb\\u009b\n\nc\\u202e");
    }
}
