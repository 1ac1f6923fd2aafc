//! Letting go of a worker that is to end and cannot, because its source does not answer.
//!
//! Its threads wait in the kernel, some of them beyond the reach of SIGKILL. As long as one does, it
//! holds `/dev/fuse` and with it the connection: alive, and served by nobody. Its users would wait as
//! long as the source does, and so would a supervisor that waited for the worker. When nobody had asked
//! for an end, see [`death`](super::death).

use super::{LAST_WORDS_TIMEOUT, Supervisor};
use crate::error::CommandError;
use crate::mounting::connection_lives;

impl Supervisor {
    /// Takes the mount away by force and ends the connection; then the worker, if that is possible.
    pub(super) fn let_go(&mut self) -> Result<(), CommandError> {
        let mountpoint = self.config.mountpoint.clone();
        if self.target.device.is_none() || self.target.is_mounted() {
            let shown = mountpoint.display();
            tracing::warn!("requests to {shown} do not end: force unmount");
            let target = self.target.clone();
            self.try_to_detach(move || target.unmount_by_force());
        }
        self.worker.kill();
        let lives = self.device.take().is_some_and(connection_lives);
        let left = if self.worker.has_ended_within(LAST_WORDS_TIMEOUT) {
            let _ = self.worker.wait();
            None
        } else {
            // Mounted nowhere, the connection can still have users.
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
        // Its number is its own as long as its connection lives, and somebody else's afterwards.
        let cleared = if lives && self.target.is_mounted() {
            self.target.unmount(true)
        } else {
            self.target.unmount_dead()
        };
        if let Err(error) = cleared {
            tracing::warn!("{error}");
        }
        Err(CommandError::Stuck {
            mountpoint,
            left,
            dead: false,
        })
    }
}
