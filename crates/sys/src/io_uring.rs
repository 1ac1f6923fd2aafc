//! The part of io_uring that `/dev/fuse` needs, for one thread (`io_uring_setup(2)`).
//!
//! A ring is created disabled and restricted to a few operations, so that a process that was taken over
//! cannot bypass its seccomp filter with it; the serving thread enables it.

use ::io_uring::IoUring;
use ::io_uring::cqueue::Entry;
use ::io_uring::register::Restriction;
use ::io_uring::squeue::Entry128;
use ::io_uring::types::{SubmitArgs, Timespec};
use rustix::io::{Errno, Result};
use std::io;
use std::time::Duration;

/// Flag of an entry: its file is the index of a registered one (`IOSQE_FIXED_FILE`).
const FIXED_FILE: u8 = 1;

pub(crate) fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// A disabled ring with room for `entries` submissions, of `operations` on `files`, which entries name
/// by their indices, or on other files. Once it is enabled, it takes no further registrations.
/// Completions arrive only while its thread waits for them (`DEFER_TASKRUN`).
///
/// # Errors
/// EPERM or EACCES where rings are forbidden (`kernel.io_uring_disabled`, a filter), ENOSYS
/// without io_uring, EINVAL where a flag is not known, ENOMEM, EMFILE.
pub(crate) fn new_ring(
    entries: u32,
    files: &[i32],
    operations: &[u8],
) -> Result<IoUring<Entry128>> {
    let ring = IoUring::builder()
        .setup_r_disabled()
        .setup_submit_all()
        .setup_no_sqarray()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_single_issuer()
        .build(entries)
        .map_err(errno)?;
    ring.submitter().register_files(files).map_err(errno)?;
    let operations = operations.iter().map(|code| Restriction::sqe_op(*code));
    let flags = Restriction::sqe_flags_allowed(FIXED_FILE);
    let mut restrictions: Vec<Restriction> = operations.chain([flags]).collect();
    ring.submitter()
        .register_restrictions(&mut restrictions)
        .map_err(errno)?;
    Ok(ring)
}

/// Submits, and waits until there are `wanted` completions or `timeout` is over.
///
/// # Errors
/// EINTR, ETIME, and others of `io_uring_enter(2)`.
pub(crate) fn enter(
    ring: &IoUring<Entry128>,
    wanted: usize,
    timeout: Option<Duration>,
) -> Result<()> {
    let submitter = ring.submitter();
    let entered = match timeout.map(Timespec::from) {
        Some(time) => submitter.submit_with_args(wanted, &SubmitArgs::new().timespec(&time)),
        None => submitter.submit_and_wait(wanted),
    };
    entered.map(drop).map_err(errno)
}

/// The next completion, without consuming it.
pub(crate) fn peek(ring: &mut IoUring<Entry128>) -> Option<Entry> {
    let mut completions = ring.completion();
    let next = completions.next();
    // What was taken is consumed when the queue is dropped.
    std::mem::forget(completions);
    next
}
