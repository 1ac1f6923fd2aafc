//! Records in shared memory: structures of atomic words, at their places in a mapping.
//!
//! # Safety
//! A record is [`Shared`]: [`Word`]s alone, laid out as in C. So it has no padding, any bytes are valid for it,
//! and a reference to it permits no access but atomic ones, whatever other processes store meanwhile.
//! [`shared_records!`](crate::shared_records) declares records and checks their fields; nothing else implements
//! the trait outside of this module. A borrow of [`SharedRecords`] keeps them mapped. Truncating the file is as for
//! every [`SharedMapping`]: accesses end the process by SIGBUS.

use super::SharedMapping;
use rustix::io::{Errno, Result};
use std::marker::PhantomData;
use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// What may lie in memory that other processes write to.
///
/// # Safety
/// Of [`Word`]s alone, as `repr(C)`.
pub unsafe trait Shared {}

/// A number of 64 bits. Stores are seen in their order (release, acquire).
#[repr(transparent)]
pub struct Word(AtomicU64);

impl Word {
    /// The number.
    pub fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Replaces the number.
    pub fn store(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    /// Adds to the number, wrapping around.
    pub fn add(&self, value: u64) {
        self.0.fetch_add(value, Ordering::AcqRel);
    }

    /// Raises the number to `value` if it is less.
    pub fn raise(&self, value: u64) {
        self.0.fetch_max(value, Ordering::AcqRel);
    }
}

/// Room for eight times `WORDS` bytes.
#[repr(transparent)]
pub struct Bytes<const WORDS: usize>([Word; WORDS]);

impl<const WORDS: usize> Bytes<WORDS> {
    /// How many bytes there is room for.
    pub const ROOM: usize = WORDS * size_of::<Word>();

    /// Stores bytes from the first on; `None` if there is no room for them.
    pub fn put(&self, bytes: &[u8]) -> Option<()> {
        let words = self.0.get(..bytes.len().div_ceil(size_of::<Word>()))?;
        for (word, bytes) in words.iter().zip(bytes.chunks(size_of::<Word>())) {
            let mut value = [0; size_of::<Word>()];
            value[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(value));
        }
        Some(())
    }

    /// The first `length` bytes; `None` if there are not so many.
    pub fn get(&self, length: u64) -> Option<Vec<u8>> {
        let length = usize::try_from(length)
            .ok()
            .filter(|&it| it <= Self::ROOM)?;
        let words = self.0[..length.div_ceil(size_of::<Word>())].iter();
        let mut bytes: Vec<u8> = words.flat_map(|word| word.load().to_ne_bytes()).collect();
        bytes.truncate(length);
        Some(bytes)
    }
}

/// A record behind its state. The record is there if the state says so, which is stored last when the record is
/// filled, and first when it is freed.
#[repr(C)]
pub struct Stated<R> {
    /// The state.
    pub state: Word,
    record: R,
}

impl<R> Deref for Stated<R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.record
    }
}

// SAFETY: an atomic, transparently.
unsafe impl Shared for Word {}
// SAFETY: an array of words, transparently.
unsafe impl<const WORDS: usize> Shared for Bytes<WORDS> {}
// SAFETY: an array has no padding between its elements.
unsafe impl<T: Shared, const COUNT: usize> Shared for [T; COUNT] {}
// SAFETY: two fields of the same alignment, as in C.
unsafe impl<R: Shared> Shared for Stated<R> {}

/// Declares records, each of [`Word`](crate::shared_memory::records::Word)s and what is made of them.
#[macro_export]
macro_rules! shared_records {
    ($($(#[$about:meta])* struct $name:ident {
        $($(#[$of_field:meta])* $field:ident: $type:ty,)+
    })+) => { $(
        $(#[$about])*
        #[repr(C)]
        pub(crate) struct $name {
            $($(#[$of_field])* pub(crate) $field: $type,)+
        }

        // SAFETY: as in C, of fields that are `Shared`.
        unsafe impl $crate::shared_memory::records::Shared for $name
        where
            $($type: $crate::shared_memory::records::Shared,)+
        {
        }
    )+ };
}

/// Records of a file, mapped shared.
pub struct SharedRecords<R> {
    mapping: SharedMapping,
    count: usize,
    records: PhantomData<R>,
}

impl<R: Shared> SharedRecords<R> {
    /// Maps `count` records of `file` from byte `offset` on.
    ///
    /// # Errors
    /// EINVAL for none, for a part of a word, and beyond the file's end; EOVERFLOW; those of `mmap(2)`.
    pub fn new(file: BorrowedFd<'_>, offset: u64, count: usize) -> Result<Self> {
        if !offset.is_multiple_of(size_of::<Word>() as u64) {
            return Err(Errno::INVAL);
        }
        let length = count.checked_mul(size_of::<R>()).ok_or(Errno::OVERFLOW)?;
        Ok(Self {
            mapping: SharedMapping::new(file, offset, length)?,
            count,
            records: PhantomData,
        })
    }
}

impl<R: Shared> Deref for SharedRecords<R> {
    type Target = [R];

    fn deref(&self) -> &[R] {
        // SAFETY: so many records were mapped, at a multiple of a word's size, and stay mapped while `self` is
        // borrowed. They are atomics, for which all bytes are valid.
        unsafe { std::slice::from_raw_parts(self.mapping.start.as_ptr().cast(), self.count) }
    }
}
