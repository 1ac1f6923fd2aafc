//! A guest's use of a DAX window, as Linux's `fs/fuse/dax.c` has it.
//!
//! Files are mapped in ranges of 2 MiB, each on a multiple of 2 MiB in the window, past the end of the file too. A
//! range is set up when it is first accessed (SETUPMAPPING), for reading, or for reading and writing; a store to
//! one that is set up for reading upgrades it by a second SETUPMAPPING of the same place. When less than a fifth
//! of the window is free, the ten ranges that were not used for longest are removed, each by a REMOVEMAPPING of
//! its own.
//!
//! Two locks. `changing` is held across the requests that set up, upgrade and remove ranges. `ranges` is read while
//! bytes are copied, and written only to add and remove an entry: so accesses go on during an upgrade, and none
//! goes on to a range that is removed.

use crate::front_end::{Window, WindowError};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};
use thrufs::Errno;
use thrufs_abi::NodeId;
use thrufs_abi::layout::{RemovemappingOne, SetupmappingIn};
use thrufs_testing::{Caller, Carrier};

/// Bytes of a range (`FUSE_DAX_SZ`).
pub const DAX_RANGE_BYTES: u64 = 2 << 20;
/// `FUSE_DAX_RECLAIM_THRESHOLD`, in percent.
const RECLAIM_BELOW: usize = 20;
/// `FUSE_DAX_RECLAIM_CHUNK`.
const RECLAIM_AT_ONCE: usize = 10;
/// `FUSE_REMOVEMAPPING_MAX_ENTRY`.
const REMOVED_AT_ONCE: usize = 4096 / size_of::<RemovemappingOne>();

/// `FUSE_SETUPMAPPING_FLAG_WRITE`.
pub const SETUPMAPPING_WRITE: u64 = 1 << 0;
/// `FUSE_SETUPMAPPING_FLAG_READ`.
pub const SETUPMAPPING_READ: u64 = 1 << 1;

/// Why an access by the window failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DaxError {
    /// SETUPMAPPING or REMOVEMAPPING was refused.
    #[error("the server answers {0}")]
    Request(Errno),
    /// The window could not be accessed.
    #[error("the window: {0}")]
    Window(#[from] WindowError),
}

/// Accesses files through a window. Threads may share it.
pub struct DaxClient<'a, C: Carrier> {
    caller: Caller<'a, C>,
    window: Window,
    ranges: RwLock<Ranges>,
    changing: Mutex<Changing>,
    uses: AtomicU64,
}

type Key = (NodeId, u64);
type Ranges = HashMap<Key, DaxRange>;

struct DaxRange {
    /// Its place in the window, in ranges.
    place: u64,
    writable: AtomicBool,
    /// The number of its last use.
    used: AtomicU64,
}

struct Changing {
    free: Vec<u64>,
    reclaim_below: usize,
}

impl<'a, C: Carrier> DaxClient<'a, C> {
    /// A client with a caller's ids. It uses the whole ranges of the window, from its beginning.
    #[must_use]
    pub fn new(caller: Caller<'a, C>, window: &Window) -> DaxClient<'a, C> {
        let count = window.size() / DAX_RANGE_BYTES;
        DaxClient {
            caller,
            window: window.clone(),
            ranges: RwLock::default(),
            changing: Mutex::new(Changing {
                free: (0..count).rev().collect(),
                reclaim_below: (count as usize * RECLAIM_BELOW / 100).max(1),
            }),
            uses: AtomicU64::new(0),
        }
    }

    /// Copies the bytes of a file at `offset`.
    ///
    /// # Errors
    ///
    /// ENOSPC when the window has no whole range; the server's; those of [`Window::read`], with EFAULT beyond the
    /// last page of the file.
    pub fn read(&self, node: NodeId, offset: u64, bytes: &mut [u8]) -> Result<(), DaxError> {
        each_range(offset, bytes.len(), |index, within, part| {
            self.access((node, index), false, |at| {
                self.window.read(at + within, &mut bytes[part.clone()])
            })
        })
    }

    /// As [`read`](Self::read), by loads: the process ends by SIGBUS beyond the last page of the file.
    pub fn load(&self, node: NodeId, offset: u64, bytes: &mut [u8]) -> Result<(), DaxError> {
        each_range(offset, bytes.len(), |index, within, part| {
            self.access((node, index), false, |at| {
                let window = self.window.hold();
                window.copy_out(at + within, &mut bytes[part.clone()])
            })
        })
    }

    /// Copies bytes to a file at `offset`, which does not make it longer.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn write(&self, node: NodeId, offset: u64, bytes: &[u8]) -> Result<(), DaxError> {
        each_range(offset, bytes.len(), |index, within, part| {
            self.access((node, index), true, |at| {
                self.window.write(at + within, &bytes[part.clone()])
            })
        })
    }

