//! Memory that other processes write to at any time, mapped here.
//!
//! A virtual machine's memory is a descriptor of the process that runs it. Its guest writes to it while we
//! read, our own threads may write to the same bytes for two requests of a hostile guest, and the owner of
//! the file may truncate it.
//!
//! # Safety
//! A [`SharedMapping`] owns its mapping from `mmap` to `munmap`; a borrow of it keeps it mapped.
//!
//! * **No reference to its bytes exists**, except to atomics, so nothing is assumed of their contents. They are
//!   accessed by atomic loads and stores of one to eight bytes, through references that live no longer than
//!   one access (or than a borrow of [`records`]), and by system calls that are given addresses. The result is a copy,
//!   which no other process can change; any bit pattern is valid for what is copied. Other processes'
//!   accesses are outside of the language's memory model; those of our own threads are atomic, so
//!   overlapping ones are no data races.
//! * **Every access is checked** to lie within the mapping, and to be aligned where it is of several bytes;
//!   otherwise it fails with [`Outside`]. So do stores to a mapping that is only for reading.
//! * **Truncating the file** makes accesses fault: the system calls fail with EFAULT, loads and stores end
//!   the process by SIGBUS. Files that are too short are refused at first; truncating one later ends only
//!   the process that serves its owner. The same holds for mappings [beyond the end of a
//!   file](SharedMapping::with); [`SharedMapping::read_bytes`] and [`SharedMapping::write_bytes`] copy by
//!   system calls.

#![allow(unsafe_code)]

pub mod records;

use crate::raw::check;
use rustix::io::{Errno, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Most spans of one system call (`IOV_MAX`).
pub const SPANS_MAX: usize = 1024;

/// `HUGETLBFS_MAGIC`, whose files are mapped in whole huge pages only.
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;

/// An access that is not within the mapping, or not aligned to its size, or a store to a mapping for reading.
/// Nothing was accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outside;

type Within<T> = std::result::Result<T, Outside>;

/// What a mapping is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading (`PROT_READ`).
    Read,
    /// Reading and writing (`PROT_READ | PROT_WRITE`).
    ReadWrite,
}

/// A part of a file, mapped shared.
pub struct SharedMapping {
    start: NonNull<u8>,
    length: usize,
    access: Access,
    /// The mapping, in whole pages.
    whole: NonNull<u8>,
    whole_length: usize,
}

// SAFETY: the mapping belongs to the value, wherever that is; there is no thread-bound state.
unsafe impl Send for SharedMapping {}
// SAFETY: shared borrows access the bytes by atomics and system calls alone.
unsafe impl Sync for SharedMapping {}

/// Bytes of a mapping, for [`read_at`] and [`write_at`].
#[derive(Clone, Copy)]
pub struct Span<'a> {
    vector: libc::iovec,
    mapping: PhantomData<&'a SharedMapping>,
}

impl Span<'_> {
    /// How many bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.vector.iov_len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.vector.iov_len == 0
    }
}

impl fmt::Debug for Span<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Span({} bytes)", self.len())
    }
}

impl SharedMapping {
    /// Maps `length` bytes of `file` from `offset` on, for reading and writing. The descriptor may be closed
    /// afterwards.
    ///
    /// # Errors
    /// EINVAL for zero, for more than `isize::MAX`, and beyond the file's end; those of `mmap(2)`.
    pub fn new(file: BorrowedFd<'_>, offset: u64, length: usize) -> Result<Self> {
        let end = offset.checked_add(length as u64).ok_or(Errno::INVAL)?;
        let size = rustix::fs::fstat(file)?.st_size;
        if u64::try_from(size).map_or(true, |size| end > size) {
            return Err(Errno::INVAL);
        }
        Self::with(file, offset, length, Access::ReadWrite)
    }

