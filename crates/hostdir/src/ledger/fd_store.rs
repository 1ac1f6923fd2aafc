//! Stores descriptors that must not close with the process.
//!
//! A resuming process can open most files of a session again, except a file without names, which is freed
//! when it is closed, and locks, which end with the open file that carries them. Their descriptors are
//! handed to another process before the client gets the answer.

use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::{fmt, io};
use thrufs_abi::{FileHandle, NodeId};

/// Stores descriptors that outlive the process, for example in a supervisor:
/// [`Resources::fd_store`](crate::Resources::fd_store). A stored duplicate shares the open file, and so
/// its locks.
pub trait FdStore: Send + Sync {
    /// Stores a duplicate of `fd` under `key`, replacing an earlier one. On return, the duplicate outlives
    /// the process.
    ///
    /// # Errors
    ///
    /// When it is full, or the other process is gone.
    fn keep(&self, key: u64, fd: BorrowedFd<'_>) -> io::Result<()>;

    /// Closes what is stored under `key`, soon.
    fn discard(&self, key: u64);

    /// Waits until all that was discarded so far is closed.
    fn settle(&self) {}

    /// How many it takes.
    fn kept_max(&self) -> usize {
        usize::MAX
    }

    /// Duplicates of everything that is stored. Called once, by the resuming process.
    fn take(&self) -> Vec<(u64, OwnedFd)>;
}

impl fmt::Debug for dyn FdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FdStore")
    }
}

/// What a key means, by its upper two bits, which ids do not use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// An inode, by an `O_PATH` descriptor.
    Node(NodeId),
    /// The lower file of an open file, which carries a `flock(2)`.
    File(FileHandle),
    /// The file of an owner of locks, by its index in the ledger.
    Owner(u32),
    /// The root, opened for the lock on names.
    NameLock,
}

const FILE: u64 = 1 << 62;
const OWNER: u64 = 2 << 62;
const KIND: u64 = 3 << 62;

impl From<Key> for u64 {
    fn from(key: Key) -> u64 {
        match key {
            Key::Node(node) => node.0 & !KIND,
            Key::File(handle) => FILE | (handle.0 & !KIND),
            Key::Owner(index) => OWNER | u64::from(index),
            Key::NameLock => KIND,
        }
    }
}

impl Key {
    fn from_u64(key: u64) -> Option<Key> {
        match key & KIND {
            0 => Some(Key::Node(NodeId(key))),
            FILE => Some(Key::File(FileHandle(key & !KIND))),
            OWNER => u32::try_from(key & !KIND).ok().map(Key::Owner),
            KIND => (key == KIND).then_some(Key::NameLock),
            _ => None,
        }
    }
}

/// Duplicates of what was stored. Those that are not asked for are closed.
pub(crate) type Contents = HashMap<Key, OwnedFd>;

pub(crate) fn contents(fd_store: &dyn FdStore) -> Contents {
    let all = fd_store.take().into_iter();
    all.filter_map(|(key, fd)| Some((Key::from_u64(key)?, fd)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_distinct() {
        let highest = u64::from(crate::slots::GENERATION_MAX - 1) << 32 | 7;
        for key in [
            Key::Node(NodeId(1)),
            Key::Node(NodeId(highest)),
            Key::File(FileHandle(1)),
            Key::File(FileHandle(highest)),
            Key::Owner(1),
            Key::Owner(u32::MAX),
            Key::NameLock,
        ] {
            assert_eq!(Key::from_u64(key.into()), Some(key));
        }
        assert_eq!(Key::from_u64(KIND | 1), None);
        assert_eq!(Key::from_u64(OWNER | 1 << 40), None);
    }
}
