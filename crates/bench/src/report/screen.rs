//! The width and colours of what a report for the terminal is written on.

use std::io::IsTerminal;
use std::os::fd::AsFd;

/// A terminal, or what stands in for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// Characters in a line.
    pub width: usize,
    /// Whether weight and colour may be used.
    pub colours: bool,
}

/// Of what is not a terminal.
const WIDTH_ELSEWHERE: usize = 120;
/// With less, tables are not made narrower.
const WIDTH_MIN: usize = 40;

impl Screen {
    /// A file.
    #[must_use]
    pub fn file() -> Screen {
        Screen {
            width: WIDTH_ELSEWHERE,
            colours: false,
        }
    }

    /// Standard output: as wide as its terminal; with colours if it is one, unless `NO_COLOR` is set.
    #[must_use]
    pub fn standard_output() -> Screen {
        Screen::of(&std::io::stdout())
    }

    /// Standard error, likewise.
    #[must_use]
    pub fn standard_error() -> Screen {
        Screen::of(&std::io::stderr())
    }

    fn of(output: &(impl IsTerminal + AsFd)) -> Screen {
        if !output.is_terminal() {
            return Screen::file();
        }
        let size = rustix::termios::tcgetwinsize(output);
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Screen {
            width: match size.map_or(0, |size| usize::from(size.ws_col)) {
                0 => 80,
                columns => columns.max(WIDTH_MIN),
            },
            colours: !refused && !dumb,
        }
    }
}
