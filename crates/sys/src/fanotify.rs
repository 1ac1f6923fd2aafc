//! Groups of fanotify(7) that report where something changed: the directory, the name, and the handles of
//! both.
//!
//! A process needs no privilege to mark directories and files that it may read. Handles in events are those of
//! `name_to_handle_at(2)`, also where they cannot be opened (`AT_HANDLE_FID`).
//!
//! # Safety
//! The kernel reads a name of this process, and writes into no memory but through read(2) of the group, which
//! is `rustix`'s.

#![allow(unsafe_code)]

use crate::proc_fd::Link;
use crate::raw::check_int;
use rustix::io::Result;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The size of a buffer for [`Group::read`]: some hundred events.
pub const BUFFER_BYTES: usize = 32 * 1024;
/// More than the largest event: 24 bytes, two records of 20 and a handle of up to 128 each, and a name of 256.
const EVENT_BYTES_MAX: usize = 1024;

/// Names were added, removed or moved.
pub const NAMES: u64 =
    libc::FAN_CREATE | libc::FAN_DELETE | libc::FAN_MOVED_FROM | libc::FAN_MOVED_TO;
/// A name was added, but not by a rename.
pub const CREATE: u64 = libc::FAN_CREATE;
/// Data were changed, or a writer has closed the file and has it mapped no longer.
pub const DATA: u64 = libc::FAN_MODIFY | libc::FAN_CLOSE_WRITE;
/// Attributes were changed, times and links among them.
pub const ATTRIBUTES: u64 = libc::FAN_ATTRIB;
/// The marked inode got another name, which changes its `ctime`.
pub const MOVED: u64 = libc::FAN_MOVE_SELF;
/// Events are missing: the queue was full. Such an event names nothing.
pub const OVERFLOW: u64 = libc::FAN_Q_OVERFLOW;
/// The event is about a directory.
pub const ON_DIRECTORY: u64 = libc::FAN_ONDIR;
/// In a mark of a directory: what happens to its entries as well.
pub const OF_ENTRIES: u64 = libc::FAN_EVENT_ON_CHILD;

/// A group of marks and their queue of events, 16,384 of them unless `fs.fanotify.max_queued_events` says
/// otherwise.
#[derive(Debug)]
pub struct Group {
    fd: OwnedFd,
    has_unlimited_marks: bool,
}

impl Group {
    /// A group without marks, whose reads do not wait. With CAP_SYS_ADMIN its marks do not count among those of
    /// the user (`user.max_fanotify_marks`), who may need them for other programs.
    ///
    /// # Errors
    /// Those of `fanotify_init(2)`: EMFILE (`user.max_fanotify_groups`), EINVAL before Linux 5.17, ENOSYS.
    pub fn new() -> Result<Group> {
        // FAN_REPORT_DFID_NAME_TARGET, FAN_CLASS_NOTIF being 0.
        let reports = libc::FAN_REPORT_DIR_FID
            | libc::FAN_REPORT_NAME
            | libc::FAN_REPORT_FID
            | libc::FAN_REPORT_TARGET_FID;
        let flags = libc::FAN_CLOEXEC | libc::FAN_NONBLOCK | reports;
        // SAFETY: no pointers.
        let init = |flags| check_int(unsafe { libc::fanotify_init(flags, libc::O_RDONLY as u32) });
        let (group, has_unlimited_marks) = match init(flags | libc::FAN_UNLIMITED_MARKS) {
            Err(rustix::io::Errno::PERM) => (init(flags)?, false),
            group => (group?, true),
        };
        Ok(Group {
            // SAFETY: a new descriptor, owned from here on.
            fd: unsafe { OwnedFd::from_raw_fd(group) },
            has_unlimited_marks,
        })
    }

    /// Whether its marks do not count among those of the user.
    pub fn has_unlimited_marks(&self) -> bool {
        self.has_unlimited_marks
    }