    /// As [`new`](Self::new), for `access`, and also beyond the file's end. There, loads and stores end the
    /// process by SIGBUS, and system calls fail with EFAULT.
    ///
    /// # Errors
    /// EINVAL for zero and for more than `isize::MAX`; those of `mmap(2)`.
    pub fn with(file: BorrowedFd<'_>, offset: u64, length: usize, access: Access) -> Result<Self> {
        if length == 0 {
            return Err(Errno::INVAL);
        }
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        let page = page_size_of(file)?;
        let before = offset % page;
        let whole_length = (before + length as u64)
            .checked_next_multiple_of(page)
            .and_then(|whole| usize::try_from(whole).ok())
            .filter(|&whole| isize::try_from(whole).is_ok())
            .ok_or(Errno::INVAL)?;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let whole = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                whole_length,
                protection,
                MapFlags::SHARED | MapFlags::NORESERVE,
                file,
                offset - before,
            )
        }?;
        // A guest's memory does not belong into core dumps.
        // SAFETY: advice on what was just mapped, which changes no byte.
        let _ = unsafe { rustix::mm::madvise(whole, whole_length, Advice::LinuxDontDump) };
        let whole = NonNull::new(whole.cast::<u8>()).ok_or(Errno::NOMEM)?;
        // SAFETY: `before` is less than a page, and a page or more was mapped.
        let start = unsafe { whole.add(before as usize) };
        Ok(Self {
            start,
            length,
            access,
            whole,
            whole_length,
        })
    }

    /// How many bytes are mapped.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Never: empty mappings do not exist.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The address of `length` bytes at `offset`.
    fn place(&self, offset: usize, length: usize) -> Option<*mut u8> {
        let end = offset.checked_add(length)?;
        if end > self.length {
            return None;
        }
        // SAFETY: within the mapping, or at its end for no bytes.
        Some(unsafe { self.start.as_ptr().add(offset) })
    }

    /// The atomic of type `T` at `offset`.
    fn atomic<T: Atomic>(&self, offset: usize) -> Within<&T> {
        let place = self.place(offset, size_of::<T>()).ok_or(Outside)?;
        let place = place.cast::<T>();
        if !place.is_aligned() {
            return Err(Outside);
        }
        // SAFETY: aligned, within a mapping that is readable as long as `self` is borrowed, and accessed by
        // atomics alone, of which only loads where it is not writable.
        Ok(unsafe { &*place })
    }

    /// As [`atomic`](Self::atomic), for stores.
    fn atomic_to_store<T: Atomic>(&self, offset: usize) -> Within<&T> {
        match self.access {
            Access::Read => Err(Outside),
            Access::ReadWrite => self.atomic(offset),
        }
    }

    /// The address in this process, as a number that other processes are told.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.start.as_ptr().addr() as u64
    }

    /// Whether `offset` is aligned to so many bytes, a power of two.
    #[must_use]
    pub fn is_aligned(&self, offset: usize, bytes: usize) -> bool {
        let address = (self.start.as_ptr().addr()).wrapping_add(offset);
        address & bytes.wrapping_sub(1) == 0
    }

    /// Loads the 16 bits at `offset`.
    pub fn load_u16(&self, offset: usize, order: Ordering) -> Within<u16> {
        Ok(self.atomic::<AtomicU16>(offset)?.load(order))
    }

    /// Stores 16 bits at `offset`.
    pub fn store_u16(&self, offset: usize, value: u16, order: Ordering) -> Within<()> {
        self.atomic_to_store::<AtomicU16>(offset)?
            .store(value, order);
        Ok(())
    }

    /// Stores 32 bits at `offset`, unordered (relaxed).
    pub fn store_u32(&self, offset: usize, value: u32) -> Within<()> {
        self.atomic_to_store::<AtomicU32>(offset)?
            .store(value, Ordering::Relaxed);
        Ok(())
    }

    /// Loads the 64 bits at `offset`.
    pub fn load_u64(&self, offset: usize, order: Ordering) -> Within<u64> {
        Ok(self.atomic::<AtomicU64>(offset)?.load(order))
    }

    /// Stores 64 bits at `offset`.
    pub fn store_u64(&self, offset: usize, value: u64, order: Ordering) -> Within<()> {
        self.atomic_to_store::<AtomicU64>(offset)?
            .store(value, order);
        Ok(())
    }

    /// Sets bits of the byte at `offset`, ordered after all earlier accesses (release).
    pub fn set_bits(&self, offset: usize, bits: u8) -> Within<()> {
        self.atomic_to_store::<AtomicU8>(offset)?
            .fetch_or(bits, Ordering::SeqCst);
        Ok(())
    }

    /// Copies bytes at `offset` to `target`.
    pub fn copy_out(&self, offset: usize, target: &mut [u8]) -> Within<()> {
        let (head, words) = self.split(offset, target.len())?;
        let (first, rest) = target.split_at_mut(head);
        self.load_bytes(offset, first)?;
        let (middle, last) = rest.split_at_mut(words * WORD_BYTES);
        let mut at = offset + head;
        for word in middle.chunks_exact_mut(WORD_BYTES) {
            let value = self.atomic::<AtomicU64>(at)?.load(Ordering::Relaxed);
            word.copy_from_slice(&value.to_ne_bytes());
            at += WORD_BYTES;
        }
        self.load_bytes(at, last)
    }

    /// Copies `source` to the bytes at `offset`.
    pub fn copy_in(&self, offset: usize, source: &[u8]) -> Within<()> {
        let (head, words) = self.split(offset, source.len())?;
        let (first, rest) = source.split_at(head);
        self.store_bytes(offset, first)?;
        let (middle, last) = rest.split_at(words * WORD_BYTES);
        let mut at = offset + head;
        for word in middle.chunks_exact(WORD_BYTES) {
            let mut value = [0; WORD_BYTES];
            value.copy_from_slice(word);
            self.atomic_to_store::<AtomicU64>(at)?
                .store(u64::from_ne_bytes(value), Ordering::Relaxed);
            at += WORD_BYTES;
        }
        self.store_bytes(at, last)
    }

    /// Copies bytes at `offset` to `target` by a system call, `process_vm_readv(2)` of this process: memory that
    /// is gone or beyond the end of the file is an error, not a signal.
    ///
    /// # Errors
    /// EINVAL outside of the mapping; EFAULT when not all bytes can be read, of which some may be copied.
    pub fn read_bytes(&self, offset: usize, target: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < target.len() {
            let rest = &mut target[done..];
            let place = self.place(offset + done, rest.len());
            let remote = vector(place.ok_or(Errno::INVAL)?, rest.len());
            let local = vector(rest.as_mut_ptr(), rest.len());
            // SAFETY: the kernel writes to `rest`, which is borrowed for it, and reads memory of the mapping,
            // of which nothing is assumed.
            let count = unsafe { libc::process_vm_readv(own_id(), &local, 1, &remote, 1, 0) };
            done += some(check(count as libc::c_long))?;
        }
        Ok(())
    }

    /// Copies `source` to the bytes at `offset` by a system call, as [`read_bytes`](Self::read_bytes).
    ///
    /// # Errors
    /// EINVAL outside of the mapping; EFAULT when not all bytes can be written, of which some may be: beyond the
    /// end of the file, and in a mapping for reading.
    pub fn write_bytes(&self, offset: usize, source: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < source.len() {
            let rest = &source[done..];
            let place = self.place(offset + done, rest.len());
            let remote = vector(place.ok_or(Errno::INVAL)?, rest.len());
            let local = vector(rest.as_ptr().cast_mut(), rest.len());
            // SAFETY: the kernel reads `rest`, which is borrowed for it, and writes to memory of the mapping,
            // to which no reference exists.
            let count = unsafe { libc::process_vm_writev(own_id(), &local, 1, &remote, 1, 0) };
            done += some(check(count as libc::c_long))?;
        }
        Ok(())
    }

    /// The bytes before the first whole word of `length` bytes at `offset`, and the whole words.
    fn split(&self, offset: usize, length: usize) -> Within<(usize, usize)> {
        let place = self.place(offset, length).ok_or(Outside)?;
        let head = place.align_offset(WORD_BYTES).min(length);
        Ok((head, (length - head) / WORD_BYTES))
    }

    fn load_bytes(&self, offset: usize, target: &mut [u8]) -> Within<()> {
        for (number, byte) in target.iter_mut().enumerate() {
            *byte = self
                .atomic::<AtomicU8>(offset + number)?
                .load(Ordering::Relaxed);
        }
        Ok(())
    }

    fn store_bytes(&self, offset: usize, source: &[u8]) -> Within<()> {
        for (number, byte) in source.iter().enumerate() {
            self.atomic_to_store::<AtomicU8>(offset + number)?
                .store(*byte, Ordering::Relaxed);
        }
        Ok(())
    }

    /// `length` bytes at `offset`, for a system call.
    pub fn span(&self, offset: usize, length: usize) -> Within<Span<'_>> {
        let place = self.place(offset, length).ok_or(Outside)?;
        Ok(Span {
            vector: libc::iovec {
                iov_base: place.cast(),
                iov_len: length,
            },
            mapping: PhantomData,
        })
    }
}

