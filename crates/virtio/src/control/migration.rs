//! Live migration: the dirty log of guest memory, and the device state.
//!
//! **The log.** A log message is acknowledged once each queue's thread uses the log. So every page written
//! after the acknowledgement is logged, also by requests that were in progress, and every page written before
//! is in the memory that the front end copies afterwards.
//!
//! **The state** is saved when all queues are stopped. Then only lock waits are in progress, which may last
//! for ever. They are interrupted without a reply, and the device that continues, this one or another,
//! replays them: a lock that was granted at the last moment is granted to its owner once more.

use super::{Control, LOG_ALL, failed};
use crate::device_state::{self, Again};
use crate::journal;
use crate::memory::{DirtyLog, MemoryError, Regions};
use crate::queue::VirtqueueLayout;
use crate::session::MakeFileSystem;
use crate::transfer::{Moved, Transfer};
use crate::vring::Vring;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Instant;
use vhost::vhost_user::message::VhostTransferStateDirection;
use vhost::vhost_user::{Error, Result};

impl<M: MakeFileSystem> Control<M> {
    /// Fails when the log is too short for `regions` and the used rings.
    pub(super) fn check_log(&self, log: &DirtyLog, regions: &Regions) -> Result<()> {
        let rings = self.vrings.iter().filter_map(|vring| {
            let used = vring.used_log?;
            Some(used.saturating_add(used_bytes(&vring.layout)))
        });
        if rings.chain([regions.end()]).all(|end| log.covers(end)) {
            return Ok(());
        }
        Err(MemoryError::ShortLog.into())
    }

    /// Sets the guest address under which writes to a used ring are logged.
    pub(super) fn log_used_ring(&mut self, index: u32, address: Option<u64>) -> Result<()> {
        let vring = self.vring(index)?;
        if vring.used_log == address {
            return Ok(());
        }
        vring.used_log = address;
        if let Some(log) = &self.log {
            self.check_log(log, &self.setup.regions)?;
        }
        self.renew_log()
    }

    /// Sets the log of all queues, and waits until each uses it.
    pub(super) fn renew_log(&mut self) -> Result<()> {
        let deadline = self.deadline();
        let is_agreed = self.features & LOG_ALL != 0;
        self.setup.log = self.log.clone().filter(|_| is_agreed);
        let (in_force, pending) = channel();
        for vring in self.vrings.iter_mut().filter(|vring| vring.is_running()) {
            vring.update(&self.shared, &self.setup, Some(&in_force))?;
        }
        drop(in_force);
        let left = deadline.saturating_duration_since(Instant::now());
        // Nothing is sent: each queue drops its sender.
        match pending.recv_timeout(left) {
            Err(RecvTimeoutError::Disconnected) => Ok(()),
            _ => Err(failed("requests in progress keep the log from being kept")),
        }
    }

    pub(super) fn begin_to_move(
        &mut self,
        direction: VhostTransferStateDirection,
        file: OwnedFd,
    ) -> Result<()> {
        self.settle();
        for vring in &self.vrings {
            vring.require_stopped()?;
        }
        let transfer = match direction {
            VhostTransferStateDirection::SAVE => {
                self.take_waits_back()?;
                self.begin_to_save(file)
            }
            VhostTransferStateDirection::LOAD => self.begin_to_load(file),
        };
        self.transferred = None;
        self.transfer = Some(transfer.map_err(Error::ReqHandlerError)?);
        Ok(())
    }

    fn begin_to_save(&self, file: OwnedFd) -> io::Result<Transfer<Moved<M>>> {
        let heads = |vring: &Vring| vring.again.iter().map(|again| again.head).collect();
        let again: Again = self.vrings.iter().map(heads).collect();
        let session = self.shared.sessions.current();
        Transfer::begin(file, move |pipe| {
            let mut save = session
                .map(|session| move |sink: &mut dyn io::Write| session.dispatcher().save(sink));
            device_state::write(pipe, &again, save.as_mut().map(|save| save as _))?;
            Ok(None)
        })
    }

    /// Interrupts lock waits, to be replayed.
    fn take_waits_back(&mut self) -> Result<()> {
        let deadline = self.deadline();
        for vring in &self.vrings {
            vring.require_only_waits()?;
        }
        let session = self.shared.sessions.current();
        let wake = || {
            if let Some(session) = &session {
                session.dispatcher().interrupt_waits();
            }
        };
        if !self.shared.pool.drain(deadline, wake) {
            return Err(failed("requests in progress do not end"));
        }
        self.vrings.iter_mut().for_each(Vring::withdraw);
        Ok(())
    }

    fn begin_to_load(&self, file: OwnedFd) -> io::Result<Transfer<Moved<M>>> {
        let shared = Arc::clone(&self.shared);
        let queues = self.vrings.len();
        Transfer::begin(file, move |pipe| {
            let load_session = |source: &mut dyn io::Read| {
                let session = shared.sessions.make(false)?;
                session.dispatcher().restore(source)?;
                Ok(session)
            };
            let (again, session) = device_state::read(pipe, load_session)?;
            let beyond = again.iter().skip(queues).any(|heads| !heads.is_empty());
            if beyond {
                return Err(io::Error::other(
                    "the state has requests of queues that are not here",
                ));
            }
            Ok(Some((again, session)))
        })
    }

    /// Waits for a transfer to end, and applies a loaded state.
    pub(super) fn settle(&mut self) {
        let Some(transfer) = self.transfer.take() else {
            return;
        };
        let moved = transfer.wait(&self.shared.connection);
        if let Err(error) = &moved {
            // The front end asks whether it went well, not why.
            tracing::error!(%error, "cannot migrate the device state");
        }
        self.transferred = Some(moved.map(|moved| self.put_in_force(moved)));
    }

    fn put_in_force(&mut self, moved: Moved<M>) {
        let Some((again, session)) = moved else {
            tracing::info!("the device state was saved for migration");
            return;
        };
        for (vring, heads) in self.vrings.iter_mut().zip(again) {
            vring.again = heads.into_iter().map(journal::Again::taken).collect();
        }
        // Saved before the guest's INIT: no session.
        if let Some(session) = session.filter(|session| session.dispatcher().features().is_some()) {
            if let Some(journal) = &self.shared.journal {
                journal.set_session(session.dispatcher().init_request().as_deref());
            }
            self.shared.sessions.install(&session);
        }
        tracing::info!("the device state was loaded");
    }

    /// Waits for a transfer before a queue starts: no request may be served during one.
    pub(super) fn settle_before_starting(&mut self) -> Result<()> {
        let starts = self.vrings.iter().any(Vring::is_about_to_start);
        if self.transfer.is_none() || !starts {
            return Ok(());
        }
        self.settle();
        match &self.transferred {
            Some(Err(_)) => Err(failed("cannot migrate the device state")),
            _ => Ok(()),
        }
    }
}

/// Size of the used ring in bytes: flags, index, elements, event index.
fn used_bytes(layout: &VirtqueueLayout) -> u64 {
    2 + 2 + 8 * u64::from(layout.size) + 2
}
