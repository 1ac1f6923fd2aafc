//! The mounts of the served tree.
//!
//! A source is one mount, with whatever is mounted on directories in it (submounts). A submount is entered
//! when a lookup walks into it, is identified by the kernel's mount id, and is released when no node of it
//! is left, when its last open file is released or when it was idle for a while, so that it can be
//! unmounted on the host.

use super::idle_expiry::IdleExpiry;
use super::inode::{Inode, LowerMount};
use super::lower_inode::Descriptor;
use super::lower_mount::NumberInHandle;
use super::magic::{
    BTRFS_MAGIC, ECRYPTFS_MAGIC, EXT_MAGIC, HUGETLBFS_MAGIC, KERNEL_MAGICS, OVERLAYFS_MAGIC,
    RAMFS_MAGIC, REMOTE_MAGICS, TMPFS_MAGIC, XFS_MAGIC,
};
use super::wakeup::Wakeup;
use crate::config::{Config, FileHandles};
use crate::identity::Identity;
use crate::ledger::StateTables;
use parking_lot::{Mutex, RwLock};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;
use thrufs::{Errno, NoWait, Result};
use thrufs_sys::handle::{self, FileHandleBuf};

/// `STATX_MNT_ID_UNIQUE` (Linux 6.8): the mount id that is never reused.
const STATX_MNT_ID_UNIQUE: u32 = 0x4000;

pub(crate) struct Mounts {
    list: RwLock<Vec<Arc<LowerMount>>>,
    next_index: Mutex<u32>,
    started: Instant,
    pub(crate) wakeup: Arc<Wakeup>,
    tables: Option<Arc<StateTables>>,
    file_handles: FileHandles,
    /// Whether changes beneath are followed.
    follows: bool,
    /// Whether mounts beneath that show the kernel are entered.
    has_kernel_file_systems: bool,
}

/// The result of a [sweep](Mounts::sweep).
pub(crate) struct Swept {
    /// The indices of released mounts: descriptors on them are to be closed.
    pub(crate) released: Vec<u32>,
    /// Whether descriptors of submounts are still cached.
    pub(crate) keeps_something: bool,
}

impl Mounts {
    /// The table with the mount of `source`, an open directory.
    pub(crate) fn of_source(
        source: OwnedFd,
        tables: Option<Arc<StateTables>>,
        config: &Config,
    ) -> Result<(Mounts, Arc<LowerMount>)> {
        let (file_handles, follows) = (config.file_handles, config.follows());
        let id = mount_id(source.as_fd(), c"")?;
        let wakeup = Arc::<Wakeup>::default();
        let mount = Arc::new(probe(
            0,
            id,
            source,
            None,
            (&wakeup, file_handles, follows),
        )?);
        let mounts = Mounts {
            list: RwLock::new(vec![Arc::clone(&mount)]),
            next_index: Mutex::new(1),
            started: Instant::now(),
            wakeup,
            tables,
            file_handles,
            follows,
            has_kernel_file_systems: config.kernel_file_systems,
        };
        Ok((mounts, mount))
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
        if !self.has_kernel_file_systems && KERNEL_MAGICS.contains(&magic(anchor.as_fd())?) {
            return Err(Errno::EACCES);
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
        let common = (&self.wakeup, self.file_handles, self.follows);
        let mount = Arc::new(probe(index, id, anchor, mounted_on, common)?);
        mount.idle_expiry.mark_used();
        list.push(Arc::clone(&mount));
        if let Some(tables) = &self.tables {
            tables.note_mount(index, parent.node(), name);
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
        parent_descriptor: impl FnOnce(&Arc<Inode>) -> Result<Descriptor>,
    ) -> Result<Arc<OwnedFd>> {
        mount.idle_expiry.mark_used();
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
        mount.idle_expiry.mark_used();
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
            if !stays {
                // Its inodes have closed theirs; a retrying thread may keep one that it has found.
                swept.released.push(mount.index);
                if let Some(tables) = &self.tables {
                    tables.forget_mount(mount.index);
                }
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

    /// Whether the mount with this index is in use.
    pub(crate) fn get(&self, index: u32) -> Option<Arc<LowerMount>> {
        let list = self.list.read();
        list.iter().find(|mount| mount.index == index).cloned()
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
    (wakeup, file_handles, follows): (&Arc<Wakeup>, FileHandles, bool),
) -> Result<LowerMount> {
    let magic = magic(anchor.as_fd())?;
    let no_wait = no_wait(magic);
    let number_in_handle = match magic {
        EXT_MAGIC => NumberInHandle::Low32,
        TMPFS_MAGIC => NumberInHandle::AfterGeneration,
        XFS_MAGIC | BTRFS_MAGIC => NumberInHandle::Start,
        _ => NumberInHandle::Unknown,
    };
    let has_handles =
        file_handles != FileHandles::Never && handles(anchor.as_fd()) == Handles::Usable;
    Ok(LowerMount {
        index,
        id,
        magic,
        has_handles,
        has_closed_handles: follows && !has_handles && has_closed_handles(anchor.as_fd()),
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

pub(crate) fn opened_identity(mount: &LowerMount, fd: impl AsFd, stat: &Statx) -> Result<Identity> {
    let mut buffer = FileHandleBuf::default();
    if mount.has_handles {
        handle::name_to_handle(fd, c"", handle::AT_EMPTY_PATH, &mut buffer)?;
        return Ok(Identity::by_handle(mount.index, &buffer));
    }
    if mount.has_closed_handles {
        let flags = handle::AT_EMPTY_PATH | handle::AT_HANDLE_FID;
        handle::name_to_handle(fd, c"", flags, &mut buffer)?;
        let (kind, bytes) = (buffer.kind(), buffer.bytes());
        return Identity::by_closed_handle(mount.index, kind, bytes).ok_or(Errno::EOVERFLOW);
    }
    Ok(numbered(mount.index, stat))
}

/// Whether the file system has handles that identify inodes (Linux 6.5).
fn has_closed_handles(anchor: impl AsFd) -> bool {
    let flags = handle::AT_EMPTY_PATH | handle::AT_HANDLE_FID;
    handle::name_to_handle(anchor, c"", flags, &mut FileHandleBuf::default()).is_ok()
}

fn numbered(mount: u32, stat: &Statx) -> Identity {
    Identity::by_number(
        mount,
        stat.stx_ino,
        (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec),
    )
}
