//! The mounts that make up the served tree.
//!
//! A source is one mount, and whatever is mounted on directories in it. Each is met when a lookup
//! walks into it, known by the kernel's id for the mount, and let go when no node of it is left, when
//! the last file open on it is released or when it was idle for a while, so that it can be unmounted
//! beneath.

use crate::config::FileHandles;
use crate::datapath::Obstacle;
use crate::housekeeping::Bell;
use crate::idleness::Idleness;
use crate::inode::Inode;
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

/// `STATX_MNT_ID_UNIQUE` (Linux 6.8): the id that is never used twice.
const STATX_MNT_ID_UNIQUE: u32 = 0x4000;

const EXT_MAGIC: u64 = 0xef53;
const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;
const OVERLAYFS_MAGIC: u64 = 0x794c_7630;
const ECRYPTFS_MAGIC: u64 = 0xf15f;
const XFS_MAGIC: u64 = 0x5846_5342;
const BTRFS_MAGIC: u64 = 0x9123_683e;
/// File systems whose close(2) reports errors, and which know callers by their ids: NFS, SMB, CIFS,
/// Ceph, AFS, 9P, FUSE.
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

/// Where a handle shows the inode number, so that a handle and a stat taken one after the other
/// can be seen to belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NumberInHandle {
    /// First 4 bytes (ext2, ext3, ext4).
    Low32,
    /// First 8 bytes or first 4, by the handle's length (XFS, btrfs).
    Start,
    /// After a generation of 4 bytes: low and high half (tmpfs).
    AfterGeneration,
    /// Nobody knows.
    Unknown,
}

/// One mount beneath.
pub(crate) struct LowerMount {
    index: u32,
    id: u64,
    /// Which file system it is (`statfs(2)`).
    magic: u64,
    /// Some open directory of the mount: what file handles are opened against. Empty while the
    /// mount is let go.
    anchor: RwLock<Option<Arc<OwnedFd>>>,
    has_handles: bool,
    number_in_handle: NumberInHandle,
    no_wait: NoWait,
    is_remote: bool,
    /// It is itself made of other file systems.
    is_layered: bool,
    /// Found to be stacked too deep for passthrough.
    is_stacked: AtomicBool,
    /// Found to have no POSIX ACLs.
    is_without_acls: AtomicBool,
    /// When it was looked at last, in milliseconds doubled, plus 1 if it was read-only; 0 for never.
    read_only_seen: AtomicU64,
    /// Said why its files do not go straight through.
    told: AtomicBool,
    /// The directory it is mounted on, to find it again; none for the source's own mount.
    mounted_on: Option<(Arc<Inode>, CString)>,
    idleness: Idleness,
}

impl LowerMount {
    /// Its number in the table.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// The kernel's id.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Which file system it is (`statfs(2)`).
    pub(crate) fn magic(&self) -> u64 {
        self.magic
    }

    /// Whether its inodes have file handles that we may open.
    pub(crate) fn has_handles(&self) -> bool {
        self.has_handles
    }

    /// Whether a directory can be opened again and listed from where it was left.
    pub(crate) fn keeps_positions(&self) -> bool {
        self.has_handles && matches!(self.magic, EXT_MAGIC | XFS_MAGIC | BTRFS_MAGIC)
    }

    /// How reads of its files may be tried.
    pub(crate) fn no_wait(&self) -> NoWait {
        self.no_wait
    }

    /// Whether it lives in memory, so that nothing on it waits for a device.
    pub(crate) fn is_memory(&self) -> bool {
        self.no_wait == NoWait::Memory
    }

    /// Whether another machine or process serves it.
    pub(crate) fn is_remote(&self) -> bool {
        self.is_remote
    }

    /// Whether its files were found to be stacked too deep for passthrough.
    pub(crate) fn is_stacked(&self) -> bool {
        self.is_stacked.load(Ordering::Relaxed)
    }

    pub(crate) fn set_stacked(&self) {
        self.is_stacked.store(true, Ordering::Relaxed);
    }

    /// Whether its files may have POSIX ACLs.
    pub(crate) fn may_have_acls(&self) -> bool {
        !self.is_without_acls.load(Ordering::Relaxed)
    }

