//! Unmounting on a signal: cleanly if its users leave in time, otherwise by detaching.

use super::{MountEvent, MountSupervisor, WORKER_EXIT_TIMEOUT};
use crate::channel::Order;
use crate::error::system;
use crate::mounting::MountTarget;
use crate::mounting::error::MountCommandError;
use crate::task::Task;
use crate::waiting;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use thrufs::MountError;
use thrufs_sys::signal::{SIGHUP, SIGINT, SIGTERM};

const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// For the worker to exit after unmounting, longer than its own limit for requests in progress.
const WORKER_TIMEOUT: Duration = Duration::from_secs(8);

/// For writeback of the kernel's cache before detaching.
const WRITE_BACK_TIMEOUT: Duration = Duration::from_secs(2);

/// For detaching, which waits for remaining writeback.
const DETACH_TIMEOUT: Duration = Duration::from_secs(2);

impl MountSupervisor {
    /// Unmounts because of a signal, within [`stop_timeout`](crate::config::MountConfig) and the worker's
    /// time to exit.
    pub(super) fn stop(&mut self, signal: i32) -> Result<(), MountCommandError> {
        self.end_resuming();
        // What programs asked of it has failed, or would have been resumed: nothing that this request has ended.
        let now = Some(Instant::now());
        let [was_dead] = waiting::readable([Some(self.worker.ended())], now);
        let name = signal_name(signal);
        let mountpoint = self.config.mountpoint.clone();
        let mountpoint = mountpoint.display();
        tracing::info!("{name}: unmounting {mountpoint}");
        let deadline = Instant::now() + self.config.server.stop_timeout;
        match self.unmount_within(deadline) {
            Ok(()) => {}
            Err(MountEvent::WorkerEnded) => return self.reap(was_dead),
            Err(MountEvent::WorkerStuck) => return self.force_unmount(),
            Err(MountEvent::Signal(_)) => self.detach("second signal"),
            Err(_) => self.detach("still in use"),
        }
        self.wait_for_worker()?;
        tracing::info!("unmounted {mountpoint}");
        Ok(())
    }

    /// Ends without waiting for users.
    pub(super) fn stop_at_once(&mut self, why: &str) -> Result<(), MountCommandError> {
        self.end_resuming();
        self.detach(why);
        self.wait_for_worker()
    }

    /// Attempts to unmount until nobody uses the mount, each on a separate thread, as a hung worker may block it.
    /// Returns the event that ends them.
    fn unmount_within(&mut self, deadline: Instant) -> Result<(), MountEvent> {
        let mut warned = false;
        loop {
            let target = self.target.clone();
            let Ok(task) = Task::start(move || target.unmount(false)) else {
                return Err(MountEvent::Deadline);
            };
            let waited = self.wait_until(deadline, Some(task.as_fd()));
            let unmounted = match &waited {
                Ok(()) => task.finish(),
                // The call may have succeeded and be about to return.
                Err(MountEvent::WorkerEnded) => task.finish_within(WORKER_EXIT_TIMEOUT),
                Err(_) => None,
            };
            match (unmounted, waited) {
                (Some(Ok(())), _) => return Ok(()),
                (_, Err(event)) => return Err(event),
                (Some(Err(in_use)), Ok(())) if !warned => {
                    let seconds = self.config.server.stop_timeout.as_secs_f32();
                    tracing::warn!("{in_use}; waiting up to {seconds} s");
                    warned = true;
                }
                (Some(Err(_)), Ok(())) => {}
                (None, Ok(())) => return Err(MountEvent::Deadline),
            }
            match self.wait_until((Instant::now() + RETRY_INTERVAL).min(deadline), None) {
                Err(MountEvent::Deadline) if Instant::now() < deadline => {}
                ended => return ended,
            }
        }
    }