    /// Adds `events` to the mark of the inode behind a descriptor (also `O_PATH`).
    ///
    /// # Errors
    /// Those of `fanotify_mark(2)`: ENOSPC (`user.max_fanotify_marks`), EACCES without read permission, ENODEV
    /// and EOPNOTSUPP where the file system has no identity or no handles; EXDEV if the group has marks in
    /// another subvolume (btrfs).
    pub fn mark(&self, inode: BorrowedFd<'_>, events: u64) -> Result<()> {
        self.change(libc::FAN_MARK_ADD, inode, events)
    }

    /// Removes `events` from the mark of an inode; a mark without events is gone.
    ///
    /// # Errors
    /// Those of `fanotify_mark(2)`: ENOENT without a mark.
    pub fn unmark(&self, inode: BorrowedFd<'_>, events: u64) -> Result<()> {
        self.change(libc::FAN_MARK_REMOVE, inode, events)
    }

    /// Marks all inodes of the file system of a descriptor.
    ///
    /// # Errors
    /// As [`mark`](Self::mark); EPERM without CAP_SYS_ADMIN, EXDEV for a subvolume (btrfs), EOPNOTSUPP where
    /// handles cannot be opened (overlayfs).
    pub fn mark_file_system(&self, of: BorrowedFd<'_>, events: u64) -> Result<()> {
        self.change(libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM, of, events)
    }

    /// Reports no more [`DATA`] of an inode, whatever other marks say.
    ///
    /// # Errors
    /// As [`mark`](Self::mark); EINVAL before Linux 6.0.
    pub fn ignore_data(&self, inode: BorrowedFd<'_>) -> Result<()> {
        let ignore = libc::FAN_MARK_IGNORE | libc::FAN_MARK_IGNORED_SURV_MODIFY;
        self.change(libc::FAN_MARK_ADD | ignore, inode, DATA)
    }

    /// Ends [`ignore_data`](Self::ignore_data).
    ///
    /// # Errors
    /// As [`unmark`](Self::unmark); EACCES without read permission.
    pub fn report_data(&self, inode: BorrowedFd<'_>) -> Result<()> {
        let ignore = libc::FAN_MARK_REMOVE | libc::FAN_MARK_IGNORE;
        self.change(ignore, inode, DATA)
    }

    /// Reports no more [`DATA`] of what is written by the mount of a descriptor, whatever the marks of inodes
    /// say. Writes by other mounts of the same file system are reported.
    ///
    /// # Errors
    /// Those of `fanotify_mark(2)`: EINVAL before Linux 6.0, EPERM without CAP_SYS_ADMIN, EXDEV
    /// for a subvolume (btrfs), ENOSPC.
    pub fn ignore_data_by_mount(&self, of: BorrowedFd<'_>) -> Result<()> {
        let ignore = libc::FAN_MARK_IGNORE | libc::FAN_MARK_IGNORED_SURV_MODIFY;
        let by_mount = libc::FAN_MARK_ADD | libc::FAN_MARK_MOUNT | ignore;
        self.change(by_mount, of, DATA)
    }

    /// Ends [`ignore_data_by_mount`](Self::ignore_data_by_mount).
    ///
    /// # Errors
    /// As [`unmark`](Self::unmark).
    pub fn report_data_by_mount(&self, of: BorrowedFd<'_>) -> Result<()> {
        let by_mount = libc::FAN_MARK_REMOVE | libc::FAN_MARK_MOUNT | libc::FAN_MARK_IGNORE;
        self.change(by_mount, of, DATA)
    }

    fn change(&self, action: u32, inode: BorrowedFd<'_>, events: u64) -> Result<()> {
        let link = Link::of(inode);
        let (group, path) = (self.fd.as_raw_fd(), link.path().as_ptr());
        // SAFETY: `path` ends with a zero byte and lives across the call.
        let done = unsafe { libc::fanotify_mark(group, action, events, libc::AT_FDCWD, path) };
        check_int(done).map(drop)
    }

    /// The events that are queued, as many as fit in `buffer`.
    ///
    /// # Errors
    /// EAGAIN if there are none, EINVAL for a buffer too small for the next.
    pub fn read<'a>(&self, buffer: &'a mut [u8]) -> Result<Events<'a>> {
        let length = rustix::io::read(&self.fd, &mut *buffer)?;
        Ok(Events(&buffer[..length]))
    }
}

