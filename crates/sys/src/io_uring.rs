//! The part of io_uring that `/dev/fuse` needs, for one thread (`io_uring_setup(2)`).
//!
//! A ring is created disabled and restricted to a few operations, so that a process that was taken over
//! cannot bypass its seccomp filter with it; the serving thread enables it.
//!
//! # Safety
//! The kernel shares three pieces of memory with us, mapped from the ring's descriptor and unmapped with
//! it: the submission entries and the two index rings. Indices are atomics; an entry is written before the
//! tail is moved past it (release), and a completion is read after the tail was seen beyond it (acquire)
//! and before the head is moved (release). Each side writes its own index. One thread has the ring
//! (`&mut`), so ours have one writer.
//!
//! [`IoUring::push`] is unsafe because its caller answers for what the entry points at.

#![allow(unsafe_code)]

use crate::raw::check;
use rustix::io::{Errno, Result};
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

// As in linux/io_uring.h.
const SETUP_R_DISABLED: u32 = 1 << 6;
const SETUP_SUBMIT_ALL: u32 = 1 << 7;
const SETUP_TASKRUN_FLAG: u32 = 1 << 9;
const SETUP_SQE128: u32 = 1 << 10;
const SETUP_SINGLE_ISSUER: u32 = 1 << 12;
const SETUP_DEFER_TASKRUN: u32 = 1 << 13;
const SETUP_NO_SQARRAY: u32 = 1 << 16;
const FEAT_SINGLE_MMAP: u32 = 1;
const OFF_SQ_RING: u64 = 0;
const OFF_SQES: u64 = 0x1000_0000;
const ENTER_GETEVENTS: u32 = 1;
const ENTER_EXT_ARG: u32 = 1 << 3;
const REGISTER_FILES: u32 = 2;
const REGISTER_RESTRICTIONS: u32 = 11;
/// The `io_uring_register(2)` operation of a thread that enables its ring, for seccomp filters.
pub const REGISTER_ENABLE_RINGS: u32 = 12;
const RESTRICTION_SQE_OP: u16 = 1;
const RESTRICTION_SQE_FLAGS_ALLOWED: u16 = 2;
/// Flag of an entry: `fd` is the index of a registered file.
pub(crate) const FIXED_FILE: u8 = 1;
/// Flag of a completion: more will follow.
pub(crate) const MORE: u32 = 1 << 1;

/// `struct io_uring_sqe`, with the room for commands of file systems (`SQE128`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Sqe {
    pub(crate) opcode: u8,
    pub(crate) flags: u8,
    pub(crate) ioprio: u16,
    pub(crate) fd: i32,
    pub(crate) off: u64,
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) op_flags: u32,
    pub(crate) user_data: u64,
    pub(crate) buf_index: u16,
    pub(crate) personality: u16,
    pub(crate) file_index: u32,
    pub(crate) cmd: [u64; 10],
}

impl Sqe {
    pub(crate) const EMPTY: Sqe = Sqe {
        opcode: 0,
        flags: 0,
        ioprio: 0,
        fd: -1,
        off: 0,
        addr: 0,
        len: 0,
        op_flags: 0,
        user_data: 0,
        buf_index: 0,
        personality: 0,
        file_index: 0,
        cmd: [0; 10],
    };
}

const _: () = assert!(size_of::<Sqe>() == 128);

/// `struct io_uring_cqe`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Cqe {
    pub(crate) user_data: u64,
    pub(crate) res: i32,
    pub(crate) flags: u32,
}

/// `struct io_sqring_offsets` and `struct io_cqring_offsets`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Offsets {
    head: u32,
    tail: u32,
    ring_mask: u32,
    ring_entries: u32,
    /// `flags` of the submission ring; `overflow` of the completion ring.
    fifth: u32,
    /// `dropped` of the submission ring; `cqes` of the completion ring.
    sixth: u32,
    rest: [u32; 4],
}

/// `struct io_uring_params`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Params {
    sq_entries: u32,
    cq_entries: u32,
    flags: u32,
    sq_thread_cpu: u32,
    sq_thread_idle: u32,
    features: u32,
    wq_fd: u32,
    resv: [u32; 3],
    sq_off: Offsets,
    cq_off: Offsets,
}

const _: () = assert!(size_of::<Params>() == 120);

/// `struct io_uring_restriction`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Restriction {
    opcode: u16,
    subject: u8,
    resv: u8,
    resv2: [u32; 3],
}

/// `struct io_uring_getevents_arg`.
#[repr(C)]
struct GetEvents {
    sigmask: u64,
    sigmask_sz: u32,
    min_wait_usec: u32,
    ts: u64,
}

#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

