//! A text that is drawn again and again: on a terminal in place, by sequences that each knows (ECMA-48), and else once.
//! No mode of the terminal is changed, so that nothing has to be undone, however this process ends.

use crate::output::{lines_of, print};
use rustix::termios::tcgetwinsize;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;
use thrufs_hostdir::printable;

/// Where it goes to no terminal.
const COLUMNS: usize = 100;

/// Between two drawings, at least.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Reads a number of seconds.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok();
    let interval = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let interval = interval.filter(|interval| *interval >= INTERVAL_MIN);
    interval.ok_or_else(|| "it is no number of seconds from 0.1 on".to_owned())
}

/// Shows what `draw` makes for so many columns, until the terminal is gone.
pub(crate) fn refresh(interval: Duration, mut draw: impl FnMut(usize) -> String) {
    let mut stdout = io::stdout();
    if !stdout.is_terminal() {
        return print(draw(COLUMNS));
    }
    let is_dumb = std::env::var_os("TERM").is_none_or(|name| name.is_empty() || name == "dumb");
    let mut begin = "\x1b[2J\x1b[H";
    loop {
        let size = tcgetwinsize(&stdout).ok().filter(|size| size.ws_col > 0);
        let columns = size.map_or(COLUMNS, |size| size.ws_col.into());
        let rows = size.map_or(usize::MAX, |size| size.ws_row.into());
        let text = lines_of(&draw(columns), printable);
        let shown = match is_dumb {
            true => text + "\n",
            false => {
                let lines = text.lines().take(rows.saturating_sub(1));
                let cut = |line: &str| line.chars().take(columns).collect::<String>();
                // The rest of each line, and of the screen, is cleared last: nothing flickers.
                let lines = lines.map(|line| cut(line) + "\x1b[K\n");
                format!("{begin}{}\x1b[J", lines.collect::<String>())
            }
        };
        let written = stdout.write_all(shown.as_bytes());
        if written.and_then(|()| stdout.flush()).is_err() {
            return;
        }
        begin = "\x1b[H";
        std::thread::sleep(interval);
    }
}
