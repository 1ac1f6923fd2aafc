//! One mount of the host in the served tree: what its file system is capable of, and what was found of it.

use super::idle_expiry::IdleExpiry;
use super::magic::{BTRFS_MAGIC, EXT_MAGIC, TMPFS_MAGIC, XFS_MAGIC};
use super::uses::Obstacle;
use parking_lot::RwLock;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use thrufs::NoWait;
use thrufs_sys::handle::FileHandleBuf;

/// `D` is its mount point's directory: an [`Inode`](super::inode::Inode).
pub(crate) struct LowerMount<D> {
    pub(crate) index: u32,
    pub(crate) id: u64,
    pub(crate) magic: u64,
    /// An open directory of the mount, for open_by_handle_at(2). `None` while the mount is released.
    pub(super) anchor: RwLock<Option<Arc<OwnedFd>>>,
    /// Whether its inodes have file handles that we may open.
    pub(crate) has_handles: bool,
    /// Without handles that can be opened: inodes are identified by handle all the same, as in events of
    /// changes.
    pub(super) has_closed_handles: bool,
    pub(super) number_in_handle: NumberInHandle,
    pub(crate) no_wait: NoWait,
    /// Whether another machine or process serves it.
    pub(crate) is_remote: bool,
    /// Its file system is stacked on others.
    pub(super) is_layered: bool,
    /// Found to be stacked too deep for passthrough.
    pub(super) is_stacked: AtomicBool,
    /// Found to have no POSIX ACLs.
    pub(super) is_without_acls: AtomicBool,
    /// Whether it was read-only, as the low bit, below the milliseconds of the last look; 0 for never.
    pub(super) read_only_seen: AtomicU64,
    /// An obstacle to passthrough was logged.
    pub(super) logged: AtomicBool,
    /// Its mount point, to find it again; `None` for the mount of the source.
    pub(crate) mounted_on: Option<(Arc<D>, CString)>,
    pub(crate) idle_expiry: IdleExpiry,
}

/// Where a handle contains the inode number, to see whether a handle and a stat, taken one after the other,
/// are of one inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberInHandle {
    /// First 4 bytes (ext2, ext3, ext4).
    Low32,
    /// First 8 bytes or first 4, by the handle's length (XFS, btrfs).
    Start,
    /// After a generation of 4 bytes: low and high half (tmpfs).
    AfterGeneration,
    /// Handles of other file systems are opaque.
    Unknown,
}

impl<D> LowerMount<D> {
    /// Whether positions of a listing stay valid when its directory is opened again.
    pub(crate) fn keeps_positions(&self) -> bool {
        self.has_handles && matches!(self.magic, EXT_MAGIC | XFS_MAGIC | BTRFS_MAGIC)
    }

    pub(crate) fn has_subvolumes(&self) -> bool {
        self.magic == BTRFS_MAGIC
    }

    pub(crate) fn is_memory(&self) -> bool {
        self.no_wait == NoWait::Memory
    }

    /// Whether its file system may reserve blocks for root (ext4, f2fs): known not to for tmpfs, XFS and btrfs.
    pub(crate) fn reserves_blocks(&self) -> bool {
        !matches!(self.magic, TMPFS_MAGIC | XFS_MAGIC | BTRFS_MAGIC)
    }

    pub(crate) fn is_stacked(&self) -> bool {
        self.is_stacked.load(Ordering::Relaxed)
    }

    pub(crate) fn set_stacked(&self) {
        self.is_stacked.store(true, Ordering::Relaxed);
    }

    pub(crate) fn may_have_acls(&self) -> bool {
        !self.is_without_acls.load(Ordering::Relaxed)
    }

    /// One of its files or directories has no ACL support. Other inodes never have.
    pub(crate) fn set_without_acls(&self) {
        self.is_without_acls.store(true, Ordering::Relaxed);
    }

    /// Logs the first obstacle to passthrough of its files.
    pub(crate) fn log_once(&self, obstacle: Obstacle) {
        if !self.logged.load(Ordering::Relaxed) && !self.logged.swap(true, Ordering::Relaxed) {
            tracing::info!(
                mount = self.id,
                "passthrough is off for files on a lower mount: {obstacle}"
            );
        }
    }

    /// Whether it was read-only, if known and not older than `age_ms`.
    pub(crate) fn known_read_only(&self, now_ms: u64, age_ms: u64) -> Option<bool> {
        let seen = self.read_only_seen.load(Ordering::Relaxed);
        let is_fresh = seen != 0 && now_ms.saturating_sub(seen >> 1) < age_ms;
        is_fresh.then_some(seen & 1 == 1)
    }

    pub(crate) fn record_read_only(&self, now_ms: u64, is_read_only: bool) {
        let seen = now_ms.max(1) << 1 | u64::from(is_read_only);
        self.read_only_seen.store(seen, Ordering::Relaxed);
    }

    pub(crate) fn is_source(&self) -> bool {
        self.index == 0
    }

    /// Whether a handle and a stat are of one inode; `None` for opaque handles.
    pub(crate) fn handle_is_of(&self, handle: &FileHandleBuf, ino: u64) -> Option<bool> {
        let bytes = handle.bytes();
        let word = |at: usize| -> Option<u64> {
            let bytes = bytes.get(at..at + 4)?;
            Some(u64::from(u32::from_ne_bytes(bytes.try_into().ok()?)))
        };
        let number = match self.number_in_handle {
            NumberInHandle::Unknown => return None,
            NumberInHandle::Low32 => return Some(word(0)? == ino & 0xffff_ffff),
            NumberInHandle::AfterGeneration => word(4)? | word(8)? << 32,
            NumberInHandle::Start if bytes.len() <= 8 => return Some(word(0)? == ino),
            NumberInHandle::Start => word(0)? | word(4)? << 32,
        };
        Some(number == ino)
    }

    /// How many file systems may be stacked for passthrough of its files: 2 if it is itself stacked. No
    /// more than needed: a FUSE mount that allows 2 cannot be a layer of an overlay file system.
    pub(crate) fn stack_depth(&self) -> u32 {
        if self.is_layered { 2 } else { 1 }
    }

    /// The inode number that clients see. Clients see one device for all mounts, so numbers of submounts
    /// differ from the source's: programs that recognise hard links by device and number would otherwise
    /// take two files for one.
    pub(crate) fn client_ino(&self, ino: u64) -> u64 {
        ino ^ (u64::from(self.index) << 48)
    }
}
