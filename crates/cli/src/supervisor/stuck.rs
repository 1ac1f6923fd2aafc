//! Force unmount of a worker that cannot exit, because its source does not respond, or because a notification
//! waits for the lock of a directory.
//!
//! Its threads are blocked in the kernel, perhaps uninterruptibly. Each holds `/dev/fuse`, so the
//! connection stays alive without a server, and its users would wait as long as the source. Without a
//! request to end, see [`death`](super::death).

use super::{MountSupervisor, WORKER_EXIT_TIMEOUT};
use crate::mounting::connection_lives;
use crate::mounting::error::MountCommandError;
use std::time::Duration;

impl MountSupervisor {
    /// Unmounts by force and aborts the connection; kills the worker, if possible.
    pub(super) fn force_unmount(&mut self) -> Result<(), MountCommandError> {
        // It was killed, and not ended by the end of the connection.
        let mut was_awaited = self.worker.end_deadline().is_some();
        if self.target.mounted.is_none() || self.target.is_mounted() {
            was_awaited = false;
            let shown = self.config.mountpoint.display();
            tracing::warn!("requests to {shown} do not end: force unmount");
            let target = self.target.clone();
            self.try_to_detach(move || target.unmount_by_force());
        }
        self.worker.kill();
        let lives = self.device.take().is_some_and(connection_lives);
        let patience = if was_awaited {
            Duration::ZERO
        } else {
            WORKER_EXIT_TIMEOUT
        };
        let left = if self.worker.has_ended_within(patience) {
            let _ = self.worker.wait();
            None
        } else {
            // A connection without mounts can still have users.
            match &self.abort {
                Some(file) if thrufs::mount::abort_by(file).is_ok() => {
                    tracing::warn!("aborted the connection: pending requests fail");
                }
                _ => tracing::warn!(
                    "cannot abort the connection: its users wait until the source answers"
                ),
            }
            Some(self.worker.id())
        };
        // The device number is reused after the end of the connection.
        let cleared = if lives && self.target.is_mounted() {
            self.target.unmount(true)
        } else {
            self.target.unmount_dead()
        };
        if let Err(error) = cleared {
            tracing::warn!("{error}");
        }
        Err(self.stuck_with(left, false))
    }
}