    /// One of its inodes was found to have none. Others than files and directories have no attributes at all.
    pub(crate) fn found_without_acls(&self, inode: &Inode) {
        if inode.is_regular() || inode.is_directory() {
            self.is_without_acls.store(true, Ordering::Relaxed);
        }
    }

    /// Says what keeps its files from going straight through, the first time.
    pub(crate) fn tell_once(&self, obstacle: Obstacle) {
        if !self.told.load(Ordering::Relaxed) && !self.told.swap(true, Ordering::Relaxed) {
            tracing::info!(
                mount = self.id,
                "no passthrough for files on a mount beneath: {obstacle}"
            );
        }
    }

    /// Whether it was read-only when it was looked at last, if that is not longer ago than `age_ms`.
    pub(crate) fn known_read_only(&self, now_ms: u64, age_ms: u64) -> Option<bool> {
        let seen = self.read_only_seen.load(Ordering::Relaxed);
        let is_fresh = seen != 0 && now_ms.saturating_sub(seen >> 1) < age_ms;
        is_fresh.then_some(seen & 1 == 1)
    }

    /// It was looked at now.
    pub(crate) fn saw_read_only(&self, now_ms: u64, is_read_only: bool) {
        let seen = now_ms.max(1) << 1 | u64::from(is_read_only);
        self.read_only_seen.store(seen, Ordering::Relaxed);
    }

    pub(crate) fn file_opened(&self) {
        self.idleness.file_opened();
    }

    pub(crate) fn file_closed(&self) {
        self.idleness.file_closed();
    }

    /// To be called when something is kept for it, after that is in its place, or used that is.
    pub(crate) fn mark_used(&self) {
        self.idleness.mark_used();
    }

    /// The directory it is mounted on, and its name there; none for the source's own.
    pub(crate) fn mounted_on(&self) -> Option<&(Arc<Inode>, CString)> {
        self.mounted_on.as_ref()
    }

    fn is_source(&self) -> bool {
        self.index == 0
    }

    /// Whether a handle and a stat are of one inode; `None` when this file system's handles do
    /// not tell.
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

    /// How many file systems may lie beneath one another for a file here to go straight through:
    /// 2 where it is itself stacked on another. More than needed would cost: a FUSE mount that
    /// allows 2 can be no layer of an overlay file system.
    pub(crate) fn stack_depth(&self) -> u32 {
        if self.is_layered { 2 } else { 1 }
    }

    /// The inode number that clients see. Numbers of submounts are made different from those of
    /// the source, since clients see one device: programs that recognise hard links by device and
    /// number would otherwise take two files for one.
    pub(crate) fn client_ino(&self, ino: u64) -> u64 {
        if self.index == 0 {
            return ino;
        }
        ino ^ (u64::from(self.index) << 48)
    }
}

/// All lower mounts that are in use.
pub(crate) struct Mounts {
    list: RwLock<Vec<Arc<LowerMount>>>,
    next_index: Mutex<u32>,
    started: Instant,
    bell: Arc<Bell>,
    notes: Option<Arc<Notes>>,
    /// Whether handles are to be looked for.
    file_handles: FileHandles,
}

/// What a [sweep](Mounts::sweep) came to.
pub(crate) struct Swept {
    /// The numbers of the mounts that were let go: the descriptors of their inodes are to be dropped.
    pub(crate) released: Vec<u32>,
    /// Whether there are mounts for which something is kept.
    pub(crate) keeps_something: bool,
}

impl Mounts {
    /// Starts with the mount that `source`, an open directory, lies on.
    pub(crate) fn of_source(
        source: OwnedFd,
        notes: Option<Arc<Notes>>,
        file_handles: FileHandles,
    ) -> Result<(Mounts, Arc<LowerMount>)> {
        let id = mount_id(source.as_fd(), c"")?;
        let bell = Arc::<Bell>::default();
        let mount = Arc::new(probe(0, id, source, None, (&bell, file_handles))?);
        let mounts = Mounts {
            list: RwLock::new(vec![Arc::clone(&mount)]),
            next_index: Mutex::new(1),
            started: Instant::now(),
            bell,
            notes,
            file_handles,
        };
        Ok((mounts, mount))
    }

