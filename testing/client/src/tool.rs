//! The [commands](Command) of the program `thrufs-client`: list, print and mount a share, measure and check
//! servers, over any vhost-user-fs socket. `main.rs` parses the command line.

mod bench;
mod cat;
mod conform;
mod list;
mod mount;
mod share;
mod show;

pub use bench::{Bench, Target, row_names};
pub use conform::{Conform, check_names};

use crate::front_end::{ConnectError, FrontEnd, FrontEndConfig};
use share::Share;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;
use thrufs::Errno;
use thrufs_testing::ClientError;

/// The connection to a server.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The vhost-user socket.
    pub socket: PathBuf,
    /// Most request queues to use: 1 to 64.
    pub request_queues: u16,
    /// Entries of each queue: a power of two.
    pub queue_size: u16,
    /// Whether to use indirect descriptors, as Linux does.
    pub indirect: bool,
    /// Time limit of a request.
    pub time_limit: Duration,
}

impl Connection {
    /// A connection with defaults.
    pub fn to(socket: impl Into<PathBuf>) -> Connection {
        Connection {
            socket: socket.into(),
            ..Connection::default()
        }
    }

    fn config(&self) -> FrontEndConfig {
        FrontEndConfig {
            request_queues: self.request_queues,
            queue_size: self.queue_size,
            indirect_descriptors: self.indirect,
            time_limit: Some(self.time_limit),
            ..FrontEndConfig::default()
        }
    }

    fn connect(&self) -> Result<FrontEnd, ToolError> {
        FrontEnd::connect(&self.socket, &self.config()).map_err(|source| ToolError::Connect {
            socket: self.socket.clone(),
            source,
        })
    }
}

impl Default for Connection {
    fn default() -> Connection {
        Connection {
            socket: PathBuf::new(),
            request_queues: 1,
            queue_size: 1024,
            indirect: true,
            time_limit: Duration::from_secs(30),
        }
    }
}

/// A command with its arguments.
#[derive(Clone, Debug)]
pub enum Command {
    /// Lists a directory.
    Ls(Ls),
    /// Prints files.
    Cat(Cat),
    /// Benchmarks servers side by side.
    Bench(Bench),
    /// Checks a server for conformance.
    Conform(Conform),
    /// Mounts the share on this machine, until it is unmounted.
    Mount(Mount),
}

/// Arguments of `mount`.
#[derive(Clone, Debug)]
pub struct Mount {
    /// The directory to mount on.
    pub target: PathBuf,
}

/// Arguments of `ls`.
#[derive(Clone, Debug)]
pub struct Ls {
    /// A directory or file of the share.
    pub path: String,
    /// Long format.
    pub long: bool,
    /// Also names that begin with a dot.
    pub all: bool,
}

impl Default for Ls {
    fn default() -> Ls {
        Ls {
            path: "/".to_owned(),
            long: false,
            all: false,
        }
    }
}

/// Arguments of `cat`.
#[derive(Clone, Debug)]
pub struct Cat {
    /// Files of the share.
    pub paths: Vec<String>,
}

/// The outcome of a command that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Success.
    Done,
    /// A check failed.
    Failed,
}

impl Outcome {
    /// Whether the command succeeded.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Outcome::Done
    }
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// No connection.
    #[error("{}: {source}", socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// Why.
        source: ConnectError,
    },
    /// No session.
    #[error("{}: {source}", socket.display())]
    Mount {
        /// The socket.
        socket: PathBuf,
        /// Why.
        source: ClientError,
    },
    /// A call failed.
    #[error(":{path}: {errno}")]
    Share {
        /// The path in the share.
        path: String,
        /// The error of the call.
        errno: Errno,
    },
    /// The share could not be mounted, or the mount has failed.
    #[error("{}: {source}", target.display())]
    Relay {
        /// Where.
        target: PathBuf,
        /// Why.
        source: crate::relay::RelayError,
    },
    /// A local file failed.
    #[error("{}: {source}", path.display())]
    Local {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    /// The arguments are invalid.
    #[error("{0}")]
    Usage(String),
    /// A measurement failed.
    #[error("{target}: {row}: {problem}")]
    Bench {
        /// The name of the server.
        target: String,
        /// The name of the row.
        row: String,
        /// Why.
        problem: String,
    },
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