const WORD_BYTES: usize = size_of::<u64>();

const fn vector(start: *mut u8, length: usize) -> libc::iovec {
    libc::iovec {
        iov_base: start.cast(),
        iov_len: length,
    }
}

fn own_id() -> libc::pid_t {
    rustix::process::getpid().as_raw_pid()
}

/// A count of copied bytes, of which there was at least one.
fn some(copied: Result<usize>) -> Result<usize> {
    copied.and_then(|count| {
        if count == 0 {
            Err(Errno::FAULT)
        } else {
            Ok(count)
        }
    })
}

/// Types that any bytes are valid for, and that others may write to meanwhile.
trait Atomic {}
impl Atomic for AtomicU8 {}
impl Atomic for AtomicU16 {}
impl Atomic for AtomicU32 {}
impl Atomic for AtomicU64 {}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and no span of it outlives it. Unmapping what was
        // mapped does not fail.
        let _ = unsafe { rustix::mm::munmap(self.whole.as_ptr().cast(), self.whole_length) };
    }
}

impl fmt::Debug for SharedMapping {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SharedMapping({} bytes)", self.length)
    }
}

/// The page size of `file`'s mappings: the unit of their offsets and lengths.
fn page_size_of(file: BorrowedFd<'_>) -> Result<u64> {
    let page = rustix::param::page_size() as u64;
    let system = rustix::fs::fstatfs(file)?;
    if system.f_type as u64 != HUGETLBFS_MAGIC {
        return Ok(page);
    }
    let huge = u64::try_from(system.f_bsize).unwrap_or(page);
    Ok(huge.max(page))
}

