//! Writes the library's values as structures of `linux/fuse.h`, into the transport's buffer.

use crate::attributes::{Attributes, Entry, ExtendedAttributes, LockArgs, Opened};
use crate::errno::{Errno, Result};
use std::time::Duration;
use thrufs_abi::Unique;
use thrufs_abi::layout::{AttrOut, EntryOut, FileLock, LkOut, OpenOut, OutHeader, StatxOut};
use zerocopy::{Immutable, IntoBytes};

/// Bytes before the body of every reply.
pub(crate) const HEADER_BYTES: usize = size_of::<OutHeader>();

pub(crate) fn entry_out(entry: &Entry) -> EntryOut {
    let (entry_valid, entry_valid_nsec) = timeout(entry.entry_timeout);
    let (attr_valid, attr_valid_nsec) = timeout(entry.attr_timeout);
    EntryOut {
        nodeid: entry.node.0,
        generation: entry.generation.0,
        entry_valid,
        attr_valid,
        entry_valid_nsec,
        attr_valid_nsec,
        attr: entry.attr,
    }
}

pub(crate) fn attr_out(attributes: &Attributes) -> AttrOut {
    let (attr_valid, attr_valid_nsec) = timeout(attributes.timeout);
    AttrOut {
        attr_valid,
        attr_valid_nsec,
        dummy: 0,
        attr: attributes.attr,
    }
}

pub(crate) fn statx_out(attributes: &ExtendedAttributes) -> StatxOut {
    let (attr_valid, attr_valid_nsec) = timeout(attributes.timeout);
    StatxOut {
        attr_valid,
        attr_valid_nsec,
        stat: attributes.statx,
        ..StatxOut::default()
    }
}

pub(crate) fn open_out(opened: &Opened) -> OpenOut {
    OpenOut {
        fh: opened.handle.0,
        open_flags: opened.flags.bits(),
        backing_id: opened.backing.map_or(0, |id| id.0),
    }
}

/// The reply to GETLK: the conflicting lock, or "unlocked".
pub(crate) fn lk_out(lock: Option<&LockArgs>) -> LkOut {
    let lk = match lock {
        Some(lock) => FileLock {
            start: lock.start,
            end: lock.end,
            kind: lock.kind,
            pid: lock.pid,
        },
        None => FileLock {
            kind: libc::F_UNLCK as u32,
            ..FileLock::default()
        },
    };
    LkOut { lk }
}

/// Seconds and nanoseconds. The kernel treats a time that it cannot represent as "for ever".
fn timeout(duration: Duration) -> (u64, u32) {
    (duration.as_secs(), duration.subsec_nanos())
}

/// Writes a structure to the start of `body`; returns its size.
///
/// `EIO` when it does not fit: the transport's buffers are far too small then.
pub(crate) fn put(body: &mut [u8], structure: &(impl IntoBytes + Immutable)) -> Result<usize> {
    let bytes = structure.as_bytes();
    body.get_mut(..bytes.len())
        .ok_or(Errno::EIO)?
        .copy_from_slice(bytes);
    Ok(bytes.len())
}

/// Writes the body of a reply to CREATE; returns its size.
pub(crate) fn put_created(body: &mut [u8], entry: &Entry, opened: &Opened) -> Result<usize> {
    let entry_bytes = put(body, &entry_out(entry))?;
    let open_bytes = put(&mut body[entry_bytes..], &open_out(opened))?;
    Ok(entry_bytes + open_bytes)
}

/// Writes the header before a body of this length, or one that says `error`; returns the length
/// of the whole reply. `reply` has room for a header.
pub(crate) fn put_header(reply: &mut [u8], unique: Unique, result: Result<usize>) -> usize {
    let (body, error) = match result {
        Ok(body) => (body, 0),
        // Not for clients; the method was called where it may block, or has not taken the request.
        Err(Errno::DEFER | Errno::LATER) => (0, -Errno::EIO.raw()),
        Err(errno) => (0, -errno.raw()),
    };
    let length = HEADER_BYTES + body;
    // Reply buffers are far below 4 GiB: the largest body is 16 MiB.
    let header = OutHeader {
        len: length as u32,
        error,
        unique: unique.0,
    };
    reply[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    length
}

#[cfg(test)]
mod tests {
    use super::*;
    use thrufs_abi::{NodeId, Reply};

    #[test]
    fn timeouts_have_seconds_and_nanoseconds() {
        let mut entry = Entry::negative(Duration::new(3, 7));
        entry.attr_timeout = Duration::MAX;
        let out = entry_out(&entry);
        assert_eq!((out.entry_valid, out.entry_valid_nsec), (3, 7));
        assert_eq!(
            (out.attr_valid, out.attr_valid_nsec),
            (u64::MAX, 999_999_999)
        );
        assert_eq!(out.nodeid, NodeId(0).0);
    }

    #[test]
    fn deferring_never_reaches_a_client() {
        let mut reply = [0; HEADER_BYTES];
        let length = put_header(&mut reply, Unique(6), Err(Errno::DEFER));
        let parsed = Reply::parse(&reply[..length]).unwrap();
        assert_eq!((parsed.unique, parsed.error), (Unique(6), -libc::EIO));
    }

    #[test]
    fn a_body_that_does_not_fit_is_an_error() {
        assert_eq!(put(&mut [0; 15], &OpenOut::default()), Err(Errno::EIO));
        assert_eq!(put(&mut [0; 16], &OpenOut::default()), Ok(16));
    }
}