    /// Removes the ranges of a file, as a guest does when it forgets the node.
    ///
    /// # Errors
    ///
    /// The server's. The ranges are removed here all the same.
    pub fn remove(&self, node: NodeId) -> Result<(), DaxError> {
        let mut changing = self.changing();
        let keys: Vec<Key> = {
            let ranges = self.ranges();
            ranges.keys().filter(|key| key.0 == node).copied().collect()
        };
        for keys in keys.chunks(REMOVED_AT_ONCE) {
            self.remove_ranges(&mut changing, node, keys)?;
        }
        Ok(())
    }

    fn ranges(&self) -> RwLockReadGuard<'_, Ranges> {
        self.ranges.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn changing(&self) -> std::sync::MutexGuard<'_, Changing> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `copy` with a range's offset in the window, once it is set up as wanted.
    fn access(
        &self,
        key: Key,
        to_write: bool,
        mut copy: impl FnMut(u64) -> Result<(), WindowError>,
    ) -> Result<(), DaxError> {
        loop {
            if let Some(range) = self.ranges().get(&key)
                && range.allows(to_write)
            {
                let number = self.uses.fetch_add(1, Ordering::Relaxed);
                range.used.store(number, Ordering::Relaxed);
                return Ok(copy(range.place * DAX_RANGE_BYTES)?);
            }
            // Another thread may remove it before it is used.
            self.set_up(key, to_write)?;
        }
    }

    fn set_up(&self, key: Key, to_write: bool) -> Result<(), DaxError> {
        let mut changing = self.changing();
        if let Some(range) = self.ranges().get(&key) {
            if !range.allows(to_write) {
                self.request(key, range.place, true)?;
                range.writable.store(true, Ordering::Release);
            }
            return Ok(());
        }
        if changing.free.len() < changing.reclaim_below {
            self.reclaim(&mut changing)?;
        }
        let place = changing.free.pop();
        let place = place.ok_or(DaxError::Request(Errno::ENOSPC))?;
        if let Err(error) = self.request(key, place, to_write) {
            changing.free.push(place);
            return Err(error);
        }
        let range = DaxRange {
            place,
            writable: AtomicBool::new(to_write),
            used: AtomicU64::new(self.uses.fetch_add(1, Ordering::Relaxed)),
        };
        let mut ranges = self.ranges.write().unwrap_or_else(PoisonError::into_inner);
        ranges.insert(key, range);
        Ok(())
    }

    fn request(&self, (node, index): Key, place: u64, to_write: bool) -> Result<(), DaxError> {
        let write = if to_write { SETUPMAPPING_WRITE } else { 0 };
        let arg = SetupmappingIn {
            fh: u64::MAX,
            foffset: index * DAX_RANGE_BYTES,
            len: DAX_RANGE_BYTES,
            flags: SETUPMAPPING_READ | write,
            moffset: place * DAX_RANGE_BYTES,
        };
        let done = self.caller.setup_mapping(node, &arg);
        done.map_err(DaxError::Request)
    }

    /// Removes the ranges that were not used for longest.
    fn reclaim(&self, changing: &mut Changing) -> Result<(), DaxError> {
        let mut oldest: Vec<(u64, Key)> = {
            let ranges = self.ranges();
            let used = |range: &DaxRange| range.used.load(Ordering::Relaxed);
            ranges
                .iter()
                .map(|(key, range)| (used(range), *key))
                .collect()
        };
        oldest.sort_unstable();
        for (_, key) in oldest.into_iter().take(RECLAIM_AT_ONCE) {
            self.remove_ranges(changing, key.0, &[key])?;
        }
        Ok(())
    }

    /// Removes ranges of one file, after the accesses in progress.
    fn remove_ranges(
        &self,
        changing: &mut Changing,
        node: NodeId,
        keys: &[Key],
    ) -> Result<(), DaxError> {
        let places: Vec<u64> = {
            let mut ranges = self.ranges.write().unwrap_or_else(PoisonError::into_inner);
            let removed = keys.iter().filter_map(|key| ranges.remove(key));
            removed.map(|range| range.place).collect()
        };
        let list: Vec<_> = places
            .iter()
            .map(|place| RemovemappingOne {
                moffset: place * DAX_RANGE_BYTES,
                len: DAX_RANGE_BYTES,
            })
            .collect();
        let done = self.caller.remove_mapping(node, &list);
        changing.free.extend(places);
        done.map_err(DaxError::Request)
    }
}

impl DaxRange {
    fn allows(&self, to_write: bool) -> bool {
        !to_write || self.writable.load(Ordering::Acquire)
    }
}

/// Calls `each` for the part in each range of `length` bytes at `offset`: with the number of the range, the offset
/// in it, and the range of the bytes.
fn each_range(
    offset: u64,
    length: usize,
    mut each: impl FnMut(u64, u64, Range<usize>) -> Result<(), DaxError>,
) -> Result<(), DaxError> {
    let mut done = 0;
    while done < length {
        let here = offset + done as u64;
        let within = here % DAX_RANGE_BYTES;
        let left = (DAX_RANGE_BYTES - within) as usize;
        let count = left.min(length - done);
        each(here / DAX_RANGE_BYTES, within, done..done + count)?;
        done += count;
    }
    Ok(())
}
