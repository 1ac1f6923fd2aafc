//! INIT: the kernel's offer without features of `/dev/fuse`, and the server's reply within the limits of the
//! queues.

use super::error::RelayError;
use crate::front_end::FrontEnd;
use thrufs_abi::layout::{InHeader, InitIn, InitOut, OutHeader};
use thrufs_abi::{InitFlags, Opcode, Reply};
use thrufs_testing::Shape;
use zerocopy::{FromBytes, IntoBytes};

/// Room for INIT: the kernel's minimum for a read (`FUSE_MIN_READ_BUFFER`).
pub(super) const REQUEST_BYTES_MAX: usize = 8192;

/// Descriptors of a chain besides pages: two headers, twice arguments. Linux counts so with indirect tables too.
const DESCRIPTORS_BESIDES_PAGES: u16 = 4;

/// Most pages that a guest asks for.
const PAGES_MAX: u16 = 256;
const PAGE: u32 = 4096;

/// The kernel's default.
const PAGES_DEFAULT: u16 = 32;

/// Features of `/dev/fuse`, which must not be negotiated with a remote server.
const WITHHELD: InitFlags = InitFlags::OVER_IO_URING.union(InitFlags::PASSTHROUGH);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pages: u16,
}

impl Limits {
    pub(super) fn of(front_end: &FrontEnd) -> Result<Limits, RelayError> {
        let size = front_end.queue_size();
        match size.saturating_sub(DESCRIPTORS_BESIDES_PAGES) {
            0..4 => Err(RelayError::QueueSize(size)),
            pages => Ok(Limits {
                pages: pages.min(PAGES_MAX),
            }),
        }
    }
}

/// The reply for the kernel, and its outcome.
pub(super) struct Greeting {
    pub(super) bytes: Vec<u8>,
    pub(super) outcome: Result<(), RelayError>,
}

/// Forwards INIT and adapts the reply.
pub(super) fn pass(
    front_end: &FrontEnd,
    request: &[u8],
    limits: Limits,
) -> Result<Greeting, RelayError> {
    let Some((offered, passed)) = offer(request) else {
        return Err(RelayError::Refused(libc_errno::EPROTO));
    };
    let room = Shape::of(&passed).reply.map_or(0, |reply| reply.bytes());
    let unique = InHeader::read_from_prefix(request).map_or(0, |(header, _)| header.unique);
    let answer = front_end.exchange(&passed, room);
    let answer = answer.map_err(RelayError::from).and_then(|reply| {
        let reply = Reply::parse(&reply).filter(|reply| reply.unique.0 == unique);
        let reply = reply.ok_or(RelayError::Refused(libc_errno::EPROTO))?;
        match reply.structure() {
            _ if reply.error != 0 => Err(RelayError::Refused(reply.error.saturating_neg())),
            Some(taken) => Ok(take(&taken, offered, limits)),
            None => Err(RelayError::Refused(libc_errno::EPROTO)),
        }
    });
    Ok(match answer {
        Ok(taken) => Greeting {
            bytes: message(unique, 0, taken.as_bytes()),
            outcome: Ok(()),
        },
        Err(error) => Greeting {
            bytes: message(unique, -libc_errno::EIO, &[]),
            outcome: Err(error),
        },
    })
}

/// Errnos of the relay's own replies.
mod libc_errno {
    pub(super) const EIO: i32 = rustix::io::Errno::IO.raw_os_error();
    pub(super) const EPROTO: i32 = rustix::io::Errno::PROTO.raw_os_error();
}

/// A reply as the kernel reads it.
pub(super) fn message(unique: u64, error: i32, body: &[u8]) -> Vec<u8> {
    let header = OutHeader {
        len: (size_of::<OutHeader>() + body.len()) as u32,
        error,
        unique,
    };
    [header.as_bytes(), body].concat()
}

fn flags_of(low: u32, high: u32) -> InitFlags {
    let low = InitFlags::from_bits_retain(u64::from(low));
    if low.contains(InitFlags::INIT_EXT) {
        low | InitFlags::from_bits_retain(u64::from(high) << 32)
    } else {
        low
    }
}

/// The flags offered to the server, and the request with them. `None` for a malformed INIT.
fn offer(request: &[u8]) -> Option<(InitFlags, Vec<u8>)> {
    let (header, body) = InHeader::read_from_prefix(request).ok()?;
    if header.opcode != Opcode::Init.number() {
        return None;
    }
    let (mut arg, _) = InitIn::read_from_prefix(body).ok()?;
    let offered = flags_of(arg.flags, arg.flags2).difference(WITHHELD);
    arg.flags = offered.bits() as u32;
    arg.flags2 = (offered.bits() >> 32) as u32;
    let mut passed = request.to_vec();
    let at = size_of::<InHeader>();
    passed[at..at + size_of::<InitIn>()].copy_from_slice(arg.as_bytes());
    Some((offered, passed))
}

/// The server's reply, limited to the offered flags and to `limits`.
fn take(answer: &InitOut, offered: InitFlags, limits: Limits) -> InitOut {
    let taken = flags_of(answer.flags, answer.flags2) & offered;
    let pages = if taken.contains(InitFlags::MAX_PAGES) {
        answer.max_pages
    } else {
        PAGES_DEFAULT
    };
    let pages = pages.clamp(1, limits.pages);
    // Set even if the server sets none: the kernel's default is 32.
    let taken = taken | (InitFlags::MAX_PAGES & offered);
    InitOut {
        flags: taken.bits() as u32,
        flags2: (taken.bits() >> 32) as u32,
        max_pages: pages,
        max_write: answer.max_write.clamp(PAGE, u32::from(pages) * PAGE),
        map_alignment: 0,
        max_stack_depth: 0,
        ..*answer
    }
}
