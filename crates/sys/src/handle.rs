//! File handles: naming an inode without holding a descriptor.
//!
//! With a descriptor of its mount, a handle opens its inode again, wherever it was moved, and fails with
//! ESTALE once it is gone. See `name_to_handle_at(2)`.
//!
//! # Safety
//! [`FileHandleBuf`] has the layout of `struct file_handle` followed by room for the longest handle
//! there is, and its length never passes that room: the kernel may read and write all of it.

#![allow(unsafe_code)]

use crate::raw::check;
use rustix::fs::CWD;
use rustix::io::{Errno, Result};
use std::ffi::CStr;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::LazyLock;
use std::time::Duration;

/// The kernel's longest handle, bytes (`MAX_HANDLE_SZ`).
pub const MAX_HANDLE_SIZE: usize = 128;

/// The name is empty and the descriptor itself is meant.
pub const AT_EMPTY_PATH: u32 = 0x1000;
/// Follow a symbolic link in the last component (the default is not to).
pub const AT_SYMLINK_FOLLOW: u32 = 0x400;
/// An identifier is enough: the handle need not open (Linux 6.5).
pub const AT_HANDLE_FID: u32 = 0x200;
/// Return the 64-bit mount id that is never reused (Linux 6.12). [`name_to_handle`] adds it itself.
pub const AT_HANDLE_MNT_ID_UNIQUE: u32 = 0x001;

/// Whether the kernel knows `AT_HANDLE_MNT_ID_UNIQUE`. Flags are checked before the file system is asked: any
/// other error means that it does.
static KNOWS_UNIQUE_IDS: LazyLock<bool> = LazyLock::new(|| {
    let asked = unique(CWD, c"/", 0, &mut FileHandleBuf::new());
    !matches!(asked, Err(Errno::INVAL | Errno::NOSYS))
});

/// A file handle of up to 136 bytes, without allocation.
#[derive(Clone)]
#[repr(C)]
pub struct FileHandleBuf {
    /// The room, then the length of the handle. Never above [`MAX_HANDLE_SIZE`].
    handle_bytes: u32,
    handle_type: i32,
    bytes: [u8; MAX_HANDLE_SIZE],
}

impl FileHandleBuf {
    /// An empty handle, to be filled by [`name_to_handle`].
    #[must_use]
    pub const fn new() -> Self {
        Self {
            handle_bytes: 0,
            handle_type: 0,
            bytes: [0; MAX_HANDLE_SIZE],
        }
    }

    /// The handle with this [`kind`](Self::kind) and these [`bytes`](Self::bytes); nothing when they are
    /// longer than [`MAX_HANDLE_SIZE`].
    #[must_use]
    pub fn from_parts(kind: i32, bytes: &[u8]) -> Option<Self> {
        let mut handle = Self::new();
        handle.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        handle.handle_bytes = u32::try_from(bytes.len()).ok()?;
        handle.handle_type = kind;
        Some(handle)
    }

    /// The bytes of the handle, opaque.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.handle_bytes as usize]
    }

    /// The file system's type of the handle.
    #[must_use]
    pub const fn kind(&self) -> i32 {
        self.handle_type
    }
}

impl Default for FileHandleBuf {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for FileHandleBuf {
    fn eq(&self, other: &Self) -> bool {
        self.handle_type == other.handle_type && self.bytes() == other.bytes()
    }
}

impl Eq for FileHandleBuf {}

impl Hash for FileHandleBuf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.handle_type.hash(state);
        self.bytes().hash(state);
    }
}

impl fmt::Debug for FileHandleBuf {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "FileHandleBuf({}:", self.handle_type)?;
        for byte in self.bytes() {
            write!(formatter, "{byte:02x}")?;
        }
        formatter.write_str(")")
    }
}

/// Writes the handle of `name` in `directory` to `out` and returns its mount's id: the 64-bit one that is
/// never reused where the kernel has it (see [`mount_ids_are_unique`]), else the old one. `name` may be
/// empty with [`AT_EMPTY_PATH`]; a symbolic link is followed only with [`AT_SYMLINK_FOLLOW`]. One system
/// call.
///
/// On an error `out` is an empty handle.
///
/// # Errors
/// EOPNOTSUPP where the file system has no handles (or none that open, without [`AT_HANDLE_FID`]), and
/// those of a lookup.
pub fn name_to_handle(
    directory: impl AsFd,
    name: &CStr,
    flags: u32,
    out: &mut FileHandleBuf,
) -> Result<u64> {
    let directory = directory.as_fd();
    let flags = flags & !AT_HANDLE_MNT_ID_UNIQUE;
    if mount_ids_are_unique() {
        unique(directory, name, flags, out)
    } else {
        reused(directory, name, flags, out)
    }
}

