//! The record of a connection in shared memory, from which the next worker resumes when one is killed.
//!
//! The process that starts workers gives each the same memfd. At every moment it holds the session's INIT
//! request as the guest sent it, the requests in flight of each queue, and the progress of each. It is written
//! by plain stores, in an order that leaves it consistent between any two; no lock, no system call.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | the session: 1 when there is one |
//! | 8 | the length of its INIT request, which begins at 64 |
//! | 16 | number of workers that have died or were replaced on this connection |
//! | 2048 | of each queue, eight bytes: 1 when the front end has set its base anew ([`Journal::note_base`]) |
//! | 4096 | the queues: of each the table of what is [`inflight`], then a word for each descriptor ([`Intent`]) |
//! | after these | the DAX window ([`WindowRecord`]) |
//!
//! The size is sealed: a worker that a guest has taken over cannot truncate it for others.

mod inflight;
mod intent;
mod tracker;
mod window;
mod words;

pub(crate) use inflight::Inflight;
pub(crate) use intent::{Intent, Phase};
pub(crate) use tracker::{Again, Tracker};
pub(crate) use window::{RecordedMapping, WindowRecord};

use crate::limits::{QUEUE_SIZE_MAX, REQUEST_QUEUES_MAX};
use rustix::fs::{MemfdFlags, SealFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use thrufs_sys::shared_memory::SharedMapping;
use words::Words;

const SESSION: usize = 0;
const INIT_LENGTH: usize = 8;
const DEATHS: usize = 16;
const INIT: usize = 64;
const INIT_BYTES_MAX: usize = 1024;
const BASES: usize = 2048;
const QUEUES: usize = 4096;

const ENTRIES_MAX: usize = QUEUE_SIZE_MAX as usize;
const QUEUE_BYTES: usize = Inflight::bytes(ENTRIES_MAX) + Intent::BYTES * ENTRIES_MAX;
const QUEUES_MAX: usize = 1 + REQUEST_QUEUES_MAX as usize;
const WINDOW: usize = QUEUES + QUEUES_MAX * QUEUE_BYTES.next_multiple_of(4096);
const BYTES: usize = WINDOW + WindowRecord::BYTES.next_multiple_of(4096);

/// See the module. Clones share the memory.
#[derive(Clone, Debug)]
pub struct Journal {
    file: Arc<OwnedFd>,
    words: Words,
}

impl Journal {
    /// An empty one, for a new connection. Pages are allocated when they are written.
    ///
    /// # Errors
    ///
    /// Without descriptors or memory.
    pub fn new() -> io::Result<Journal> {
        let file = new_memory("thrufs-journal", BYTES)?;
        Journal::from_memory(file)
    }

    /// One that another process has made.
    ///
    /// # Errors
    ///
    /// When it has another size or cannot be mapped.
    pub fn from_memory(file: OwnedFd) -> io::Result<Journal> {
        let mapping = SharedMapping::new(file.as_fd(), 0, BYTES)?;
        Ok(Journal {
            file: Arc::new(file),
            words: Words::new(Arc::new(mapping), 0),
        })
    }

    /// The number of workers that have died on this connection, or were killed to be replaced: whether the guest may wait
    /// for a notification that a worker did not send.
    pub fn deaths(&self) -> u64 {
        self.words.load(DEATHS)
    }

    /// Counts one more death.
    pub fn count_death(&self) {
        self.words.store(DEATHS, self.deaths().saturating_add(1));
    }

    pub(crate) fn session(&self) -> Option<Vec<u8>> {
        if self.words.load(SESSION) != 1 {
            return None;
        }
        let length = usize::try_from(self.words.load(INIT_LENGTH)).ok()?;
        let mut init = vec![0; length.min(INIT_BYTES_MAX)];
        self.words.mapping().copy_out(INIT, &mut init).ok()?;
        Some(init)
    }

    /// Records the begin of a session, before the reply to its INIT, or its end.
    pub(crate) fn set_session(&self, init: Option<&[u8]>) {
        self.words.store(SESSION, 0);
        if let Some(init) = init
            && init.len() <= INIT_BYTES_MAX
        {
            self.words.copy_in(INIT, init);
            self.words.store(INIT_LENGTH, init.len() as u64);
            self.words.store(SESSION, 1);
        }
    }

    /// Records a SET_VRING_BASE: the queue may be another one now.
    pub(crate) fn note_base(&self, queue: usize) {
        self.words.store(BASES + 8 * (queue % QUEUES_MAX), 1);
    }

    /// Whether a base was set that no worker has started with.
    pub(crate) fn has_new_base(&self, queue: usize) -> bool {
        self.words.load(BASES + 8 * (queue % QUEUES_MAX)) != 0
    }

    /// Records that a worker has started with the base.
    pub(crate) fn take_base(&self, queue: usize) {
        self.words.store(BASES + 8 * (queue % QUEUES_MAX), 0);
    }

    pub(crate) fn inflight(&self, queue: usize, size: u16) -> Option<Inflight> {
        Inflight::new(Arc::clone(self.words.mapping()), queue_at(queue), size)
    }

    pub(crate) fn window(&self) -> WindowRecord {
        WindowRecord::new(Arc::clone(self.words.mapping()), WINDOW)
    }

    pub(crate) fn intents(&self, queue: usize) -> Intent {
        let at = queue_at(queue) + Inflight::bytes(ENTRIES_MAX);
        Intent::new(Arc::clone(self.words.mapping()), at)
    }
}

impl AsFd for Journal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn queue_at(queue: usize) -> usize {
    QUEUES + (queue % QUEUES_MAX) * QUEUE_BYTES.next_multiple_of(4096)
}

/// A memfd of `bytes` zeroes with a sealed size.
pub(crate) fn new_memory(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create(name, flags)?;
    rustix::fs::ftruncate(&file, bytes as u64)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file)
}

#[cfg(test)]
mod tests;
