//! What a front end does with SHMEM_MAP: no message says it, so it is tried.

use super::channel::{ChannelError, Part, Patience};
use super::table::PAGE_BYTES;
use super::{Mapper, SESSION_TIMEOUT, file_id};
use rustix::fs::{MemfdFlags, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use thrufs_sys::proc_fd;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Abilities {
    /// It maps beyond the end of a file, so that a file may grow and may end within a page.
    pub(crate) map_beyond_end: bool,
    /// It maps what it is sent open for reading.
    pub(crate) map_read_only: bool,
    /// It adds what it maps to the guest's memory, by ADD_MEM_REG, after it has answered.
    pub(crate) announces: bool,
}

impl Abilities {
    /// Not 0.
    pub(super) fn encode(self) -> u64 {
        let bits = [self.map_beyond_end, self.map_read_only, self.announces];
        bits.iter().fold(1, |word, &bit| word << 1 | u64::from(bit))
    }

    pub(super) fn decode(word: u64) -> Option<Abilities> {
        let bit = |number: u32| word >> number & 1 != 0;
        (word >> 3 == 1).then(|| Abilities {
            map_beyond_end: bit(2),
            map_read_only: bit(1),
            announces: bit(0),
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum TryOutError {
    #[error("no file to try it with: {0}")]
    File(#[from] Errno),
    #[error(transparent)]
    Channel(#[from] ChannelError),
}

/// A page, and a byte of the next.
const FILE_BYTES: u64 = PAGE_BYTES + 1;

fn memory_file() -> rustix::io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create("thrufs-window", MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&file, FILE_BYTES)?;
    Ok(file)
}

/// The same file, open for reading.
fn read_only(file: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    proc_fd::reopen(file.as_fd(), OFlags::RDONLY | OFlags::CLOEXEC)
}

impl Mapper {
    /// Maps a file in memory in the ways in which front ends differ, in a window that has nothing else.
    pub(super) fn try_out(&mut self) -> Result<Abilities, TryOutError> {
        let file = memory_file()?;
        *self.state.tried.lock() = file_id(&file).ok();
        let before = self.state.announced.load(Ordering::SeqCst);
        if !self.try_to_map(file.as_fd(), PAGE_BYTES, true)? {
            return Err(ChannelError::Refused.into());
        }
        let announces = self.state.announced.load(Ordering::SeqCst) > before;
        let map_beyond_end = self.try_to_map(file.as_fd(), 2 * PAGE_BYTES, true)?;
        let map_read_only = match read_only(&file) {
            Ok(file) => self.try_to_map(file.as_fd(), PAGE_BYTES, false)?,
            Err(_) => false,
        };
        *self.state.tried.lock() = None;
        Ok(Abilities {
            map_beyond_end,
            map_read_only,
            announces,
        })
    }

    /// Whether the front end maps it. It is unmapped again, after the front end has announced it, if it does.
    fn try_to_map(
        &mut self,
        file: BorrowedFd<'_>,
        length: u64,
        writable: bool,
    ) -> Result<bool, ChannelError> {
        let part = Part {
            at: 0,
            offset: 0,
            length,
        };
        let tried = self.ask(
            &|| false,
            SESSION_TIMEOUT,
            |channel, patience: &Patience<'_>| {
                // A worker that died may have left it.
                match channel.unmap(part, patience) {
                    Ok(()) | Err(ChannelError::Refused) => {}
                    Err(error) => return Err(error),
                }
                channel.map(part, file, writable, patience)?;
                channel.wait_for_front_end(patience)?;
                channel.unmap(part, patience)
            },
        );
        match tried {
            Ok(()) => Ok(true),
            Err(ChannelError::Refused) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abilities_are_recorded_as_a_word() {
        for bits in 0..8 {
            let can = Abilities {
                map_beyond_end: bits & 1 != 0,
                map_read_only: bits & 2 != 0,
                announces: bits & 4 != 0,
            };
            assert_eq!(Abilities::decode(can.encode()), Some(can));
        }
        assert_eq!(Abilities::decode(0), None);
    }
}
