//! When the worker of a mount dies, another goes on with the session (`resume=N`).
//!
//! The supervisor keeps `/dev/fuse` open, so that the kernel's requests wait, and what outlives a worker: the
//! journal, the record of the session, and descriptors of locked and of unlinked files ([`given`](super::given)).
//! The next worker gets the same, asks the kernel to send again what the dead one has read, and goes on. Only a worker that was killed by a signal is followed by another, and not more often than N times in a minute.

use super::{MountSupervisor, start_worker};
use crate::error::StartupError;
use crate::mounting::connection_lives;
use crate::process::OWN_PROGRAM;
use crate::upgrade::check::Upgrade;
use rustix::process::{WaitOptions, waitpid};
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

/// For the next worker to begin. Callers wait meanwhile.
pub(super) const RESUME_TIMEOUT: Duration = Duration::from_secs(30);

impl MountSupervisor {
    /// Whether another worker goes on if this one is killed.
    pub(super) fn may_resume(&self) -> bool {
        let record = self.given.record.as_ref();
        record.is_some_and(|record| record.journal.has_session())
            && self.device.as_ref().is_some_and(connection_lives)
    }

    /// Whether another worker goes on, after the worker has ended without a request.
    pub(super) fn resume(&mut self) -> bool {
        self.reap_left();
        let has_ended = self.worker.has_ended_within(Duration::ZERO);
        let was_killed = match has_ended.then(|| self.worker.wait()) {
            Some(Ok(status)) => status.signal().is_some(),
            Some(Err(_)) => false,
            None => true,
        };
        if !was_killed || !self.may_resume() {
            return false;
        }
        let Some(record) = &mut self.given.record else {
            return false;
        };
        record.journal.count_death();
        let mountpoint = self.config.mountpoint.clone();
        let shown = mountpoint.display();
        if let Err(why) = record.deaths.count() {
            if let Some(why) = why {
                tracing::error!("{shown} is not resumed: {why}");
            }
            return false;
        }
        tracing::error!("the server of {shown} was killed: another goes on");
        match self.start_next() {
            Ok(()) => true,
            Err(error) => {
                tracing::error!("{shown} is not resumed: {error}");
                false
            }
        }
    }

    pub(super) fn start_next(&mut self) -> Result<(), StartupError> {
        let device = self
            .device
            .as_ref()
            .expect("held until the last worker has ended");
        let (orders, sources) = self.given.orders()?;
        let program = self.upgrade.as_ref().and_then(Upgrade::proving);
        let program = program.unwrap_or_else(|| OWN_PROGRAM.into());
        let next = start_worker(&program, &self.config, device, sources, orders)?;
        let last = std::mem::replace(&mut self.worker, next);
        self.left.push(last);
        self.tell_of_mount();
        self.begins_until = Some(Instant::now() + RESUME_TIMEOUT);
        Ok(())
    }

    /// Waits for those that were left behind and have ended.
    pub(super) fn reap_left(&mut self) {
        self.left.retain_mut(|left| {
            let has_ended = left.has_ended_within(Duration::ZERO);
            has_ended.then(|| left.wait());
            !has_ended
        });
        self.left_earlier.retain(|process| {
            let status = waitpid(Some(*process), WaitOptions::NOHANG);
            matches!(status, Ok(None))
        });
    }

    /// The worker that was to go on does not begin.
    pub(super) fn on_late_begin(&mut self) {
        let shown = self.config.mountpoint.display();
        tracing::error!("{shown} is not resumed: the server does not begin");
        self.end_resuming();
        self.worker.kill();
    }

    /// No other worker goes on from now on.
    pub(super) fn end_resuming(&mut self) {
        self.upgrade = None;
        self.begins_until = None;
        self.given.record = None;
    }
}
