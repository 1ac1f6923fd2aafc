//! The part of io_uring that `/dev/fuse` needs, for one thread (`io_uring_setup(2)`).
//!
//! A ring is created disabled and restricted to a few operations, so that a process that was taken over
//! cannot bypass its seccomp filter with it; the serving thread enables it.
//!
//! # Safety
//! [`IoUring::push`] is unsafe because its caller answers for what the entry points at. The rest is the
//! crate `io-uring`'s.

#![allow(unsafe_code)]

use ::io_uring::cqueue::Entry;
use ::io_uring::register::Restriction;
use ::io_uring::squeue::Entry128;
use ::io_uring::types::{SubmitArgs, Timespec};
use rustix::io::{Errno, Result};
use std::fmt;
use std::io;
use std::time::Duration;

/// The `io_uring_register(2)` operation of a thread that enables its ring, for seccomp filters.
pub const REGISTER_ENABLE_RINGS: u32 = 12;

/// Flag of an entry: its file is the index of a registered one (`IOSQE_FIXED_FILE`).
const FIXED_FILE: u8 = 1;

pub(crate) struct IoUring(pub(crate) ::io_uring::IoUring<Entry128>);

impl fmt::Debug for IoUring {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "IoUring({:?})", self.0.params())
    }
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

impl IoUring {
    /// A disabled ring with room for `entries` submissions, of `operations` on `files`, which entries name
    /// by their indices, or on other files. Once it is enabled, it takes no further registrations.
    /// Completions arrive only while its thread waits for them (`DEFER_TASKRUN`).
    ///
    /// # Errors
    /// EPERM or EACCES where rings are forbidden (`kernel.io_uring_disabled`, a filter), ENOSYS
    /// without io_uring, EINVAL where a flag is not known, ENOMEM, EMFILE.
    pub(crate) fn new(entries: u32, files: &[i32], operations: &[u8]) -> Result<IoUring> {
        let ring = ::io_uring::IoUring::builder()
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
        Ok(IoUring(ring))
    }

    /// Binds the ring to the calling thread.
    ///
    /// # Errors
    /// EBADFD when it is enabled already.
    pub(crate) fn enable(&self) -> Result<()> {
        self.0.submitter().register_enable_rings().map_err(errno)
    }

    /// Adds an entry to the submission queue. False when it is full: submit first.
    ///
    /// # Safety
    /// What the entry points at must be valid, and the kernel's, until its last completion.
    pub(crate) unsafe fn push(&mut self, entry: &Entry128) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.0.submission().push(entry) }.is_ok()
    }

    /// Submits, and waits until there are `wanted` completions or `timeout` is over.
    ///
    /// # Errors
    /// EINTR, ETIME, and others of `io_uring_enter(2)`.
    pub(crate) fn enter(&mut self, wanted: usize, timeout: Option<Duration>) -> Result<()> {
        let submitter = self.0.submitter();
        let entered = match timeout.map(Timespec::from) {
            Some(time) => submitter.submit_with_args(wanted, &SubmitArgs::new().timespec(&time)),
            None => submitter.submit_and_wait(wanted),
        };
        entered.map(drop).map_err(errno)
    }

    /// Whether an entry was pushed and not submitted yet.
    pub(crate) fn has_pushed(&mut self) -> bool {
        !self.0.submission().is_empty()
    }

    /// The next completion, without consuming it.
    pub(crate) fn peek(&mut self) -> Option<Entry> {
        let mut completions = self.0.completion();
        let next = completions.next();
        // What was taken is consumed when the queue is dropped.
        std::mem::forget(completions);
        next
    }

    pub(crate) fn pop(&mut self) -> Option<Entry> {
        self.0.completion().next()
    }
}
