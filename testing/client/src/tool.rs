//! The [commands](Command) of the program `thrufs-client`: mount a share and measure servers, over any
//! vhost-user-fs socket. `main.rs` parses the command line.

mod bench;
mod connection;
mod error;
mod mount;
mod share;
mod window;

pub use bench::{Bench, Target, row_names};
pub use connection::Connection;
pub use error::ToolError;
pub use mount::Mount;
pub use window::WindowBench;

use std::io::{self, Write};

/// A command with its arguments.
#[derive(Clone, Debug)]
pub enum Command {
    /// Benchmarks servers side by side.
    Bench(Bench),
    /// Measures reads through a DAX window.
    Window(WindowBench),
    /// Mounts the share on this machine, until it is unmounted.
    Mount(Mount),
}

/// Runs a command with its output to `out`.
///
/// # Errors
///
/// When it could not run.
pub fn run(
    connection: &Connection,
    command: &Command,
    out: &mut dyn Write,
) -> Result<(), ToolError> {
    match carry_out(connection, command, out) {
        // EPIPE, as of `| head`, is no failure.
        Err(ToolError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}

fn carry_out(
    connection: &Connection,
    command: &Command,
    out: &mut dyn Write,
) -> Result<(), ToolError> {
    match command {
        Command::Bench(bench) => bench::run(connection, bench, out)?,
        Command::Window(bench) => window::run(connection, bench, out)?,
        Command::Mount(mount) => mount::mount(connection, mount, out)?,
    }
    out.flush()?;
    Ok(())
}
