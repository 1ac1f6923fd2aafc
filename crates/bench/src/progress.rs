//! What is said while it goes on: on a terminal one line that changes, else plain lines. A terminal that has gone is
//! no reason to stop.

use rustix::termios::tcgetwinsize;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Plain lines come no more often, unless they say something else than how far it is.
const PLAIN_EVERY: Duration = Duration::from_secs(10);

pub(crate) struct Progress {
    is_terminal: bool,
    said: Option<Instant>,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        let is_terminal = std::io::stderr().is_terminal();
        Progress {
            is_terminal,
            said: None,
        }
    }

    /// What is going on now, and for how long it will.
    pub(crate) fn say(&mut self, text: &str, left: Option<Duration>) {
        let left = left.map(|left| match (left.as_secs() / 60, left.as_secs() % 60) {
            (0, seconds) => format!(" · {seconds} s left"),
            (minutes, seconds) => format!(" · {minutes} min {seconds} s left"),
        });
        let text = format!("{text}{}", left.unwrap_or_default());
        if self.is_terminal {
            // So that it stays one line.
            let width = tcgetwinsize(std::io::stderr()).map_or(0, |size| usize::from(size.ws_col));
            let width = if width == 0 { 80 } else { width };
            put(&format!(
                "\r\x1b[K{}",
                text.chars().take(width - 1).collect::<String>()
            ));
        } else if self.said.is_none_or(|said| said.elapsed() >= PLAIN_EVERY) {
            self.said = Some(Instant::now());
            put(&format!("{text}\n"));
        }
    }

    /// Something to be kept.
    pub(crate) fn line(&self, text: &str) {
        self.clear();
        put(&format!("{text}\n"));
    }

    /// Takes the line that changes away.
    pub(crate) fn clear(&self) {
        put(if self.is_terminal { "\r\x1b[K" } else { "" });
    }
}

fn put(text: &str) {
    let mut output = std::io::stderr();
    let _ = output.write_all(text.as_bytes());
    let _ = output.flush();
}
