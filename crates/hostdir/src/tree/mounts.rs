//! The mounts of the served tree.
//!
//! A source is one mount, with whatever is mounted on directories in it (submounts). A submount is entered
//! when a lookup walks into it, is identified by the kernel's mount id, and is released when no node of it
//! is left, when its last open file is released or when it was idle for a while, so that it can be
//! unmounted on the host.

use super::housekeeping::Wakeup;
use super::idle_expiry::IdleExpiry;
use super::inode::Inode;
use crate::config::FileHandles;
use crate::files::Obstacle;
use crate::ledger::Notes;
use parking_lot::{Mutex, RwLock};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use thrufs::{Errno, NoWait, Result};
use thrufs_sys::handle::{self, FileHandleBuf};

/// `STATX_MNT_ID_UNIQUE` (Linux 6.8): the mount id that is never reused.
const STATX_MNT_ID_UNIQUE: u32 = 0x4000;

const EXT_MAGIC: u64 = 0xef53;
const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;
const OVERLAYFS_MAGIC: u64 = 0x794c_7630;
const ECRYPTFS_MAGIC: u64 = 0xf15f;
const XFS_MAGIC: u64 = 0x5846_5342;
const BTRFS_MAGIC: u64 = 0x9123_683e;
/// File systems that report errors at close(2) and check callers by their ids: NFS, SMB, CIFS, Ceph,
/// AFS, 9P, FUSE.
const REMOTE_MAGICS: &[u64] = &[
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x00c3_6400,
    0x5346_414f,
    0x0102_1997,
    0x6573_5546,
];

/// Where a handle contains the inode number, to see whether a handle and a stat, taken one after the other,
/// are of one inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NumberInHandle {
    /// First 4 bytes (ext2, ext3, ext4).
    Low32,
    /// First 8 bytes or first 4, by the handle's length (XFS, btrfs).
    Start,
    /// After a generation of 4 bytes: low and high half (tmpfs).
    AfterGeneration,
    /// Handles of other file systems are opaque.
    Unknown,
}

pub(crate) struct LowerMount {
    index: u32,
    id: u64,
    magic: u64,
    /// An open directory of the mount, for open_by_handle_at(2). `None` while the mount is released.
    anchor: RwLock<Option<Arc<OwnedFd>>>,
    has_handles: bool,
    number_in_handle: NumberInHandle,
    no_wait: NoWait,
    is_remote: bool,
    /// Its file system is stacked on others.
    is_layered: bool,
    /// Found to be stacked too deep for passthrough.
    is_stacked: AtomicBool,
    /// Found to have no POSIX ACLs.
    is_without_acls: AtomicBool,
    /// Whether it was read-only, as the low bit, below the milliseconds of the last look; 0 for never.
    read_only_seen: AtomicU64,
    /// An obstacle to passthrough was logged.
    logged: AtomicBool,
    /// Its mount point, to find it again; `None` for the mount of the source.
    mounted_on: Option<(Arc<Inode>, CString)>,
    idle_expiry: IdleExpiry,
}

impl LowerMount {
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn magic(&self) -> u64 {
        self.magic
    }

    /// Whether its inodes have file handles that we may open.
    pub(crate) fn has_handles(&self) -> bool {
        self.has_handles
    }

    /// Whether positions of a listing stay valid when its directory is opened again.
    pub(crate) fn keeps_positions(&self) -> bool {
        self.has_handles && matches!(self.magic, EXT_MAGIC | XFS_MAGIC | BTRFS_MAGIC)
    }

    pub(crate) fn no_wait(&self) -> NoWait {
        self.no_wait
    }

    pub(crate) fn is_memory(&self) -> bool {
        self.no_wait == NoWait::Memory
    }

