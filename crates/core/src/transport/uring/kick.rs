//! Makes the kernel hand over requests that wait for a slot.
//!
//! A request that finds no free slot on its queue waits, and is handed over with the next reply that is
//! sent there. A new slot alone does not fetch it (observed with Linux 6.18). When all requests of a queue
//! are carried out elsewhere, perhaps for ever, no reply is sent; so one is provoked. The kernel is asked
//! for data that it does not have (`FUSE_NOTIFY_RETRIEVE`): it answers with a request on the queue of the
//! asking CPU, which takes a reply. It locks no inode for that, so a serving thread may ask. It must be
//! about a regular file that the kernel knows: one of a recent request.

use crate::serving::move_to;
use rustix::io::Result;
use rustix::thread::{sched_getaffinity, sched_setaffinity};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use thrufs_abi::layout::{EntryOut, InHeader};
use thrufs_abi::{NodeId, Notification, Opcode, Reply, Unique};
use thrufs_sys::fuse_ring::QueueIndex;
use thrufs_sys::signal::current_thread_id;
use zerocopy::FromBytes;

/// Set in numbers of kicks, and neither in those of the kernel's requests nor in the notifier's.
const KICK: u64 = 1 << 63;

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Asks about `file` on the CPU of `queue`.
///
/// # Errors
/// EINVAL when this thread may not run there or `file` is no regular file, ENOENT when the kernel has
/// forgotten it, and those of writing to the device.
pub(super) fn kick(device: BorrowedFd<'_>, file: NodeId, queue: QueueIndex) -> Result<()> {
    let question = Notification::Retrieve {
        unique: Unique(KICK | NEXT.fetch_add(2, Ordering::Relaxed) & (KICK - 1)),
        node: file,
        offset: 0,
        size: 0,
    };
    let message = question.encode().unwrap_or_default();
    let cpu = usize::from(queue.0);
    if thrufs_sys::sched::current_cpu() == cpu {
        return rustix::io::write(device, &message).map(drop);
    }
    let before = sched_getaffinity(None)?;
    move_to(current_thread_id(), cpu)?;
    let written = rustix::io::write(device, &message);
    sched_setaffinity(None, &before)?;
    written.map(drop)
}

pub(super) fn is_answer(header: &InHeader) -> bool {
    header.unique & KICK != 0 && header.opcode == Opcode::NotifyReply.number()
}

pub(super) fn is_about_file(header: &InHeader) -> bool {
    matches!(
        Opcode::from_u32(header.opcode),
        Some(Opcode::Open | Opcode::Read | Opcode::Write | Opcode::Fsync | Opcode::Setlkw)
    )
}

/// The regular file that a reply makes known to the kernel.
pub(super) fn found_file(request: &[u8], reply: &[u8]) -> Option<NodeId> {
    let (header, _) = InHeader::ref_from_prefix(request).ok()?;
    if header.opcode != Opcode::Lookup.number() && header.opcode != Opcode::Create.number() {
        return None;
    }
    let reply = Reply::parse(reply).filter(|reply| reply.error == 0)?;
    let entry: EntryOut = reply.structure()?;
    let is_file = entry.nodeid != 0 && entry.attr.mode & libc::S_IFMT == libc::S_IFREG;
    is_file.then_some(NodeId(entry.nodeid))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(opcode: Opcode, unique: u64) -> InHeader {
        InHeader {
            opcode: opcode.number(),
            unique,
            ..InHeader::default()
        }
    }

    #[test]
    fn answers_to_kicks_are_recognised() {
        assert!(is_answer(&header(Opcode::NotifyReply, KICK | 4)));
        assert!(!is_answer(&header(Opcode::NotifyReply, 4)));
        assert!(!is_answer(&header(Opcode::Lookup, KICK | 4)));
    }

    #[test]
    fn requests_about_directories_have_no_file() {
        assert!(is_about_file(&header(Opcode::Read, 2)));
        assert!(!is_about_file(&header(Opcode::Readdir, 2)));
        assert!(!is_about_file(&header(Opcode::Lookup, 2)));
    }
}
