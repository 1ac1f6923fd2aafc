//! The [commands](Command) of the program `thrufs-client`: list, print and mount a share, measure and check
//! servers, over any vhost-user-fs socket. `main.rs` parses the command line.

mod bench;
mod cat;
mod conform;
mod connection;
mod list;
mod mount;
mod outcome;
mod share;
mod show;
mod window;

pub use bench::{Bench, Target, row_names};
pub use cat::Cat;
pub use conform::{Conform, check_names};
pub use connection::Connection;
pub use list::Ls;
pub use mount::Mount;
pub use outcome::{Outcome, ToolError};
pub use window::WindowBench;

use share::Share;
use std::io::{self, Write};

/// A command with its arguments.
#[derive(Clone, Debug)]
pub enum Command {
    /// Lists a directory.
    Ls(Ls),
    /// Prints files.
    Cat(Cat),
    /// Benchmarks servers side by side.
    Bench(Bench),
    /// Measures reads through a DAX window.
    Window(WindowBench),
    /// Checks a server for conformance.
    Conform(Conform),
    /// Mounts the share on this machine, until it is unmounted.
    Mount(Mount),
}

/// Runs a command with its output to `out`.
///
/// # Errors
///
/// When it could not run. A failed check of `conform` is an [`Outcome`].
pub fn run(
    connection: &Connection,
    command: &Command,
    out: &mut dyn Write,
) -> Result<Outcome, ToolError> {
    match carry_out(connection, command, out) {
        // EPIPE, as of `| head`, is no failure.
        Err(ToolError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            Ok(Outcome::Done)
        }
        outcome => outcome,
    }
}

fn carry_out(
    connection: &Connection,
    command: &Command,
    out: &mut dyn Write,
) -> Result<Outcome, ToolError> {
    let mut outcome = Outcome::Done;
    match command {
        Command::Ls(ls) => list::ls(&Share::mount(connection)?, ls, out)?,
        Command::Cat(cat) => cat::cat(&Share::mount(connection)?, cat, out)?,
        Command::Bench(bench) => bench::run(connection, bench, out)?,
        Command::Window(bench) => window::run(connection, bench, out)?,
        Command::Mount(mount) => mount::mount(connection, mount, out)?,
        Command::Conform(conform) => outcome = conform::run(connection, conform, out)?,
    }
    out.flush()?;
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Gone;

    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let list = Command::Conform(Conform {
            list: true,
            ..Conform::default()
        });
        let outcome = run(&Connection::to("/nowhere"), &list, &mut Gone);
        assert!(outcome.unwrap().is_success());
    }
}