/// Whether [`name_to_handle`] returns ids of `STATX_MNT_ID_UNIQUE` (Linux 6.12) and not the small ones of
/// `STATX_MNT_ID`, which are reused. The first call asks the kernel.
#[must_use]
pub fn mount_ids_are_unique() -> bool {
    *KNOWS_UNIQUE_IDS
}

fn unique(
    directory: BorrowedFd<'_>,
    name: &CStr,
    flags: u32,
    out: &mut FileHandleBuf,
) -> Result<u64> {
    let mut mount_id = 0_u64;
    let flags = flags | AT_HANDLE_MNT_ID_UNIQUE;
    call(directory, name, flags, out, (&raw mut mount_id).cast())?;
    Ok(mount_id)
}

fn reused(
    directory: BorrowedFd<'_>,
    name: &CStr,
    flags: u32,
    out: &mut FileHandleBuf,
) -> Result<u64> {
    let mut mount_id = 0_i32;
    call(directory, name, flags, out, (&raw mut mount_id).cast())?;
    Ok(u64::from(mount_id.cast_unsigned()))
}

/// `mount_id` must point at a u64 with `AT_HANDLE_MNT_ID_UNIQUE` among the flags, else at an i32.
fn call(
    directory: BorrowedFd<'_>,
    name: &CStr,
    flags: u32,
    out: &mut FileHandleBuf,
    mount_id: *mut libc::c_void,
) -> Result<()> {
    out.handle_bytes = MAX_HANDLE_SIZE as u32;
    // SAFETY: `name` ends in NUL; `out` has room for the MAX_HANDLE_SIZE bytes that it announces;
    // `mount_id` points at an integer of the width that the flags announce.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            directory.as_raw_fd(),
            name.as_ptr(),
            &raw mut *out,
            mount_id,
            flags,
        )
    };
    let answer = check(answer);
    if answer.is_err() || out.handle_bytes as usize > MAX_HANDLE_SIZE {
        out.handle_bytes = 0;
    }
    answer.map(drop)
}

/// How often `open_by_handle_at` is repeated after ENOMEM: first at once, yielding to other threads, then
/// after pauses that double, a tenth of a second in all.
///
/// When the inode is gone and its number is being reused at this moment, the kernel's `iget_locked` finds
/// an inode under creation (I_CREATING) and returns none, which ext4 and others report as ENOMEM (observed
/// on Linux 6.18, with files created and removed in parallel). Once the new inode is complete its
/// generation differs: ESTALE.
const ENOMEM_RETRIES: u32 = 24;
/// So many are without a pause: the new inode is complete within microseconds, unless its creator was
/// preempted.
const ENOMEM_RETRIES_AT_ONCE: u32 = 16;
const ENOMEM_PAUSE: Duration = Duration::from_micros(400);

/// Opens the inode that `handle` names; `mount` is any descriptor on its mount but an `O_PATH` one.
/// `flags` are those of `open(2)`, `O_PATH` among them; close-on-exec is added. Needs CAP_DAC_READ_SEARCH
/// in the thread's effective set.
///
/// # Errors
/// ESTALE when the inode is gone, EPERM without the capability, EBADF when `mount` is `O_PATH`,
/// EINVAL for an empty handle, and those of `open(2)`.
pub fn open_by_handle(
    mount: BorrowedFd<'_>,
    handle: &FileHandleBuf,
    flags: i32,
) -> Result<OwnedFd> {
    let call = || {
        // SAFETY: `handle` announces no more bytes than it has; the kernel only reads it.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_open_by_handle_at,
                mount.as_raw_fd(),
                &raw const *handle,
                flags | libc::O_CLOEXEC,
            )
        };
        check(answer)
    };
    let mut answer = call();
    for retry in 0..ENOMEM_RETRIES {
        if answer != Err(Errno::NOMEM) {
            break;
        }
        if retry < ENOMEM_RETRIES_AT_ONCE {
            rustix::thread::sched_yield();
        } else {
            std::thread::sleep(ENOMEM_PAUSE * (1 << (retry - ENOMEM_RETRIES_AT_ONCE)));
        }
        answer = call();
    }
    let descriptor = answer? as i32;
    // SAFETY: the kernel has just given this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// As [`open_by_handle`], for a handle in two parts.
