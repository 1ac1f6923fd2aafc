//! Records of one size in shared memory, mapped as far as they are used.

use parking_lot::Mutex;
use rustix::io::{Errno, Result};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use thrufs_sys::shared_memory::{Outside, SharedMapping};

/// Records in the first chunk; chunk `k` has `FIRST << k`.
const FIRST: u64 = 1024;
/// More chunks than any table has.
const CHUNKS_MAX: usize = 14;

/// The header before the tables: a multiple of any page size.
const HEADER_BYTES: u64 = 64 * 1024;
/// Where the header has the number of used chunks of each table.
const CHUNKS_AT: usize = 64;

/// Where the header has the highest generation of records that were given back.
pub(super) const GENERATIONS_AT: usize = 128;

/// First word of the header: these eight bytes, of which the last is the version.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"THRULED\x02");
pub(super) const MAGIC_AT: usize = 0;
/// Set once something could not be recorded.
pub(super) const INCOMPLETE_AT: usize = 8;

#[derive(Clone, Copy)]
pub(super) struct Shape {
    number: usize,
    record_bytes: usize,
    chunks: usize,
    start: u64,
}

const fn shape(number: usize, record_bytes: usize, chunks: usize, start: u64) -> Shape {
    Shape {
        number,
        record_bytes,
        chunks,
        start,
    }
}

impl Shape {
    const fn records_max(&self) -> u64 {
        (FIRST << self.chunks) - FIRST
    }

    const fn end(&self) -> u64 {
        self.start + self.records_max() * self.record_bytes as u64
    }
}

pub(super) const NODES: Shape = shape(0, 64, 14, HEADER_BYTES);
pub(super) const PLACES: Shape = shape(1, 704, 14, NODES.end());
pub(super) const FILES: Shape = shape(2, 64, 10, PLACES.end());
pub(super) const DIRECTORIES: Shape = shape(3, 64, 10, FILES.end());
pub(super) const OWNERS: Shape = shape(4, 64, 4, DIRECTORIES.end());
pub(super) const MOUNTS: Shape = shape(5, 320, 3, OWNERS.end());
pub(super) const NAMES: Shape = shape(6, 296, 14, MOUNTS.end());
pub(super) const TELLINGS: Shape = shape(7, 32, 1, NAMES.end());

pub(super) const LEDGER_BYTES: u64 = TELLINGS.end();

pub(super) struct Table {
    shape: Shape,
    chunks: [OnceLock<SharedMapping>; CHUNKS_MAX],
    growing: Mutex<()>,
}

#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    mapping: &'a SharedMapping,
    at: usize,
}

impl Record<'_> {
    pub(super) fn load(&self, offset: usize) -> u64 {
        let loaded = self.mapping.load_u64(self.at + offset, Ordering::Acquire);
        loaded.unwrap_or(0)
    }

    pub(super) fn store(&self, offset: usize, value: u64) {
        let stored = self
            .mapping
            .store_u64(self.at + offset, value, Ordering::Release);
        debug_assert_eq!(stored, Ok(()));
    }

    pub(super) fn add(&self, offset: usize, value: u64) {
        let added = self
            .mapping
            .add_u64(self.at + offset, value, Ordering::AcqRel);
        debug_assert!(added.is_ok());
    }

    pub(super) fn put(&self, offset: usize, bytes: &[u8]) {
        let put = self.mapping.copy_in(self.at + offset, bytes);
        debug_assert_eq!(put, Ok(()));
    }

    pub(super) fn get(&self, offset: usize, bytes: &mut [u8]) -> std::result::Result<(), Outside> {
        self.mapping.copy_out(self.at + offset, bytes)
    }
}

impl Table {
    pub(super) fn new(shape: Shape) -> Table {
        Table {
            shape,
            chunks: std::array::from_fn(|_| OnceLock::new()),
            growing: Mutex::new(()),
        }
    }

    fn place(&self, index: u32) -> (usize, usize) {
        let shifted = u64::from(index) + FIRST;
        let chunk = (shifted / FIRST).ilog2();
        let offset = (shifted - (FIRST << chunk)) as usize;
        (chunk as usize, offset * self.shape.record_bytes)
    }

    /// Where records are in the memory: the first byte, and how many.
    pub(super) fn bytes_of(&self, records: &Range<u32>) -> (u64, u64) {
        let bytes = self.shape.record_bytes as u64;
        let count = u64::from(records.end - records.start);
        (
            self.shape.start + u64::from(records.start) * bytes,
            count * bytes,
        )
    }

    /// The most records of this table.
    pub(super) fn records_max(&self) -> u64 {
        self.shape.records_max()
    }

    /// The record at `index`, if it is mapped.
    #[inline]
    pub(super) fn at(&self, index: u32) -> Option<Record<'_>> {
        let (chunk, at) = self.place(index);
        let mapping = self.chunks.get(chunk)?.get()?;
        Some(Record { mapping, at })
    }

    /// The record at `index`, mapped if need be; `None` beyond the end, or without memory.
    pub(super) fn at_or_grow(
        &self,
        index: u32,
        memory: BorrowedFd<'_>,
        header: &SharedMapping,
    ) -> Option<Record<'_>> {
        if let Some(record) = self.at(index) {
            return Some(record);
        }
        let (chunk, _) = self.place(index);
        if chunk >= self.shape.chunks {
            return None;
        }
        self.grow(chunk, memory, header).ok()?;
        self.at(index)
    }

    #[cold]
    fn grow(&self, chunk: usize, memory: BorrowedFd<'_>, header: &SharedMapping) -> Result<()> {
        let _growing = self.growing.lock();
        if self.chunks[chunk].get().is_none() {
            let mapping = self.map(chunk, memory)?;
            let word = CHUNKS_AT + self.shape.number * 8;
            let used = header.load_u64(word, Ordering::Acquire).unwrap_or(0);
            let used = used.max(chunk as u64 + 1);
            let _ = header.store_u64(word, used, Ordering::Release);
            let _ = self.chunks[chunk].set(mapping);
        }
        Ok(())
    }

    fn map(&self, chunk: usize, memory: BorrowedFd<'_>) -> Result<SharedMapping> {
        let record_bytes = self.shape.record_bytes as u64;
        let first = (FIRST << chunk) - FIRST;
        let offset = self.shape.start + first * record_bytes;
        let length = usize::try_from((FIRST << chunk) * record_bytes);
        SharedMapping::new(memory, offset, length.map_err(|_| Errno::OVERFLOW)?)
    }

    /// Maps all chunks that an earlier process has used; returns how many records those are.
    pub(super) fn map_used(&self, memory: BorrowedFd<'_>, header: &SharedMapping) -> Result<u32> {
        let word = CHUNKS_AT + self.shape.number * 8;
        let used = header.load_u64(word, Ordering::Acquire).unwrap_or(0);
        let used =
            usize::try_from(used).map_or(self.shape.chunks, |used| used.min(self.shape.chunks));
        for chunk in 0..used {
            self.grow(chunk, memory, header)?;
        }
        Ok(((FIRST << used) - FIRST) as u32)
    }
}

pub(super) fn map_header(memory: BorrowedFd<'_>) -> Result<SharedMapping> {
    SharedMapping::new(memory, 0, 4096)
}
