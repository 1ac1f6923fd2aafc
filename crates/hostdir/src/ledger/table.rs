//! A table of records in the memory, mapped as far as it is used.

use super::memory::Memory;
use super::records::{RecordChunks, Shape, USED};
use rustix::fs::FallocateFlags;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use thrufs_sys::shared_memory::records::{Shared, SharedRecords, Stated};

pub(super) struct Table<R> {
    memory: Arc<Memory>,
    shape: Shape<R>,
    chunks: RecordChunks<R>,
}

impl<R: Shared> Table<R> {
    pub(super) fn new(memory: &Arc<Memory>, shape: Shape<R>) -> Table<R> {
        Table {
            memory: Arc::clone(memory),
            shape,
            chunks: RecordChunks::new(),
        }
    }

    /// The record at `index`, if it is mapped.
    #[inline]
    pub(super) fn at(&self, index: u32) -> Option<&Stated<R>> {
        self.chunks.get(index)
    }

    /// The record at `index`, mapped if need be; `None` beyond the end, or without memory.
    pub(super) fn at_or_grow(&self, index: u32) -> Option<&Stated<R>> {
        if u64::from(index) >= self.shape.records_max {
            return None;
        }
        self.chunks.get_or_make(index, |chunk, records| {
            let (offset, count) = (self.offset(records.start), records.end - records.start);
            let made = SharedRecords::new(self.memory.as_fd(), offset, count as usize);
            let used = &self.memory.header().chunks[self.shape.number];
            made.ok().inspect(|_| used.raise(chunk as u64 + 1))
        })
    }

    /// The record at `index`, to be written. Without room, the ledger is incomplete from now on.
    pub(super) fn to_write(&self, index: u32) -> Option<&Stated<R>> {
        self.memory.begin();
        let record = self.at_or_grow(index);
        record.or_else(|| self.memory.incomplete())
    }

    /// Fills a free record, and stores its state last. If `fill` returns `None`, the ledger is incomplete from now on.
    pub(super) fn commit(
        &self,
        index: u32,
        state: u64,
        fill: impl FnOnce(&R) -> Option<()>,
    ) -> Option<()> {
        let record = self.to_write(index)?;
        fill(record).or_else(|| self.memory.incomplete())?;
        record.state.store(state);
        Some(())
    }

    /// Frees a record. Keeps the generation, so that no id is used again.
    pub(super) fn free(&self, id: u64) {
        if let Some(record) = self.at(id as u32)
            && record.state.load() >> 32 == id >> 32
        {
            record.state.store((id >> 32) << 32);
        }
    }

    /// Gives the memory of free records back.
    pub(super) fn give_back(&self, records: &Range<u32>) {
        let at = self.offset(u64::from(records.start));
        let bytes = self.offset(u64::from(records.end)) - at;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if let Err(error) = rustix::fs::fallocate(self.memory.as_fd(), flags, at, bytes) {
            tracing::debug!(%error, "cannot give memory of the ledger back");
        }
    }

    fn offset(&self, record: u64) -> u64 {
        self.shape.start + record * size_of::<Stated<R>>() as u64
    }

    /// Maps all chunks that an earlier process has used. Visits each record in use, with its state; returns the
    /// highest generation. Fails without memory.
    pub(super) fn each<'a>(&'a self, mut found: impl FnMut(u32, &'a R, u64)) -> io::Result<u32> {
        let used = self.memory.header().chunks[self.shape.number].load();
        let chunks =
            (0..usize::try_from(used).unwrap_or(usize::MAX)).map(RecordChunks::<R>::values);
        for first in chunks.take_while(|&first| first < self.shape.records_max) {
            let mapped = self.at_or_grow(first as u32);
            mapped.ok_or(io::ErrorKind::OutOfMemory)?;
        }
        let mut highest = 0;
        for (index, record) in self.chunks.iter() {
            let state = record.state.load();
            highest = highest.max((state >> 32) as u32);
            if state & USED != 0 {
                found(index, record, state);
            }
        }
        Ok(highest)
    }
}
