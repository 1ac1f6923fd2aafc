//! What a worker leaves to its successor: memory that outlives the process.
//!
//! A worker that is killed says nothing any more. So what the next one must know stands, at every
//! moment, in a memfd that both have from the process that starts them: how the session began (INIT as
//! the guest sent it), which requests of each queue are in flight, and of those how far each has come.
//! It is written by plain stores, whose order is such that it makes sense between any two of them; no
//! lock, no system call.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | the session: 1 when there is one |
//! | 8 | the length of its INIT request, which begins at 64 |
//! | 16 | how many workers have died on this connection |
//! | 2048 | of each queue, eight bytes: 1 when the front end has set its base anew ([`Journal::note_base`]) |
//! | 4096 | the queues: of each the table of what is [`inflight`], then a word for each descriptor ([`Intent`]) |
//!
//! The size is sealed: the worker, who reads what guests write, cannot cut it short for others.

mod inflight;
mod intent;
mod tracker;

pub(crate) use inflight::Inflight;
pub(crate) use intent::{Intent, Phase};
pub(crate) use tracker::{Again, Tracker};

use crate::config::REQUEST_QUEUES_MAX;
use rustix::fs::{MemfdFlags, SealFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thrufs_sys::shared_memory::{Outside, SharedMapping};

const SESSION: usize = 0;
const INIT_LENGTH: usize = 8;
const DEATHS: usize = 16;
const INIT: usize = 64;
const INIT_BYTES_MAX: usize = 1024;
const BASES: usize = 2048;
const QUEUES: usize = 4096;

/// Descriptors of the largest queue that a device has.
const QUEUE_SIZE_MAX: usize = 1024;
const QUEUE_BYTES: usize = Inflight::bytes(QUEUE_SIZE_MAX) + Intent::BYTES * QUEUE_SIZE_MAX;
const QUEUES_MAX: usize = 1 + REQUEST_QUEUES_MAX as usize;
const BYTES: usize = QUEUES + QUEUES_MAX * QUEUE_BYTES.next_multiple_of(4096);

/// See the module. Clones are the same memory.
#[derive(Clone, Debug)]
pub struct Journal {
    file: Arc<OwnedFd>,
    mapping: Arc<SharedMapping>,
}

impl Journal {
    /// An empty one, for a new connection. It is memory only where it is written to.
    ///
    /// # Errors
    ///
    /// No descriptors, no memory.
    pub fn new() -> io::Result<Journal> {
        let file = new_memory("thrufs-journal", BYTES)?;
        Journal::from_memory(file)
    }

    /// The one that another process has made.
    ///
    /// # Errors
    ///
    /// When it is none.
    pub fn from_memory(file: OwnedFd) -> io::Result<Journal> {
        let mapping = SharedMapping::new(file.as_fd(), 0, BYTES)?;
        Ok(Journal {
            file: Arc::new(file),
            mapping: Arc::new(mapping),
        })
    }

    /// How many workers have died on this connection.
    pub fn deaths(&self) -> u64 {
        self.load(DEATHS)
    }

    /// Counts one more.
    pub fn count_death(&self) {
        self.store(DEATHS, self.deaths().saturating_add(1));
    }

    /// The INIT request of the session that is in progress.
    pub(crate) fn session(&self) -> Option<Vec<u8>> {
        if self.load(SESSION) != 1 {
            return None;
        }
        let length = usize::try_from(self.load(INIT_LENGTH)).ok()?;
        let mut init = vec![0; length.min(INIT_BYTES_MAX)];
        self.mapping.copy_out(INIT, &mut init).ok()?;
        Some(init)
    }

    /// A session begins, before its INIT is answered; or none is there any more.
    pub(crate) fn set_session(&self, init: Option<&[u8]>) {
        self.store(SESSION, 0);
        if let Some(init) = init
            && init.len() <= INIT_BYTES_MAX
        {
            if lives() {
                within(self.mapping.copy_in(INIT, init));
            }
            self.store(INIT_LENGTH, init.len() as u64);
            self.store(SESSION, 1);
        }
    }

    /// The front end has said from where to take requests of a queue: it may be another queue now.
    pub(crate) fn note_base(&self, queue: usize) {
        self.store(BASES + 8 * (queue % QUEUES_MAX), 1);
    }

    /// Whether it has, and no worker has begun with it.
    pub(crate) fn has_new_base(&self, queue: usize) -> bool {
        self.load(BASES + 8 * (queue % QUEUES_MAX)) != 0
    }

    /// A worker has begun with it.
    pub(crate) fn take_base(&self, queue: usize) {
        self.store(BASES + 8 * (queue % QUEUES_MAX), 0);
    }

    /// What is in flight of a queue.
    pub(crate) fn inflight(&self, queue: usize, size: u16) -> Option<Inflight> {
        Inflight::new(Arc::clone(&self.mapping), queue_at(queue), size)
    }

    /// How far the requests of a queue have come.
    pub(crate) fn intents(&self, queue: usize) -> Intent {
        let at = queue_at(queue) + Inflight::bytes(QUEUE_SIZE_MAX);
        Intent::new(Arc::clone(&self.mapping), at)
    }

    fn load(&self, at: usize) -> u64 {
        self.mapping.load_u64(at, Ordering::Acquire).unwrap_or(0)
    }

    fn store(&self, at: usize, value: u64) {
        if !lives() {
            return;
        }
        within(self.mapping.store_u64(at, value, Ordering::Release));
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

/// Places here are computed and not heard of, so they are in the memory.
fn within(result: Result<(), Outside>) {
    debug_assert!(result.is_ok(), "outside the memory");
}

/// Memory of `bytes` zeroes whose size nobody can change.
pub(crate) fn new_memory(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create(name, flags)?;
    rustix::fs::ftruncate(&file, bytes as u64)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file)
}

/// Whether a store takes place. In tests, the process may have died before it.
#[cfg(not(test))]
#[inline]
fn lives() -> bool {
    true
}

#[cfg(test)]
use tests::dying::lives;

#[cfg(test)]
mod tests;