/// Vectors of a system call. 16 KiB that are not moved: that would cost more than most calls.
type Vectors = [MaybeUninit<libc::iovec>; SPANS_MAX];

const NO_VECTORS: Vectors = [const { MaybeUninit::uninit() }; SPANS_MAX];

/// Writes the vectors of the first [`SPANS_MAX`] spans to `vectors`, and returns their number.
fn put_spans<'a>(
    vectors: &mut Vectors,
    spans: impl IntoIterator<Item = Span<'a>>,
) -> (*const libc::iovec, libc::c_int) {
    let mut count = 0;
    for (place, span) in vectors.iter_mut().zip(spans) {
        place.write(span.vector);
        count += 1;
    }
    (vectors.as_ptr().cast(), count)
}

fn signed(offset: u64) -> Result<i64> {
    i64::try_from(offset).map_err(|_| Errno::INVAL)
}

/// `preadv2(2)` into the first [`SPANS_MAX`] of `spans`, with `RWF_NOWAIT` if `no_wait`.
///
/// # Errors
/// The system call's; EFAULT when memory of the mapping is gone.
pub fn read_at<'a>(
    file: BorrowedFd<'_>,
    spans: impl IntoIterator<Item = Span<'a>>,
    offset: u64,
    no_wait: bool,
) -> Result<usize> {
    let mut vectors = NO_VECTORS;
    let (start, count) = put_spans(&mut vectors, spans);
    let flags = if no_wait { libc::RWF_NOWAIT } else { 0 };
    let offset = signed(offset)?;
    // SAFETY: `count` vectors were written, and each describes bytes of a mapping that its span borrows
    // across the call; nothing is assumed of those bytes.
    let answer = unsafe { libc::preadv2(file.as_raw_fd(), start, count, offset, flags) };
    check(answer as libc::c_long)
}

/// `pwritev2(2)` of the first [`SPANS_MAX`] of `spans`.
///
/// # Errors
/// The system call's; EFAULT when memory of the mapping is gone.
pub fn write_at<'a>(
    file: BorrowedFd<'_>,
    spans: impl IntoIterator<Item = Span<'a>>,
    offset: u64,
) -> Result<usize> {
    let mut vectors = NO_VECTORS;
    let (start, count) = put_spans(&mut vectors, spans);
    let offset = signed(offset)?;
    // SAFETY: as for `read_at`; the kernel reads the bytes once.
    let answer = unsafe { libc::pwritev2(file.as_raw_fd(), start, count, offset, 0) };
    check(answer as libc::c_long)
}

#[cfg(test)]
mod tests;
