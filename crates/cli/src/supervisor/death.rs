//! When the worker has died: nobody waits for it any more, and the mount is dead, or gone.
//!
//! A worker that was killed has not always ended: its threads may wait in the kernel, for a source that
//! does not answer, or, to send a notification, for the lock of a directory in which a caller waits for the
//! worker. Each of them holds `/dev/fuse`, and with it the connection: alive, and served by nobody. So the
//! connection is aborted, and not left to end by itself.

use super::{LAST_WORDS_TIMEOUT, Supervisor};
use crate::channel::Message;
use crate::error::{CommandError, system};
use crate::mounting::connection_lives;
use std::time::Duration;

/// How long a worker that is ending may take before its connection is ended without it.
const ENDING_TIMEOUT: Duration = Duration::from_millis(50);

impl Supervisor {
    /// Opens what will be needed to end the connection, and gives it to those who see this process die.
    pub(super) fn prepare_for_death(&mut self) {
        let Some(device) = &self.device else { return };
        self.abort = self.target.abort_file(device);
        let copy = || self.abort.as_ref().and_then(|file| file.try_clone().ok());
        let _ = self.worker.channel.send(&Message::Mounted(copy()));
        if let Some(process) = &self.auto_unmount {
            process.tell(&Message::Mounted(copy()));
        }
    }

    /// Ends the connection, if it lives: whoever waits for an answer gets an error.
    fn abort(&self) {
        if !self.device.as_ref().is_some_and(connection_lives) {
            return;
        }
        let aborted = match &self.abort {
            Some(file) => thrufs::mount::abort_by(file),
            None => self.target.abort(),
        };
        if let Err(error) = aborted {
            // It ends when the last descriptor of it is closed.
            tracing::debug!("cannot abort the connection: {error}");
        }
    }

    /// Of a worker that is ending: whether it has ended.
    pub(super) fn ends(&mut self) -> bool {
        self.worker.kill();
        self.worker.has_ended_within(ENDING_TIMEOUT) || {
            self.abort();
            self.worker.has_ended_within(LAST_WORDS_TIMEOUT)
        }
    }

    /// The worker has ended and nobody had asked for it: because the mount has, or it has died.
    pub(super) fn on_death(&mut self) -> Result<(), CommandError> {
        let status = self.worker.wait().map_err(system("wait for the worker"))?;
        self.abort();
        self.device = None;
        let mountpoint = self.config.mountpoint.clone();
        let shown = mountpoint.display();
        let stays = self.is_left_dead();
        if status.success() && !stays {
            tracing::info!("{shown} was unmounted");
            return Ok(());
        }
        let what = if status.success() {
            "its connection was aborted".to_owned()
        } else {
            format!("the server died ({status})")
        };
        let error = CommandError::ServerDied {
            what,
            dead: stays.then_some(mountpoint),
        };
        // In the background, it is logged where the process ends.
        if self.config.server.foreground {
            tracing::error!("{error}");
        }
        Err(error)
    }

    /// The worker has requests that do not end, and nobody had asked for an end.
    pub(super) fn on_stuck(&mut self) -> Result<(), CommandError> {
        let shown = self.config.mountpoint.display();
        tracing::warn!("requests to {shown} do not end: aborting the connection");
        self.worker.kill();
        self.abort();
        if self.worker.has_ended_within(LAST_WORDS_TIMEOUT) {
            return self.on_death();
        }
        self.device = None;
        Err(CommandError::Stuck {
            mountpoint: self.config.mountpoint.clone(),
            left: Some(self.worker.id()),
            dead: self.is_left_dead(),
        })
    }

    /// Takes what is dead away, if that was asked for; tells whether something stays.
    fn is_left_dead(&self) -> bool {
        if !self.config.auto_unmount {
            return !self.target.dead().is_empty();
        }
        let cleared = self.target.unmount_dead();
        cleared
            .inspect_err(|error| tracing::warn!("{error}"))
            .is_err()
    }
}
