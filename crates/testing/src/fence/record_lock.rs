//! Locks of `fcntl(2)` on byte ranges: of a process, and of an open file description.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The owner of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The process (`F_SETLK`): all its descriptors, gone when it closes any of them.
    Process,
    /// The open file description (`F_OFD_SETLK`).
    Description,
}

/// The kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A shared lock.
    Read,
    /// An exclusive lock.
    Write,
    /// No lock: releases those in the range.
    Unlock,
}

/// A range of bytes. A length of 0 reaches to the end of the file however it grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub start: i64,
    /// Number of bytes.
    pub len: i64,
}

/// The whole file.
pub const WHOLE: Range = Range { start: 0, len: 0 };

/// A conflicting lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Read or Write.
    pub kind: Kind,
    /// Its range.
    pub range: Range,
    /// The process that holds it, −1 for a lock of an open file description.
    pub pid: i32,
}

fn record(kind: Kind, range: Range) -> libc::flock {
    let l_type = match kind {
        Kind::Read => libc::F_RDLCK,
        Kind::Write => libc::F_WRLCK,
        Kind::Unlock => libc::F_UNLCK,
    };
    libc::flock {
        l_type: l_type as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: range.start,
        l_len: range.len,
        // OFD commands refuse anything else.
        l_pid: 0,
    }
}

/// Takes or releases a lock. With `wait` it blocks while there is a conflict.
///
/// # Errors
///
/// As `fcntl(2)`: EAGAIN if another holds it and `wait` is false, EINTR if a signal came.
pub fn set(
    fd: BorrowedFd<'_>,
    owner: Owner,
    kind: Kind,
    range: Range,
    wait: bool,
) -> io::Result<()> {
    let command = match (owner, wait) {
        (Owner::Process, false) => libc::F_SETLK,
        (Owner::Process, true) => libc::F_SETLKW,
        (Owner::Description, false) => libc::F_OFD_SETLK,
        (Owner::Description, true) => libc::F_OFD_SETLKW,
    };
    let record = record(kind, range);
    // SAFETY: the descriptor is open for as long as the borrow, the command takes a pointer to a
    // `flock`, and the record outlives the call.
    let result = unsafe { libc::fcntl(fd.as_raw_fd(), command, &raw const record) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The first lock that conflicts with one of `kind` in `range`.
pub fn query(
    fd: BorrowedFd<'_>,
    owner: Owner,
    kind: Kind,
    range: Range,
) -> io::Result<Option<Held>> {
    let command = match owner {
        Owner::Process => libc::F_GETLK,
        Owner::Description => libc::F_OFD_GETLK,
    };
    let mut record = record(kind, range);
    // SAFETY: as in `set`; the record is writable and not otherwise borrowed.
    let result = unsafe { libc::fcntl(fd.as_raw_fd(), command, &raw mut record) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let kind = match libc::c_int::from(record.l_type) {
        libc::F_UNLCK => return Ok(None),
        libc::F_RDLCK => Kind::Read,
        _ => Kind::Write,
    };
    let range = Range {
        start: record.l_start,
        len: record.l_len,
    };
    Ok(Some(Held {
        kind,
        range,
        pid: record.l_pid,
    }))
}
