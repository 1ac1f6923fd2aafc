//! `mount`: the share in this machine's tree, until it is unmounted or a signal comes.

use super::{Connection, Mount, ToolError};
use crate::relay::{Relay, RelayError, system};
use std::io::Write;
use thrufs_sys::signal::{SIGINT, SIGTERM, SignalFd};

pub(crate) fn mount(
    connection: &Connection,
    mount: &Mount,
    out: &mut dyn Write,
) -> Result<(), ToolError> {
    let failed = |source| ToolError::Relay {
        target: mount.target.clone(),
        source,
    };
    // Before there are threads, so that no other gets them.
    let signals = SignalFd::block_and_open(&[SIGTERM, SIGINT])
        .map_err(system("receive signals"))
        .map_err(failed)?;
    let front_end = connection.connect()?;
    let name = connection.socket.display().to_string();
    let relay = Relay::mount(front_end, &mount.target, &name).map_err(failed)?;
    let handle = relay.handle();
    // It ends with the process: nothing else ends its sleep.
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
    // Whoever waits for it may go on. Whoever does not read it must not end the mount.
    let _ = writeln!(out, "mounted {}", mount.target.display());
    let _ = out.flush();
    relay.wait().map_err(failed)
}
