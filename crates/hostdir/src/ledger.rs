//! What a session knows, noted in memory that outlives the process.
//!
//! A supervisor makes a [`Ledger`] for each connection and gives it to every worker that serves it, one
//! after the other. The worker notes what its client may know, before the client hears of it. When it
//! dies, however that is, the next one finds there which nodes, open files and owners of locks there
//! are.
//!
//! **What a note costs.** A few stores to shared memory, in the lock that a lookup or an open holds
//! anyway; no system call, but for a table that grows. Without a ledger, a look at an `Option`.
//!
//! **Dying between two stores.** What was stored is in the memory, in order; what was not is not. Each
//! record has a word of state, which is stored last when the record is filled, and first when it is
//! freed; a record in use is changed one word at a time, or (a place) beside the old one. So each record
//! is there as a whole, or not at all.
//!
//! **Lookups** are counted up before the client hears of them, and down when it says that it has
//! forgotten. A request that was carried out and not answered is carried out again by the successor, so
//! a lookup may count twice: the node then stays known until the session ends, which costs its memory
//! and nothing else. It never counts too little, if FORGETs are *not* carried out again: nobody waits for
//! them, and one that is lost costs the same as a lookup that counts twice.
//!
//! **Whom the reader trusts.** Nobody: the process that died may have been taken over. Everything is
//! checked as if it came from afar.
//!
//! | table | a record | most |
//! |---|---|---|
//! | nodes, by index | state and generation, lookups, mount, type, handle (or number and birth) | 2^24 |
//! | places, by the node's index | two places (parent, name), of which one counts; a handle of more than 32 bytes | 2^24 |
//! | files and directories, by index | state and generation, node, flags, kind of `flock(2)` | 2^20 each |
//! | owners of locks | state, node, owner, open file, process | 15,360 |
//! | mounts, by number | state, directory and name that it is mounted on | 7,168 |
//! | names, under a policy, in any order | state, rank, node, directory and name | 2^24 |
//! | lines of the audit log, the last 1024 | state, request, what the line says | 1024 |
//!
//! The file is sparse: what nobody uses takes no memory.

mod names;
mod notes;
mod read;
mod table;
mod tellings;

pub(crate) use names::{NameNote, NamesRead, Rank};
pub(crate) use notes::{FileNote, Notes, OwnerNote};
pub(crate) use read::{NodeRecord, OpenRecord, OwnerRecord, Records};
pub(crate) use tellings::{Before, Telling};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Memory in which the session of a client is noted, so that another process can go on with it:
/// [`Config::ledger`](crate::Config::ledger). It is of one client at a time. Cheap to clone: clones are
/// the same memory.
#[derive(Clone, Debug)]
pub struct Ledger {
    memory: Arc<OwnedFd>,
}

impl Ledger {
    /// A new one, with nothing in it.
    ///
    /// # Errors
    ///
    /// Those of `memfd_create(2)` and `ftruncate(2)`.
    pub fn new() -> io::Result<Ledger> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create(c"thrufs-ledger", flags)?;
        rustix::fs::ftruncate(&memory, table::LEDGER_BYTES)?;
        // A worker that was taken over must not be able to cut it short: that would end its successor.
        rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW)?;
        Ok(Ledger::from(memory))
    }

    /// Forgets the session that is noted there, for another that begins and of which nothing is to be
    /// noted yet. Only while nobody notes anything.
    ///
    /// # Errors
    ///
    /// Those of `fallocate(2)` and `pwrite(2)`.
    pub fn clear(&self) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.memory, flags, 0, table::LEDGER_BYTES)?;
        let magic = notes::MAGIC.to_ne_bytes();
        rustix::io::pwrite(&self.memory, &magic, notes::MAGIC_AT as u64)?;
        Ok(())
    }
}

impl From<OwnedFd> for Ledger {
    /// One that another process has made, and handed over.
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

#[cfg(test)]
mod tests;