///
/// # Errors
/// EINVAL when `bytes` is longer than a handle can be, and those of [`open_by_handle`].
pub fn open_by_handle_parts(
    mount: BorrowedFd<'_>,
    kind: i32,
    bytes: &[u8],
    flags: i32,
) -> Result<OwnedFd> {
    let handle = FileHandleBuf::from_parts(kind, bytes).ok_or(Errno::INVAL)?;
    open_by_handle(mount, &handle, flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_ground::{directories, open, root};
    use rustix::fs::{AtFlags, OFlags, StatxFlags};

    /// `STATX_MNT_ID_UNIQUE`.
    const MNT_ID_UNIQUE: u32 = 0x4000;

    #[test]
    fn layout_and_constants() {
        assert_eq!(size_of::<FileHandleBuf>(), 8 + MAX_HANDLE_SIZE);
        assert_eq!(MAX_HANDLE_SIZE, libc::MAX_HANDLE_SZ as usize);
        assert_eq!(AT_EMPTY_PATH, libc::AT_EMPTY_PATH as u32);
        assert_eq!(AT_SYMLINK_FOLLOW, libc::AT_SYMLINK_FOLLOW as u32);
        assert_eq!(AT_HANDLE_FID, libc::AT_HANDLE_FID as u32);
        assert_eq!(
            AT_HANDLE_MNT_ID_UNIQUE,
            libc::AT_HANDLE_MNT_ID_UNIQUE as u32
        );
    }

    #[test]
    fn a_handle_is_rebuilt_from_its_parts() {
        let handle = FileHandleBuf::from_parts(7, b"abc").unwrap();
        assert_eq!((handle.kind(), handle.bytes()), (7, &b"abc"[..]));
        assert_ne!(handle, FileHandleBuf::from_parts(8, b"abc").unwrap());
        assert_ne!(handle, FileHandleBuf::from_parts(7, b"ab").unwrap());
        assert!(FileHandleBuf::from_parts(0, &[1; MAX_HANDLE_SIZE]).is_some());
        assert!(FileHandleBuf::from_parts(0, &[1; MAX_HANDLE_SIZE + 1]).is_none());
    }

    #[test]
    fn mount_id_is_that_of_statx() {
        let mask = if mount_ids_are_unique() {
            MNT_ID_UNIQUE
        } else {
            StatxFlags::MNT_ID.bits()
        };
        let mask = StatxFlags::from_bits_retain(mask);
        let mut ids = Vec::new();
        for place in directories() {
            let directory = open(place.path(), OFlags::DIRECTORY);
            let mut handle = FileHandleBuf::new();
            let id = name_to_handle(&directory, c"", AT_EMPTY_PATH, &mut handle).unwrap();
            let stat = rustix::fs::statx(&directory, c"", AtFlags::EMPTY_PATH, mask).unwrap();
            assert!(stat.stx_mask & mask.bits() != 0);
            assert_eq!(stat.stx_mnt_id, id);

            let mut other = FileHandleBuf::new();
            let old = reused(directory.as_fd(), c"", AT_EMPTY_PATH, &mut other).unwrap();
            let stat = rustix::fs::statx(&directory, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)
                .unwrap();
            assert_eq!(stat.stx_mnt_id, old);
            assert_eq!(handle, other);
            ids.push(id);
        }
        ids.dedup();
        assert_eq!(ids.len(), directories().len());
    }

    #[test]
    fn wrong_flags_do_not_disable_unique_mount_ids() {
        let before = mount_ids_are_unique();
        let mut handle = FileHandleBuf::from_parts(1, b"old").unwrap();
        let answer = name_to_handle(CWD, c"/", 0x4000_0000, &mut handle);
        assert_eq!(answer, Err(Errno::INVAL));
        assert_eq!(handle.bytes(), b"");
        assert_eq!(mount_ids_are_unique(), before);
    }

    /// Regression: a handle of a removed file gave ENOMEM while its inode number was being reused.
    #[test]
    fn a_handle_is_stale_while_its_number_is_reused() {
        let Some(()) = root() else { return };
        let _no_fork = crate::test_ground::FORKING.read().unwrap();
        let place = &directories()[0];
        let mount = open(place.path(), OFlags::DIRECTORY);
        let path = place.path().join("file");
        let make_and_remove = |name: &str, times: u32| {
            let other = place.path().join(name);
            for _ in 0..times {
                drop(open(&other, OFlags::CREATE | OFlags::WRONLY));
                std::fs::remove_file(&other).unwrap();
            }
        };
        let mut wrong = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| make_and_remove("a", 20_000));
            scope.spawn(|| make_and_remove("b", 20_000));
            for _ in 0..2000 {
                drop(open(&path, OFlags::CREATE | OFlags::WRONLY));
                let handle = handle_of(&mount, c"file", 0);
                std::fs::remove_file(&path).unwrap();
                for _ in 0..4 {
                    match open_by_handle(mount.as_fd(), &handle, libc::O_PATH) {
                        Err(Errno::STALE) => {}
                        other => wrong.push(other.map(drop)),
                    }
                }
            }
        });
        assert_eq!(wrong, []);
    }

    fn handle_of(at: impl AsFd, name: &CStr, flags: u32) -> FileHandleBuf {
        let mut handle = FileHandleBuf::new();
        name_to_handle(at, name, flags, &mut handle).unwrap();
        handle
    }
}