impl AsFd for Group {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// An inode in an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle<'a> {
    /// `f_fsid` of `statfs(2)`.
    pub file_system: u64,
    /// The file system's type of handle.
    pub kind: i32,
    /// The handle, opaque.
    pub bytes: &'a [u8],
}

/// Where something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// What happened: several things, if they were the same process's and not yet read.
    pub mask: u64,
    /// The process. 0 for others, to a group of a process without CAP_SYS_ADMIN.
    pub pid: u32,
    /// The directory; itself, if it happened to a marked directory.
    pub directory: Option<Handle<'a>>,
    /// The name in the directory; `.` for itself, empty if unknown.
    pub name: &'a CStr,
    /// What has or had the name, or what it happened to.
    pub target: Option<Handle<'a>>,
}

/// The events of one read.
#[derive(Debug)]
pub struct Events<'a>(&'a [u8]);

impl Events<'_> {
    /// Whether the queue was empty then, to be asked before the first: there was room for more in a buffer of
    /// [`BUFFER_BYTES`].
    pub fn are_all(&self) -> bool {
        self.0.len() + EVENT_BYTES_MAX <= BUFFER_BYTES
    }
}

/// `struct fanotify_event_metadata`: length, version, length of the metadata, mask, descriptor, process.
const METADATA_BYTES: usize = 24;
/// `struct fanotify_event_info_fid` up to the handle's bytes: header, file system, size and type.
const HANDLE_AT: usize = 20;

impl<'a> Iterator for Events<'a> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Event<'a>> {
        let length = u32_at(self.0, 0)? as usize;
        if length < METADATA_BYTES {
            return None;
        }
        let (event, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        let mut found = Event {
            mask: u64_at(event, 8)?,
            pid: u32_at(event, 20)?,
            directory: None,
            name: c"",
            target: None,
        };
        let mut infos = &event[METADATA_BYTES..];
        while let Some((info, rest)) = split_info(infos) {
            infos = rest;
            match info[0] {
                libc::FAN_EVENT_INFO_TYPE_FID => found.target = handle_in(info).map(|it| it.0),
                libc::FAN_EVENT_INFO_TYPE_DFID | libc::FAN_EVENT_INFO_TYPE_DFID_NAME => {
                    if let Some((handle, name)) = handle_in(info) {
                        found.directory = Some(handle);
                        found.name = CStr::from_bytes_until_nul(name).unwrap_or(c"");
                    }
                }
                _ => {}
            }
        }
        Some(found)
    }
}

/// The first information record, which begins with its type, a byte of padding and its length.
fn split_info(infos: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = u16::from_ne_bytes(*infos.get(2..)?.first_chunk()?);
    let is_whole = usize::from(length) >= HANDLE_AT;
    is_whole.then(|| infos.split_at_checked(length.into()))?
}

/// The handle in a record, and what follows it.
fn handle_in(info: &[u8]) -> Option<(Handle<'_>, &[u8])> {
    let length = u32_at(info, 12)? as usize;
    let (bytes, rest) = info.get(HANDLE_AT..)?.split_at_checked(length)?;
    let handle = Handle {
        file_system: u64_at(info, 4)?,
        kind: u32_at(info, 16)?.cast_signed(),
        bytes,
    };
    Some((handle, rest))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    use rustix::fs::{Mode, OFlags};

    fn path_fd(path: &std::path::Path) -> OwnedFd {
        rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    #[test]
    fn cut_off_events_are_left_out() {
        let place = tempfile::tempdir().unwrap();
        let group = Group::new().unwrap();
        let directory = path_fd(place.path());
        group.mark(directory.as_fd(), NAMES).unwrap();
        std::fs::write(place.path().join("file"), "").unwrap();
        let mut buffer = vec![0; BUFFER_BYTES];
        let whole = group.read(&mut buffer).unwrap().0.to_vec();
        assert_eq!(Events(&whole).count(), 1);
        for length in 0..whole.len() {
            assert_eq!(Events(&whole[..length]).count(), 0);
        }
        for at in 0..whole.len() {
            let mut broken = whole.clone();
            broken[at] ^= 0xff;
            assert!(Events(&broken).count() <= 1);
        }
    }
}