    /// Waits until the call has returned, or an event that ends the attempts.
    fn wait_until(
        &mut self,
        deadline: Instant,
        call: Option<BorrowedFd<'_>>,
    ) -> Result<(), MountEvent> {
        loop {
            match self.next_event(call, Some(deadline)) {
                MountEvent::TaskDone => return Ok(()),
                MountEvent::Signal(number) if ![SIGTERM, SIGINT].contains(&number) => {}
                MountEvent::Worker(_) | MountEvent::Abandoned | MountEvent::Upgrade(_) => {}
                ending => return Err(ending),
            }
        }
    }

    /// The worker has ended, after a request or before: no dead mount stays.
    fn reap(&mut self, was_dead: bool) -> Result<(), MountCommandError> {
        let status = self.worker.wait().map_err(system("wait for the worker"))?;
        self.device = None;
        let removed = self.target.unmount_dead();
        if let Err(error) = &removed {
            tracing::warn!("{error}");
        }
        if status.success() || (was_dead && removed.is_ok()) {
            tracing::info!("{} was unmounted", self.config.mountpoint.display());
            return Ok(());
        }
        Err(MountCommandError::ServerDied {
            what: format!("the server died ({status})"),
            dead: None,
        })
    }

    /// Detaches the mount: written data are saved first, later operations fail with ENOTCONN.
    fn detach(&mut self, why: &str) {
        let mountpoint = self.config.mountpoint.display();
        tracing::warn!("{why}: detaching {mountpoint} from its users");
        // Separate tasks: a hung worker blocks the first, not the second.
        let target = self.target.clone();
        self.try_for(WRITE_BACK_TIMEOUT, move || write_back(&target));
        let target = self.target.clone();
        self.try_to_detach(move || target.unmount(true));
        // The worker completes requests in progress and closes the connection.
        let _ = self.worker.channel.send(&Order::Stop);
    }

    pub(super) fn try_to_detach(
        &mut self,
        detach: impl FnOnce() -> Result<(), MountError> + Send + 'static,
    ) {
        self.try_for(DETACH_TIMEOUT, || {
            if let Err(error) = detach() {
                tracing::warn!("{error}");
            }
        });
    }

    /// Waits this long for a call, which may continue afterwards.
    fn try_for(&mut self, time: Duration, call: impl FnOnce() + Send + 'static) {
        let Ok(task) = Task::start(call) else { return };
        let deadline = Instant::now() + time;
        while !matches!(
            self.next_event(Some(task.as_fd()), Some(deadline)),
            MountEvent::TaskDone | MountEvent::Deadline | MountEvent::WorkerEnded
        ) {}
    }

    /// Waits for the worker's exit after unmounting; kills it, or forces the unmount.
    fn wait_for_worker(&mut self) -> Result<(), MountCommandError> {
        let deadline = Instant::now() + WORKER_TIMEOUT;
        while !self.stuck {
            match self.next_event(None, Some(deadline)) {
                MountEvent::WorkerEnded => break,
                MountEvent::Deadline => {
                    // Still in use: by another mount namespace, or an underlying file system that does
                    // not respond.
                    tracing::warn!("the worker does not end: killing it");
                    self.stuck = !self.kill_worker();
                    break;
                }
                MountEvent::Signal(SIGTERM | SIGINT) => {
                    let _ = self.worker.channel.send(&Order::Stop);
                }
                _ => {}
            }
        }
        if self.stuck || !self.worker.has_ended_within(WORKER_EXIT_TIMEOUT) {
            return self.force_unmount();
        }
        let status = self.worker.wait().map_err(system("wait for the worker"))?;
        self.device = None;
        // No dead mount may stay.
        let _ = self.target.unmount_dead();
        tracing::debug!("the worker has ended: {status}");
        Ok(())
    }
}

pub(crate) fn signal_name(signal: i32) -> &'static str {
    match signal {
        SIGTERM => "SIGTERM",
        SIGINT => "SIGINT",
        SIGHUP => "SIGHUP",
        _ => "signal",
    }
}

/// Writes back the kernel's dirty pages.
fn write_back(target: &MountTarget) {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
    let root = rustix::fs::open(&target.mountpoint, flags, rustix::fs::Mode::empty());
    if let Ok(root) = root {
        let _ = rustix::fs::syncfs(root);
    }
}
