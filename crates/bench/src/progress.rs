//! What is said while it goes on: on a terminal one line that changes and a table that is drawn anew, else
//! plain lines. A terminal that has gone is no reason to stop.

use rustix::termios::tcgetwinsize;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Plain lines come no more often, unless they say something else than how far it is.
const PLAIN_EVERY: Duration = Duration::from_secs(10);
/// The width of what is no terminal.
const WIDTH: usize = 100;

/// How a table is drawn.
type Drawn<'a> = &'a dyn Fn() -> String;

pub(crate) struct Progress {
    is_terminal: bool,
    said: Option<Instant>,
    /// Lines of the table that stands on the terminal.
    drawn: usize,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        Progress {
            is_terminal: std::io::stderr().is_terminal(),
            said: None,
            drawn: 0,
        }
    }

    /// What is going on now, and for how long it will.
    pub(crate) fn say(&mut self, text: &str, left: Option<Duration>) {
        let left = left.map(|left| format!(" · {} left", spoken(left)));
        let text = format!("{text}{}", left.unwrap_or_default());
        if self.is_terminal {
            self.put(&format!("\r\x1b[K{}", shortened(&text, width())));
        } else if self.said.is_none_or(|said| said.elapsed() >= PLAIN_EVERY) {
            self.said = Some(Instant::now());
            self.put(&format!("{text}\n"));
        }
    }

    /// Another process has written to the terminal: the table is no longer where it was drawn.
    pub(crate) fn leave_table(&mut self) {
        self.drawn = 0;
    }

    /// Something to be kept.
    pub(crate) fn line(&mut self, text: &str) {
        self.clear();
        self.drawn = 0;
        self.put(&format!("{text}\n"));
    }

    /// What is known after a round: in place of what was known before, where there is room for it.
    pub(crate) fn table(&mut self, done: u32, rounds: u32, drawn: Drawn<'_>) {
        if !self.is_terminal {
            self.put(&format!("round {done} of {rounds} is done\n"));
            return;
        }
        let size = tcgetwinsize(std::io::stderr()).map(|size| size.ws_row);
        let text = drawn();
        let lines = text.lines().count();
        if lines + 2 > usize::from(size.unwrap_or_default()) {
            return;
        }
        self.erase();
        self.put(&text);
        self.drawn = lines;
    }

    /// The table at the end, on standard output.
    pub(crate) fn result(&mut self, drawn: Drawn<'_>) {
        self.erase();
        let text = drawn();
        let mut output = std::io::stdout();
        let _ = writeln!(output, "{text}");
        let _ = output.flush();
    }

    /// Takes the line that changes away.
    pub(crate) fn clear(&mut self) {
        if self.is_terminal {
            self.put("\r\x1b[K");
        }
    }

    fn erase(&mut self) {
        self.clear();
        if self.drawn > 0 {
            self.put(&format!("\x1b[{}A\x1b[J", self.drawn));
            self.drawn = 0;
        }
    }

    fn put(&self, text: &str) {
        let mut output = std::io::stderr();
        let _ = output.write_all(text.as_bytes());
        let _ = output.flush();
    }
}

fn width() -> usize {
    let size = tcgetwinsize(std::io::stderr()).map(|size| size.ws_col);
    match usize::from(size.unwrap_or_default()) {
        0 => WIDTH,
        columns => columns,
    }
}

/// For people: `1 min 20 s`.
fn spoken(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds / 60 {
        0 => format!("{seconds} s"),
        minutes => format!("{minutes} min {} s", seconds % 60),
    }
}

/// So that it stays one line.
fn shortened(text: &str, width: usize) -> String {
    text.chars().take(width.saturating_sub(1)).collect()
}
