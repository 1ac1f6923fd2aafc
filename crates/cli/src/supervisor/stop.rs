//! Ending a mount because somebody asked for it: cleanly if its users leave in time, else without
//! them.

use super::events::Event;
use super::{LAST_WORDS_TIMEOUT, Supervisor};
use crate::channel::Message;
use crate::error::{CommandError, system};
use crate::mounting::Target;
use crate::task::Task;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use thrufs::MountError;
use thrufs_sys::signal::{SIGHUP, SIGINT, SIGTERM};

/// How often to try again while the mount is in use.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// How long the worker has to end after its mount has, before it is killed: more than it gives the
/// requests that are in progress.
const WORKER_TIMEOUT: Duration = Duration::from_secs(8);

/// How long to write back what is in the kernel's cache before users lose the mount.
const WRITE_BACK_TIMEOUT: Duration = Duration::from_secs(2);

/// How long detaching may take: it waits for the last write-back where that is still to be done.
const DETACH_TIMEOUT: Duration = Duration::from_secs(2);

/// How an attempt to unmount came out, unless the mount is in use.
enum Attempt {
    Unmounted,
    /// Somebody has asked a second time.
    Hurried,
    TimedOut,
    WorkerEnded,
    WorkerStuck,
}

impl Supervisor {
    /// Unmounts because of a signal, within [`stop_timeout`](crate::config::MountConfig) and the
    /// time the worker takes.
    pub(super) fn stop(&mut self, signal: i32) -> Result<(), CommandError> {
        let name = signal_name(signal);
        let mountpoint = self.config.mountpoint.clone();
        let mountpoint = mountpoint.display();
        tracing::info!("{name}: unmounting {mountpoint}");
        let deadline = Instant::now() + self.config.server.stop_timeout;
        match self.unmount_within(deadline) {
            Attempt::Unmounted => {}
            Attempt::WorkerEnded => return self.bury(),
            Attempt::WorkerStuck => return self.let_go(),
            Attempt::Hurried => self.take_away("second signal"),
            Attempt::TimedOut => self.take_away("still in use"),
        }
        self.wait_for_worker()?;
        tracing::info!("unmounted {mountpoint}");
        Ok(())
    }

    /// Ends without asking anybody.
    pub(super) fn stop_at_once(&mut self, why: &str) -> Result<(), CommandError> {
        self.take_away(why);
        self.wait_for_worker()
    }

    /// Tries to unmount as long as the mount is in use.
    fn unmount_within(&mut self, deadline: Instant) -> Attempt {
        let mut told = false;
        loop {
            let in_use = match self.attempt(deadline) {
                Ok(attempt) => return attempt,
                Err(in_use) => in_use,
            };
            if !told {
                let seconds = self.config.server.stop_timeout.as_secs_f32();
                tracing::warn!("{in_use}; waiting up to {seconds} s");
                told = true;
            }
            if let Some(end) = self.pause((Instant::now() + RETRY_INTERVAL).min(deadline)) {
                return end;
            }
            if Instant::now() >= deadline {
                return Attempt::TimedOut;
            }
        }
    }

    /// Tries to unmount, on a thread of its own: a worker that hangs must not hold up the rest. Fails if
    /// the mount is in use.
    fn attempt(&mut self, deadline: Instant) -> Result<Attempt, MountError> {
        let target = self.target.clone();
        let Ok(task) = Task::start(move || target.unmount(false)) else {
            return Ok(Attempt::TimedOut);
        };
        loop {
            let attempt = match self.next_event(Some(task.as_fd()), Some(deadline)) {
                Event::TaskDone => match task.finish() {
                    Some(unmounted) => unmounted.map(|()| Attempt::Unmounted)?,
                    None => Attempt::TimedOut,
                },
                Event::Signal(SIGTERM | SIGINT) => Attempt::Hurried,
                // It ends because the call has succeeded, which is about to return.
                Event::WorkerEnded => {
                    let done = task.is_done_within(LAST_WORDS_TIMEOUT);
                    match done.then(|| task.finish()) {
                        Some(Some(Ok(()))) => Attempt::Unmounted,
                        _ => Attempt::WorkerEnded,
                    }
                }
                Event::WorkerStuck => Attempt::WorkerStuck,
                Event::Deadline => Attempt::TimedOut,
                Event::Signal(_) | Event::Worker(_) | Event::Unwanted => continue,
            };
            return Ok(attempt);
        }
    }

