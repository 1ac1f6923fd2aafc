//! The exit of the worker: pending requests fail, and the mount is dead or gone.
//!
//! A killed worker may remain: its threads may be blocked in the kernel, by a source that does not
//! respond, or, in a notification, by the lock of a directory in which a caller waits for the worker.
//! Each holds `/dev/fuse`, so the connection stays alive without a server. It is aborted, not left to
//! end.

use super::{MountSupervisor, WORKER_EXIT_TIMEOUT};
use crate::channel::Order;
use crate::error::system;
use crate::mounting::error::MountCommandError;
use crate::mounting::{self, connection_lives};
use std::time::{Duration, Instant};

/// Before the connection of an exiting worker is aborted.
const ENDING_TIMEOUT: Duration = Duration::from_millis(50);

/// Before another worker goes on beside an exiting one, of which threads run: a request that one of them is about to
/// receive would not be sent again.
const LEAVING_TIMEOUT: Duration = Duration::from_secs(1);
const LEAVING_INTERVAL: Duration = Duration::from_millis(5);

impl MountSupervisor {
    /// Opens the file that aborts the connection, for this process and for those that see it die.
    pub(super) fn open_abort_file(&mut self) {
        let Some(device) = &self.device else { return };
        self.abort = self.target.abort_file(device);
        self.tell_of_mount();
        if let Some(process) = &self.auto_unmount {
            process.send(&self.mounted());
        }
    }

    /// Tells the worker that the mount exists.
    pub(super) fn tell_of_mount(&self) {
        let _ = self.worker.channel.send(&self.mounted());
    }

    pub(super) fn mounted(&self) -> Order {
        let copy = self.abort.as_ref().and_then(|file| file.try_clone().ok());
        Order::Mounted(copy.into_iter().collect())
    }

    /// Aborts the connection, if it is alive: pending requests fail.
    fn abort(&self) {
        let Some(device) = self.device.as_ref().filter(|it| connection_lives(it)) else {
            return;
        };
        // Who looks at the mount sees that it is dead.
        if let Ok(device) = device.try_clone() {
            mounting::expire_cached(move || thrufs::mount::expire_cached(device));
        }
        let aborted = match &self.abort {
            Some(file) => thrufs::mount::abort_by(file),
            None => self.target.abort(),
        };
        if let Err(error) = aborted {
            // It ends when its last descriptor is closed.
            tracing::debug!("cannot abort the connection: {error}");
        }
    }

    /// Kills an exiting worker; returns whether it has ended, or is left behind.
    pub(super) fn kill_worker(&mut self) -> bool {
        self.worker.kill();
        if self.may_resume() {
            self.wait_until_left();
            return true;
        }
        self.worker.has_ended_within(ENDING_TIMEOUT) || {
            self.abort();
            self.worker.has_ended_within(WORKER_EXIT_TIMEOUT)
        }
    }

    /// Waits until another worker may go on beside the exiting one, which answers what that waits for.
    fn wait_until_left(&mut self) {
        let since = Instant::now();
        while !self.worker.has_ended_within(LEAVING_INTERVAL) && since.elapsed() < LEAVING_TIMEOUT {
            if since.elapsed() >= ENDING_TIMEOUT && self.worker.only_sleeps() {
                break;
            }
        }
    }

    /// The worker has ended without a request: it was unmounted, or it died.
    pub(super) fn on_worker_exit(&mut self) -> Result<(), MountCommandError> {
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
        let error = MountCommandError::ServerDied {
            what,
            dead: stays.then_some(mountpoint),
        };
        // In the background, `main` logs it.
        if self.config.server.foreground {
            tracing::error!("{error}");
        }
        Err(error)
    }

    /// The worker has requests that do not end, without a request to end.
    pub(super) fn on_stuck(&mut self) -> Result<(), MountCommandError> {
        let shown = self.config.mountpoint.display();
        tracing::warn!("requests to {shown} do not end: aborting the connection");
        self.worker.kill();
        self.abort();
        if self.worker.has_ended_within(WORKER_EXIT_TIMEOUT) {
            return self.on_worker_exit();
        }
        self.device = None;
        Err(self.stuck_with(Some(self.worker.id()), self.is_left_dead()))
    }

    /// The error for requests that do not end; `left` is a process that cannot be killed.
    pub(super) fn stuck_with(&self, left: Option<u32>, dead: bool) -> MountCommandError {
        MountCommandError::Stuck {
            mountpoint: self.config.mountpoint.clone(),
            left,
            dead,
        }
    }

    /// Unmounts a dead mount with auto_unmount; returns whether one stays.
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
