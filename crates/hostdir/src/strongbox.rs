//! Descriptors that must not close with the process.
//!
//! Most of what a session has open can be opened again by whoever goes on with it. Two things cannot: a
//! file whose last name is gone, which is no more when nobody has it open, and locks, which are given up
//! when the open file that carries them is closed. Their descriptors are handed to somebody who outlives
//! the process, before the client hears that there is something to lose.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use thrufs_abi::{FileHandle, NodeId};

/// Keeps descriptors that outlive the process, such as by giving them to a supervisor:
/// [`Config::strongbox`](crate::Config::strongbox). The open file is what matters: what is kept is a
/// duplicate, and carries its locks.
pub trait Strongbox: Send + Sync {
    /// Keeps a duplicate of `fd` under `key`, in the place of what was there. When it returns, the
    /// duplicate outlives the process.
    ///
    /// # Errors
    ///
    /// When it is full, or nobody is there.
    fn keep(&self, key: u64, fd: BorrowedFd<'_>) -> io::Result<()>;

    /// Closes what is kept under `key`, soon.
    fn discard(&self, key: u64);

    /// Everything that is kept, and stays kept. Called once, by the process that goes on.
    fn take(&self) -> Vec<(u64, OwnedFd)>;
}

impl fmt::Debug for dyn Strongbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Strongbox")
    }
}

/// What a key stands for. The upper two bits, which ids do not use, tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// An inode, by an `O_PATH` descriptor.
    Node(NodeId),
    /// The lower file of an open file, which carries a `flock(2)`.
    File(FileHandle),
    /// The open file of an owner of locks, by its place in the ledger.
    Owner(u32),
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
        }
    }
}

impl Key {
    fn from_u64(key: u64) -> Option<Key> {
        match key & KIND {
            0 => Some(Key::Node(NodeId(key))),
            FILE => Some(Key::File(FileHandle(key & !KIND))),
            OWNER => u32::try_from(key & !KIND).ok().map(Key::Owner),
            _ => None,
        }
    }
}

/// What is found in a strongbox. Of what nobody asks for, only our duplicate is closed.
#[derive(Default)]
pub(crate) struct Contents(HashMap<Key, OwnedFd>);

impl Contents {
    pub(crate) fn of(strongbox: Option<&dyn Strongbox>) -> Contents {
        let all = strongbox.map(Strongbox::take).unwrap_or_default();
        let known = all.into_iter();
        Contents(
            known
                .filter_map(|(key, fd)| Some((Key::from_u64(key)?, fd)))
                .collect(),
        )
    }

    pub(crate) fn take(&mut self, key: Key) -> Option<OwnedFd> {
        self.0.remove(&key)
    }

    /// The keys that nobody has asked for.
    pub(crate) fn left(&self) -> impl Iterator<Item = Key> {
        self.0.keys().copied()
    }

    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        let nodes = self.0.keys().filter_map(|key| match key {
            Key::Node(node) => Some(*node),
            _ => None,
        });
        nodes.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart() {
        let highest = u64::from(crate::slots::GENERATION_MAX - 1) << 32 | 7;
        for key in [
            Key::Node(NodeId(1)),
            Key::Node(NodeId(highest)),
            Key::File(FileHandle(1)),
            Key::File(FileHandle(highest)),
            Key::Owner(1),
            Key::Owner(u32::MAX),
        ] {
            assert_eq!(Key::from_u64(key.into()), Some(key));
        }
        assert_eq!(Key::from_u64(3 << 62), None);
        assert_eq!(Key::from_u64(OWNER | 1 << 40), None);
    }
}
