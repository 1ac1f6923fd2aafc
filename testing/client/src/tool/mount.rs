//! `mount`: mounts the share on this machine until the unmount or a signal.

use super::connection::Connection;
use super::error::ToolError;
use crate::relay::{Relay, RelayError, system};
use std::io::Write;
use std::path::PathBuf;
use thrufs_sys::signal::{SIGINT, SIGTERM, SignalFd};

/// Arguments of `mount`.
#[derive(Clone, Debug)]
pub struct Mount {
    /// The directory to mount on.
    pub target: PathBuf,
}

pub(crate) fn mount(
    connection: &Connection,
    mount: &Mount,
    out: &mut dyn Write,
) -> Result<(), ToolError> {
    let failed = |source| ToolError::Relay {
        target: mount.target.clone(),
        source,
    };
    // Before any thread starts, so that all have the signals blocked.
    let signals = SignalFd::block_and_open(&[SIGTERM, SIGINT])
        .map_err(system("receive signals"))
        .map_err(failed)?;
    let front_end = connection.connect(&connection.config())?;
    let name = connection.socket.display().to_string();
    let relay = Relay::mount(front_end, &mount.target, &name).map_err(failed)?;
    let handle = relay.handle();
    // Detached: it sleeps until the process ends.
    std::thread::Builder::new()
        .name("thrufs-signals".to_owned())
        .spawn(move || {
            while signals.read().is_ok() {
                handle.unmount();
            }
        })
        .map_err(|error| {
            failed(RelayError::System {
                what: "start a thread",
                source: error,
            })
        })?;
    // Reports readiness. A closed stdout must not end the mount.
    let _ = writeln!(out, "mounted {}", mount.target.display());
    let _ = out.flush();
    relay.wait().map_err(failed)
}
