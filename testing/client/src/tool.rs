//! The [commands](Command) of the program `thrufs-client`: mount a share and measure it, over any vhost-user-fs
//! socket. `main.rs` parses the command line.

mod bench;
mod connection;
mod error;
mod mount;

pub use bench::Bench;
pub use connection::Connection;
pub use error::ToolError;
pub use mount::Mount;

use std::io::{self, Write};

/// A command with its arguments.
#[derive(Clone, Debug)]
pub enum Command {
    /// Measures the server, row by row.
    Bench(Bench),
    /// Mounts the share on this machine, until it is unmounted.
    Mount(Mount),
}

/// Runs a command, with rows from standard input, and output to `out`.
///
/// # Errors
///
/// When it could not run.
pub fn run(
    connection: &Connection,
    command: &Command,
    out: &mut dyn Write,
) -> Result<(), ToolError> {
    match command {
        Command::Bench(bench) => bench::bench(connection, bench, &mut io::stdin().lock(), out),
        Command::Mount(mount) => mount::mount(connection, mount, out),
    }
}
