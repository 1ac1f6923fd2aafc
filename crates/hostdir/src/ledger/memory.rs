//! The memory of a ledger, and its header.

use super::records::{Header, LEDGER_BYTES, MAGIC};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use thrufs_sys::shared_memory::records::SharedRecords;

/// Memory that records the session of a client, so that another process can resume it:
/// [`Resources::ledger`](crate::Resources::ledger). For one client at a time. Clones share the memory.
#[derive(Clone, Debug)]
pub struct Ledger {
    memory: Arc<OwnedFd>,
}

impl Ledger {
    /// An empty ledger.
    ///
    /// # Errors
    ///
    /// Those of `memfd_create(2)` and `ftruncate(2)`.
    pub fn new() -> io::Result<Ledger> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create(c"thrufs-ledger", flags)?;
        rustix::fs::ftruncate(&memory, LEDGER_BYTES)?;
        // A compromised worker must not truncate it: the next worker would get SIGBUS.
        rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW)?;
        Ok(Ledger::from(memory))
    }

    /// Checks that this program can resume the session that is recorded.
    ///
    /// # Errors
    ///
    /// `InvalidData` for a ledger of another version, those of `mmap(2)`.
    pub fn check(&self) -> io::Result<()> {
        match Memory::new(self.clone())?.header().magic.load() {
            0 | MAGIC => Ok(()),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the record of the session has another version",
            )),
        }
    }

    /// Clears the ledger for another session. Only while no process writes to it.
    ///
    /// # Errors
    ///
    /// Those of `fallocate(2)` and `mmap(2)`.
    pub fn clear(&self) -> io::Result<()> {
        Memory::new(self.clone())?.clear()
    }
}

impl From<OwnedFd> for Ledger {
    /// A ledger that another process has made and handed over.
    fn from(memory: OwnedFd) -> Ledger {
        Ledger {
            memory: Arc::new(memory),
        }
    }
}

impl AsFd for Ledger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

/// A ledger that this process writes to or reads.
pub(super) struct Memory {
    ledger: Ledger,
    header: SharedRecords<Header>,
    /// Run once: what an earlier process has left is either resumed, or wiped before the first record.
    begun: Once,
    /// What is recorded from now on stays: the numbers of the process before are known.
    is_ready: AtomicBool,
}

impl Memory {
    pub(super) fn new(ledger: Ledger) -> io::Result<Memory> {
        Ok(Memory {
            header: SharedRecords::new(ledger.as_fd(), 0, 1)?,
            ledger,
            begun: Once::new(),
            is_ready: AtomicBool::new(false),
        })
    }

    pub(super) fn header(&self) -> &Header {
        &self.header[0]
    }

    fn clear(&self) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.ledger, flags, 0, LEDGER_BYTES)?;
        self.header().magic.store(MAGIC);
        Ok(())
    }

    /// Clears all. Only while no thread writes.
    pub(super) fn wipe(&self) {
        if let Err(error) = self.clear() {
            tracing::warn!(%error, "cannot clear the ledger: the session cannot be resumed");
            self.header().magic.store(MAGIC);
            self.incomplete::<()>();
        }
    }

    pub(super) fn begin(&self) {
        if !self.begun.is_completed() {
            self.begun.call_once(|| {
                self.wipe();
                self.set_ready();
            });
        }
    }

    pub(super) fn set_ready(&self) {
        self.is_ready.store(true, Ordering::Release);
    }

    pub(super) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    /// What an earlier process has left stays.
    pub(super) fn resume(&self) {
        self.begun.call_once(|| {});
    }

    /// Something could not be recorded.
    #[cold]
    pub(super) fn incomplete<T>(&self) -> Option<T> {
        self.header().incomplete.store(1);
        None
    }
}

impl AsFd for Memory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ledger.as_fd()
    }
}