    /// What wakes the housekeeper.
    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Milliseconds since the directory is served.
    pub(crate) fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// The mount with the kernel's id `id`, met when walking to `name` in `parent`.
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

    /// As [`enter`](Self::enter), with the number that the mount had in another process.
    ///
    /// # Errors
    ///
    /// `EEXIST` as well, when the number is another mount's.
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
            // Mounted or unmounted in between: the caller looks again.
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
        let common = (&self.bell, self.file_handles);
        let mount = Arc::new(probe(index, id, anchor, mounted_on, common)?);
        mount.mark_used();
        list.push(Arc::clone(&mount));
        if let Some(notes) = &self.notes {
            notes.note_mount(index, parent.node(), name);
        }
        Ok(mount)
    }

    /// The mounts beneath the source's own.
    pub(crate) fn beneath(&self) -> Vec<Arc<LowerMount>> {
        let list = self.list.read();
        let beneath = list.iter().filter(|mount| !mount.is_source());
        beneath.map(Arc::clone).collect()
    }

    /// The mount with the kernel's id `id`, if somebody has walked into it.
    pub(crate) fn known(&self, id: u64) -> Option<Arc<LowerMount>> {
        let list = self.list.read();
        list.iter().find(|mount| mount.id == id).map(Arc::clone)
    }

    /// The directory against which the mount's file handles are opened.
    pub(crate) fn anchor(
        &self,
        mount: &LowerMount,
        parent_descriptor: impl FnOnce(&Arc<Inode>) -> Result<crate::inode::Descriptor>,
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

    /// Lets go of submounts without nodes, and of those that have no open file and were left by the
    /// last one or not used for `idle_ms`.
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
        // Every inode has a reference to its mount, and so has a lookup that is about to make one.
        list.retain(|mount| {
            let stays = mount.is_source() || Arc::strong_count(mount) > 1;
            if let Some(notes) = self.notes.as_ref().filter(|_| !stays) {
                notes.forget_mount(mount.index);
            }
            stays
        });
        for mount in list.iter().filter(|mount| !mount.is_source()) {
            if mount.idleness.ends(now_ms, idle_ms) {
                let anchor = mount.anchor.write().take();
                drop(anchor);
                swept.released.push(mount.index);
            }
            swept.keeps_something |= mount.idleness.keeps_something();
        }
        swept
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.list.read().len()
    }
}

/// The bits of statx(2) that ask for a mount id of the kind that file handles come with.
pub(crate) fn mount_id_mask() -> StatxFlags {
    if handle::mount_ids_are_unique() {
        StatxFlags::from_bits_retain(STATX_MNT_ID_UNIQUE)
    } else {
        StatxFlags::MNT_ID
    }
}

/// The kernel's id of the mount that `name` lies on, or `fd` itself where the name is empty.
pub(crate) fn mount_id(fd: impl AsFd, name: &CStr) -> Result<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    Ok(rustix::fs::statx(fd, name, flags, mount_id_mask())?.stx_mnt_id)
}

/// Opens what lies beneath, the last component not followed.
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
    // Read access, because open_by_handle_at(2) takes no O_PATH descriptor. A mount of a single
    // file is no directory: O_NONBLOCK, should it be a fifo or a device.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    open_beneath(parent, name, flags, ResolveFlags::NO_MAGICLINKS)
}

fn probe(
    index: u32,
    id: u64,
    anchor: OwnedFd,
    mounted_on: Option<(Arc<Inode>, CString)>,
    (bell, file_handles): (&Arc<Bell>, FileHandles),
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
        told: AtomicBool::new(false),
        mounted_on,
        idleness: Idleness::new((index != 0).then(|| Arc::clone(bell))),
    })
}

/// Which file system it is (`statfs(2)`).
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
    /// It has none: inodes are found again by name.
    Missing(Errno),
    /// It has some, which this process may not open: inodes are found again by name.
    Refused(Errno),
}

/// What serving a directory would find there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountProperties {
    /// Its file handles.
    pub handles: Handles,
    /// How reads are tried; taken from what the file system is, not tried.
    pub no_wait: NoWait,
    /// Whether another machine or process serves it.
    pub is_remote: bool,
}

impl MountProperties {
    /// Those of the mount that `directory`, opened for reading, lies on.
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