    /// Waits until `until`, unless something makes waiting pointless.
    fn pause(&mut self, until: Instant) -> Option<Attempt> {
        loop {
            match self.next_event(None, Some(until)) {
                Event::Signal(SIGTERM | SIGINT) => return Some(Attempt::Hurried),
                Event::WorkerEnded => return Some(Attempt::WorkerEnded),
                Event::WorkerStuck => return Some(Attempt::WorkerStuck),
                Event::Deadline => return None,
                Event::Signal(_) | Event::Worker(_) | Event::TaskDone | Event::Unwanted => {}
            }
        }
    }

    /// The worker has ended, and an end was asked for: nothing dead stays.
    fn bury(&mut self) -> Result<(), CommandError> {
        let status = self.worker.wait().map_err(system("wait for the worker"))?;
        self.device = None;
        if let Err(error) = self.target.unmount_dead() {
            tracing::warn!("{error}");
        }
        if status.success() {
            tracing::info!("{} was unmounted", self.config.mountpoint.display());
            return Ok(());
        }
        Err(CommandError::ServerDied {
            what: format!("the server died ({status})"),
            dead: None,
        })
    }

    /// Takes the mount away from its users: what they have written is saved first, what they do from
    /// now on fails with ENOTCONN.
    fn take_away(&mut self, why: &str) {
        let mountpoint = self.config.mountpoint.display();
        tracing::warn!("{why}: detaching {mountpoint} from its users");
        // One after the other: a worker that hangs holds up the first, and not the second.
        let target = self.target.clone();
        self.try_for(WRITE_BACK_TIMEOUT, move || write_back(&target));
        let target = self.target.clone();
        self.try_to_detach(move || target.unmount(true));
        // The worker finishes what is in progress and closes the connection.
        let _ = self.worker.channel.send(&Message::Stop);
    }

    /// Detaches the mount, if that can be done in time.
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

    /// Gives a call this time, and lets it go on alone after that.
    fn try_for(&mut self, time: Duration, call: impl FnOnce() + Send + 'static) {
        let Ok(task) = Task::start(call) else { return };
        let deadline = Instant::now() + time;
        while !matches!(
            self.next_event(Some(task.as_fd()), Some(deadline)),
            Event::TaskDone | Event::Deadline | Event::WorkerEnded
        ) {}
    }

    /// Waits until the worker has ended after its mount; ends it if it does not, or lets it go.
    fn wait_for_worker(&mut self) -> Result<(), CommandError> {
        let deadline = Instant::now() + WORKER_TIMEOUT;
        while !self.stuck {
            match self.next_event(None, Some(deadline)) {
                Event::WorkerEnded => break,
                Event::Deadline => {
                    // Unmounted here, and yet in use: by another mount namespace, or a lower file
                    // system that does not answer.
                    tracing::warn!("the worker does not end: killing it");
                    self.worker.kill();
                    break;
                }
                // Nobody is waited for a second time.
                Event::Signal(SIGTERM | SIGINT) => {
                    let _ = self.worker.channel.send(&Message::Stop);
                }
                _ => {}
            }
        }
        if self.stuck || !self.worker.has_ended_within(LAST_WORDS_TIMEOUT) {
            return self.let_go();
        }
        let status = self.worker.wait().map_err(system("wait for the worker"))?;
        self.device = None;
        // Nothing dead shall lie there, whatever went wrong above.
        let _ = self.target.unmount_dead();
        tracing::debug!("the worker has ended: {status}");
        Ok(())
    }
}

/// As the log calls a signal that ends a server.
pub(crate) fn signal_name(signal: i32) -> &'static str {
    match signal {
        SIGTERM => "SIGTERM",
        SIGINT => "SIGINT",
        SIGHUP => "SIGHUP",
        _ => "signal",
    }
}

/// Has the kernel send what it keeps (writeback, stores through maps) to the worker.
fn write_back(target: &Target) {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
    let root = rustix::fs::open(&target.mountpoint, flags, rustix::fs::Mode::empty());
    if let Ok(root) = root {
        let _ = rustix::fs::syncfs(root);
    }
}