impl Mapping {
    fn new(ring: &OwnedFd, offset: u64, length: usize) -> Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                flags,
                ring,
                offset,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Mapping { start, length })
    }

    /// A pointer to the `T` at `offset`, for [`IoUring`] only.
    fn at<T>(&self, offset: u32) -> Result<NonNull<T>> {
        let offset = offset as usize;
        let inside = offset
            .checked_add(size_of::<T>())
            .is_some_and(|end| end <= self.length);
        if !inside || !offset.is_multiple_of(align_of::<T>()) {
            return Err(Errno::INVAL);
        }
        // SAFETY: inside the mapping, as checked above.
        Ok(unsafe { self.start.add(offset) }.cast())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let start: *mut c_void = self.start.as_ptr().cast();
        // SAFETY: the mapping is this value's, and pointers into it are the ring's, which is being dropped.
        let _ = unsafe { rustix::mm::munmap(start, self.length) };
    }
}

#[derive(Debug)]
pub(crate) struct IoUring {
    fd: OwnedFd,
    // Mapped as long as the pointers below exist.
    _rings: Mapping,
    _entries: Mapping,
    sq_head: NonNull<AtomicU32>,
    sq_tail: NonNull<AtomicU32>,
    sq_size: u32,
    sqes: NonNull<Sqe>,
    cq_head: NonNull<AtomicU32>,
    cq_tail: NonNull<AtomicU32>,
    cq_mask: u32,
    cqes: NonNull<Cqe>,
    /// Pushed, and not submitted yet.
    pushed: u32,
}

// SAFETY: the pointers lead to mappings that move along; the ring is bound to a thread only once it is
// enabled, and then refuses other threads (EEXIST).
unsafe impl Send for IoUring {}

