//! The commands of the program `thrufs-client`: mount a share and measure it, over any vhost-user-fs socket.
//! `main.rs` parses the command line.

mod bench;

pub use bench::{Bench, bench};

use crate::front_end::{ConnectError, FrontEnd, FrontEndConfig};
use crate::relay::{Relay, RelayError, system};
use std::io::{self, Write};
use std::path::Path;
use thrufs::Errno;
use thrufs_sys::signal::{SIGINT, SIGTERM, SignalFd};
use thrufs_testing::ClientError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// No connection.
    #[error("{0}: {1}")]
    Connect(String, ConnectError),
    /// No session.
    #[error("{0}: {1}")]
    Session(String, ClientError),
    /// The share could not be mounted, or the mount has failed.
    #[error("{0}: {1}")]
    Relay(String, RelayError),
    /// The input cannot be read, or output not be written.
    #[error("input and output: {0}")]
    Io(#[from] io::Error),
    /// The input is invalid.
    #[error("{0}")]
    Usage(String),
    /// A measurement failed.
    #[error("{0}: {1}")]
    Row(String, Errno),
}

fn connect(socket: &Path, config: &FrontEndConfig) -> Result<FrontEnd, ToolError> {
    let failed = |error| ToolError::Connect(socket.display().to_string(), error);
    FrontEnd::connect(socket, config).map_err(failed)
}

/// Mounts the share on this machine until the unmount or a signal.
///
/// # Errors
///
/// When it could not be mounted, or the server went away.
pub fn mount(
    socket: &Path,
    config: &FrontEndConfig,
    target: &Path,
    out: &mut dyn Write,
) -> Result<(), ToolError> {
    let failed = |error| ToolError::Relay(target.display().to_string(), error);
    // Before any thread starts, so that all have the signals blocked.
    let signals = SignalFd::block_and_open(&[SIGTERM, SIGINT])
        .map_err(system("receive signals"))
        .map_err(failed)?;
    let front_end = connect(socket, config)?;
    let relay = Relay::mount(front_end, target, &socket.display().to_string()).map_err(failed)?;
    let handle = relay.handle();
    // Detached: it sleeps until the process ends.
    std::thread::Builder::new()
        .name("thrufs-signals".to_owned())
        .spawn(move || {
            while signals.read().is_ok() {
                handle.unmount();
            }
        })?;
    // Reports readiness. A closed stdout must not end the mount.
    let _ = writeln!(out, "mounted {}", target.display());
    let _ = out.flush();
    relay.wait().map_err(failed)
}
