//! The memory of a ledger.

use super::table::{LEDGER_BYTES, MAGIC, MAGIC_AT};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

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

    /// Clears the ledger for another session. Only while no process writes to it.
    ///
    /// # Errors
    ///
    /// Those of `fallocate(2)` and `pwrite(2)`.
    pub fn clear(&self) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.memory, flags, 0, LEDGER_BYTES)?;
        let magic = MAGIC.to_ne_bytes();
        rustix::io::pwrite(&self.memory, &magic, MAGIC_AT as u64)?;
        Ok(())
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