impl IoUring {
    /// A disabled ring with room for `entries` submissions. Completions arrive only while its thread waits
    /// for them (`DEFER_TASKRUN`).
    ///
    /// # Errors
    /// EPERM or EACCES where rings are forbidden (`kernel.io_uring_disabled`, a filter), ENOSYS
    /// without io_uring, EINVAL where a flag is not known, ENOMEM, EMFILE.
    pub(crate) fn new(entries: u32) -> Result<IoUring> {
        let layout = SETUP_R_DISABLED | SETUP_SUBMIT_ALL | SETUP_SQE128 | SETUP_NO_SQARRAY;
        let deferred = SETUP_DEFER_TASKRUN | SETUP_TASKRUN_FLAG | SETUP_SINGLE_ISSUER;
        let mut params = Params {
            flags: layout | deferred,
            ..Params::default()
        };
        // SAFETY: the kernel reads and writes one structure that lives across the call.
        let fd =
            check(unsafe { libc::syscall(libc::SYS_io_uring_setup, entries, &raw mut params) })?;
        let fd = i32::try_from(fd).map_err(|_| Errno::BADF)?;
        // SAFETY: a descriptor that was just made for us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        if params.features & FEAT_SINGLE_MMAP == 0 {
            return Err(Errno::INVAL);
        }
        let (sq, cq) = (params.sq_off, params.cq_off);
        let completions = params.cq_entries as usize * size_of::<Cqe>();
        let rings = Mapping::new(&fd, OFF_SQ_RING, cq.sixth as usize + completions)?;
        let room = params.sq_entries as usize * size_of::<Sqe>();
        let entries = Mapping::new(&fd, OFF_SQES, room)?;
        Ok(IoUring {
            sq_head: rings.at(sq.head)?,
            sq_tail: rings.at(sq.tail)?,
            sq_size: params.sq_entries,
            sqes: entries.at(0)?,
            cq_head: rings.at(cq.head)?,
            cq_tail: rings.at(cq.tail)?,
            cq_mask: params.cq_entries - 1,
            cqes: rings.at(cq.sixth)?,
            pushed: 0,
            fd,
            _rings: rings,
            _entries: entries,
        })
    }

    fn register(&self, operation: u32, argument: *const c_void, count: usize) -> Result<()> {
        let fd = self.fd.as_raw_fd();
        // SAFETY: callers below pass an array of `count` structures that lives across the call, or
        // nothing; the kernel reads it.
        check(unsafe { libc::syscall(libc::SYS_io_uring_register, fd, operation, argument, count) })
            .map(drop)
    }

    /// Restricts the ring to these operations, and forbids further registrations once it is enabled.
    ///
    /// # Errors
    /// EBADFD when it is enabled already.
    pub(crate) fn restrict_to(&self, operations: &[u8]) -> Result<()> {
        let flags = Restriction {
            opcode: RESTRICTION_SQE_FLAGS_ALLOWED,
            subject: FIXED_FILE,
            ..Restriction::default()
        };
        let operation = |subject: &u8| Restriction {
            opcode: RESTRICTION_SQE_OP,
            subject: *subject,
            ..Restriction::default()
        };
        let mut list: Vec<Restriction> = operations.iter().map(operation).collect();
        list.push(flags);
        self.register(REGISTER_RESTRICTIONS, list.as_ptr().cast(), list.len())
    }

    /// Registers files, which entries then name by their indices ([`FIXED_FILE`]).
    ///
    /// # Errors
    /// EMFILE, ENOMEM, EBUSY when there are some already.
    pub(crate) fn register_files(&self, files: &[i32]) -> Result<()> {
        self.register(REGISTER_FILES, files.as_ptr().cast(), files.len())
    }

    /// Binds the ring to the calling thread.
    ///
    /// # Errors
    /// EBADFD when it is enabled already.
    pub(crate) fn enable(&self) -> Result<()> {
        self.register(REGISTER_ENABLE_RINGS, std::ptr::null(), 0)
    }

    /// Adds an entry to the submission queue. False when it is full: submit first.
    ///
    /// # Safety
    /// What the entry points at must be valid, and the kernel's, until its last completion.
    pub(crate) unsafe fn push(&mut self, entry: &Sqe) -> bool {
        if self.pushed == self.sq_size {
            return false;
        }
        // SAFETY: of the mapping, see `new`.
        let tail = unsafe { self.sq_tail.as_ref() };
        let at = tail.load(Ordering::Relaxed);
        let place = at & (self.sq_size - 1);
        // SAFETY: one of `sq_size` entries of the mapping.
        let target = unsafe { self.sqes.add(place as usize) };
        // SAFETY: the kernel does not use it: it has consumed all that were submitted, and fewer than
        // `sq_size` were not.
        unsafe { target.write(*entry) };
        tail.store(at.wrapping_add(1), Ordering::Release);
        self.pushed += 1;
        true
    }

    /// Submits, and waits until there are `wanted` completions or `timeout` is over.
    ///
    /// # Errors
    /// EINTR, ETIME, and others of `io_uring_enter(2)`.
    pub(crate) fn enter(&mut self, wanted: u32, timeout: Option<Duration>) -> Result<()> {
        let time = timeout.map(|timeout| {
            // `struct __kernel_timespec`.
            [timeout.as_secs(), u64::from(timeout.subsec_nanos())]
        });
        let argument = GetEvents {
            sigmask: 0,
            sigmask_sz: 0,
            min_wait_usec: 0,
            ts: time
                .as_ref()
                .map_or(0, |time| std::ptr::from_ref(time) as u64),
        };
        let (flags, pointer, size) = match time {
            Some(_) => (
                ENTER_EXT_ARG,
                (&raw const argument).cast(),
                size_of::<GetEvents>(),
            ),
            None => (0, std::ptr::null::<c_void>(), 0),
        };
        // SAFETY: the kernel reads the argument and the time, which live across the call. `push`'s callers
        // answer for what the entries point at.
        let answer = check(unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.fd.as_raw_fd(),
                self.pushed,
                wanted,
                flags | ENTER_GETEVENTS,
                pointer,
                size,
            )
        });
        // The kernel's index shows what it took, even when the wait has failed afterwards.
        // SAFETY: of the mapping, see `new`.
        let head = unsafe { self.sq_head.as_ref() };
        // SAFETY: the same.
        let tail = unsafe { self.sq_tail.as_ref() };
        let (head, tail) = (head.load(Ordering::Acquire), tail.load(Ordering::Relaxed));
        self.pushed = tail.wrapping_sub(head);
        answer.map(drop)
    }

    pub(crate) fn has_pushed(&self) -> bool {
        self.pushed > 0
    }

    /// The next completion, without consuming it.
    pub(crate) fn peek(&self) -> Option<Cqe> {
        // SAFETY: of the mapping, see `new`.
        let head = unsafe { self.cq_head.as_ref() };
        // SAFETY: the same.
        let tail = unsafe { self.cq_tail.as_ref() };
        let at = head.load(Ordering::Relaxed);
        if at == tail.load(Ordering::Acquire) {
            return None;
        }
        let place = (at & self.cq_mask) as usize;
        // SAFETY: one of the ring's completions, of the mapping.
        let source = unsafe { self.cqes.add(place) };
        // SAFETY: the kernel wrote it before it moved the tail, and waits for the head to move.
        Some(unsafe { source.read() })
    }

    pub(crate) fn pop(&mut self) -> Option<Cqe> {
        let completion = self.peek()?;
        // SAFETY: of the mapping, see `new`.
        let head = unsafe { self.cq_head.as_ref() };
        let next = head.load(Ordering::Relaxed).wrapping_add(1);
        head.store(next, Ordering::Release);
        Some(completion)
    }
}