    /// Whether another machine or process serves it.
    pub(crate) fn is_remote(&self) -> bool {
        self.is_remote
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

    /// One of its inodes has no ACL support. Inodes other than files and directories never have.
    pub(crate) fn found_without_acls(&self, inode: &Inode) {
        if inode.is_regular() || inode.is_directory() {
            self.is_without_acls.store(true, Ordering::Relaxed);
        }
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

    pub(crate) fn file_opened(&self) {
        self.idle_expiry.file_opened();
    }

    pub(crate) fn file_closed(&self) {
        self.idle_expiry.file_closed();
    }

    /// To be called after something of the mount was cached or used.
    pub(crate) fn mark_used(&self) {
        self.idle_expiry.mark_used();
    }

    pub(crate) fn mounted_on(&self) -> Option<&(Arc<Inode>, CString)> {
        self.mounted_on.as_ref()
    }

    fn is_source(&self) -> bool {
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
        if self.index == 0 {
            return ino;
        }
        ino ^ (u64::from(self.index) << 48)
    }
}

pub(crate) struct Mounts {
    list: RwLock<Vec<Arc<LowerMount>>>,
    next_index: Mutex<u32>,
    started: Instant,
    wakeup: Arc<Wakeup>,
    notes: Option<Arc<Notes>>,
    file_handles: FileHandles,
}

/// The result of a [sweep](Mounts::sweep).
pub(crate) struct Swept {
    /// The indices of released mounts: the descriptors of their inodes are to be closed.
    pub(crate) released: Vec<u32>,
    /// Whether descriptors of submounts are still cached.
    pub(crate) keeps_something: bool,
}

impl Mounts {
    /// The table with the mount of `source`, an open directory.
    pub(crate) fn of_source(
        source: OwnedFd,
        notes: Option<Arc<Notes>>,
        file_handles: FileHandles,
    ) -> Result<(Mounts, Arc<LowerMount>)> {
        let id = mount_id(source.as_fd(), c"")?;
        let wakeup = Arc::<Wakeup>::default();
        let mount = Arc::new(probe(0, id, source, None, (&wakeup, file_handles))?);
        let mounts = Mounts {
            list: RwLock::new(vec![Arc::clone(&mount)]),
            next_index: Mutex::new(1),
            started: Instant::now(),
            wakeup,
            notes,
            file_handles,
        };
        Ok((mounts, mount))
    }

    pub(crate) fn wakeup(&self) -> &Arc<Wakeup> {
        &self.wakeup
    }

    /// Milliseconds since the directory is served.
    pub(crate) fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// The mount with the kernel's id `id`, found by a walk to `name` in `parent`.
    pub(crate) fn enter(
        &self,
        id: u64,
        parent: &Arc<Inode>,
        parent_fd: impl AsFd,
        name: &CStr,
    ) -> Result<Arc<LowerMount>> {
        if let Some(known) = self.list.read().iter().find(|mount| mount.id == id) {
            return Ok(Arc::clone(known));
        }
        self.enter_as(id, parent, parent_fd, name, None)
    }

    /// As [`enter`](Self::enter), with the index that the mount had in another process. Fails with `EEXIST`
    /// as well, when the index is another mount's.
    pub(crate) fn enter_as(
        &self,
        id: u64,
        parent: &Arc<Inode>,
        parent_fd: impl AsFd,
        name: &CStr,
        number: Option<u32>,
    ) -> Result<Arc<LowerMount>> {
        let anchor = open_anchor(parent_fd.as_fd(), name)?;
        if mount_id(anchor.as_fd(), c"")? != id {
            // Mounted or unmounted in between: the caller tries again.
            return Err(Errno::ESTALE);
        }
        let mut list = self.list.write();
        if let Some(known) = list.iter().find(|mount| mount.id == id) {
            return Ok(Arc::clone(known));
        }
        let index = match number {
            Some(index) if list.iter().any(|mount| mount.index == index) => {
                return Err(Errno::EEXIST);
            }
            Some(index) => {
                let mut next = self.next_index.lock();
                *next = (*next).max(index.checked_add(1).ok_or(Errno::ENFILE)?);
                index
            }
            None => {
                let mut next = self.next_index.lock();
                let index = *next;
                *next = next.checked_add(1).ok_or(Errno::ENFILE)?;
                index
            }
        };
        let mounted_on = Some((Arc::clone(parent), name.to_owned()));
        let common = (&self.wakeup, self.file_handles);
        let mount = Arc::new(probe(index, id, anchor, mounted_on, common)?);
        mount.mark_used();
        list.push(Arc::clone(&mount));
        if let Some(notes) = &self.notes {
            notes.note_mount(index, parent.node(), name);
        }
        Ok(mount)
    }

    pub(crate) fn beneath(&self) -> Vec<Arc<LowerMount>> {
        let list = self.list.read();
        let beneath = list.iter().filter(|mount| !mount.is_source());
        beneath.map(Arc::clone).collect()
    }

    /// The mount with the kernel's id `id`, if a walk has entered it.
    pub(crate) fn known(&self, id: u64) -> Option<Arc<LowerMount>> {
        let list = self.list.read();
        list.iter().find(|mount| mount.id == id).map(Arc::clone)
    }

    pub(crate) fn anchor(
        &self,
        mount: &LowerMount,
        parent_descriptor: impl FnOnce(&Arc<Inode>) -> Result<super::inode::Descriptor>,
    ) -> Result<Arc<OwnedFd>> {
        mount.mark_used();
        if let Some(anchor) = &*mount.anchor.read() {
            return Ok(Arc::clone(anchor));
        }
        let (parent, name) = mount.mounted_on.as_ref().ok_or(Errno::ESTALE)?;
        let parent = parent_descriptor(parent)?;
        let fd = open_anchor(parent.as_fd(), name)?;
        if mount_id(fd.as_fd(), c"")? != mount.id {
            return Err(Errno::ESTALE);
        }
        let fd = Arc::new(fd);
        *mount.anchor.write() = Some(Arc::clone(&fd));
        mount.mark_used();
        Ok(fd)
    }

    /// Releases submounts without nodes, and those without open files after the last release or `idle_ms`
    /// without use.
    pub(crate) fn sweep(&self, idle_ms: u64) -> Swept {
        let now_ms = self.now_ms();
        let mut swept = Swept {
            released: Vec::new(),
            keeps_something: false,
        };
        if self.len() == 1 {
            return swept;
        }
        let mut list = self.list.write();
        // Every inode refers to its mount, and so does a lookup that is about to make one.
        list.retain(|mount| {
            let stays = mount.is_source() || Arc::strong_count(mount) > 1;
            if let Some(notes) = self.notes.as_ref().filter(|_| !stays) {
                notes.forget_mount(mount.index);
            }
            stays
        });
        for mount in list.iter().filter(|mount| !mount.is_source()) {
            if mount.idle_expiry.expires(now_ms, idle_ms) {
                let anchor = mount.anchor.write().take();
                drop(anchor);
                swept.released.push(mount.index);
            }
            swept.keeps_something |= mount.idle_expiry.keeps_something();
        }
        swept
    }

    pub(crate) fn len(&self) -> usize {
        self.list.read().len()
    }
}

/// The statx(2) mask of the kind of mount id that name_to_handle_at(2) returns.
pub(crate) fn mount_id_mask() -> StatxFlags {
    if handle::mount_ids_are_unique() {
        StatxFlags::from_bits_retain(STATX_MNT_ID_UNIQUE)
    } else {
        StatxFlags::MNT_ID
    }
}

/// The kernel's id of the mount of `name` in `fd`, or of `fd` itself if the name is empty.
pub(crate) fn mount_id(fd: impl AsFd, name: &CStr) -> Result<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    Ok(rustix::fs::statx(fd, name, flags, mount_id_mask())?.stx_mnt_id)
}

/// openat2(2) that stays beneath `parent` and does not follow the last component.
pub(crate) fn open_beneath(
    parent: impl AsFd,
    name: &CStr,
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = resolve | ResolveFlags::BENEATH;
    let opened = rustix::fs::openat2(parent, name, flags, Mode::empty(), resolve);
    Ok(opened?)
}

fn open_anchor(parent: impl AsFd, name: &CStr) -> Result<OwnedFd> {
    // O_RDONLY, because open_by_handle_at(2) takes no O_PATH descriptor. O_NONBLOCK, because a bind mount
    // of a single file can be a fifo or a device.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    open_beneath(parent, name, flags, ResolveFlags::NO_MAGICLINKS)
}

fn probe(
    index: u32,
    id: u64,
    anchor: OwnedFd,
    mounted_on: Option<(Arc<Inode>, CString)>,
    (wakeup, file_handles): (&Arc<Wakeup>, FileHandles),
) -> Result<LowerMount> {
    let magic = magic(anchor.as_fd())?;
    let no_wait = no_wait(magic);
    let number_in_handle = match magic {
        EXT_MAGIC => NumberInHandle::Low32,
        TMPFS_MAGIC => NumberInHandle::AfterGeneration,
        XFS_MAGIC | BTRFS_MAGIC => NumberInHandle::Start,
        _ => NumberInHandle::Unknown,
    };
    Ok(LowerMount {
        index,
        id,
        magic,
        has_handles: file_handles != FileHandles::Never
            && handles(anchor.as_fd()) == Handles::Usable,
        anchor: RwLock::new(Some(Arc::new(anchor))),
        number_in_handle,
        no_wait,
        is_remote: REMOTE_MAGICS.contains(&magic),
        is_layered: matches!(magic, OVERLAYFS_MAGIC | ECRYPTFS_MAGIC),
        is_stacked: AtomicBool::new(false),
        is_without_acls: AtomicBool::new(false),
        read_only_seen: AtomicU64::new(0),
        logged: AtomicBool::new(false),
        mounted_on,
        idle_expiry: IdleExpiry::new((index != 0).then(|| Arc::clone(wakeup))),
    })
}

fn magic(anchor: impl AsFd) -> Result<u64> {
    Ok(rustix::fs::fstatfs(anchor)?.f_type as u64 & 0xffff_ffff)
}

fn no_wait(magic: u64) -> NoWait {
    match magic {
        TMPFS_MAGIC | RAMFS_MAGIC | HUGETLBFS_MAGIC => NoWait::Memory,
        _ => NoWait::Supported,
    }
}

/// Whether inodes here have handles, and whether this process may open them.
fn handles(anchor: impl AsFd) -> Handles {
    let mut buffer = FileHandleBuf::default();
    let flags = libc::AT_EMPTY_PATH as u32;
    if let Err(errno) = handle::name_to_handle(anchor.as_fd(), c"", flags, &mut buffer) {
        return Handles::Missing(errno.into());
    }
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    match handle::open_by_handle(anchor.as_fd(), &buffer, flags) {
        Ok(_) => Handles::Usable,
        Err(errno) => Handles::Refused(errno.into()),
    }
}

/// The file handles of a file system, for a process that would serve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handles {
    /// Inodes are found again by handle.
    Usable,
    /// There are none: inodes are found again by name.
    Missing(Errno),
    /// This process may not open them: inodes are found again by name.
    Refused(Errno),
}

/// Properties of the mount of a directory, before it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountProperties {
    /// Its file handles.
    pub handles: Handles,
    /// How reads without blocking are tried, by the type of the file system.
    pub no_wait: NoWait,
    /// Whether another machine or process serves it.
    pub is_remote: bool,
}

impl MountProperties {
    /// The properties of the mount of `directory`, which is opened for reading.
    ///
    /// # Errors
    ///
    /// Those of `fstatfs(2)`.
    pub fn of(directory: impl AsFd) -> Result<MountProperties> {
        let magic = magic(directory.as_fd())?;
        Ok(MountProperties {
            handles: handles(directory),
            no_wait: no_wait(magic),
            is_remote: REMOTE_MAGICS.contains(&magic),
        })
    }
}
