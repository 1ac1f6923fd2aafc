//! The guest's memory, which both sides map.
//!
//! The server may change any byte at any time. So there are no references into it: each access is an atomic
//! load or store of one number, or a volatile copy to or from private memory, by the checked calls of
//! `vm-memory`. Nothing read from it is trusted as an index, and this side's state is in private memory.

use rustix::fs::{MemfdFlags, SealFlags};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vhost::{VhostUserDirtyLogRegion, VhostUserMemoryRegionInfo};
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory, VolatileSlice};

/// The guest address of the memory: not zero, so that an offset mistaken for an address is an error.
const GUEST_BASE: u64 = 1 << 32;

/// Page size of dirty logs.
pub(crate) const PAGE_BYTES: usize = 4096;

/// The offset of a log in its file: not zero, for the same reason.
const LOG_AT: usize = PAGE_BYTES;

/// Never fails: offsets come from a layout within the length.
const LAID_OUT: &str = "offsets lie within the memory that was laid out";

pub(crate) struct SharedMemory {
    region: MmapRegion,
    file: File,
    /// Whether this side records the pages that it writes.
    tracks: AtomicBool,
    /// The pages written by this side, a bit each.
    written: Box<[AtomicU64]>,
}

impl SharedMemory {
    /// `length` bytes of zeroes, rounded up to whole pages and allocated when touched.
    pub(crate) fn new(length: usize) -> io::Result<SharedMemory> {
        let length = length.next_multiple_of(rustix::param::page_size());
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create("thrufs-client", flags)?);
        file.set_len(length as u64)?;
        // A server that truncated it would kill this process by SIGBUS.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let mapped = FileOffset::new(file.try_clone()?, 0);
        let region = MmapRegion::from_file(mapped, length).map_err(io::Error::other)?;
        let words = (length / PAGE_BYTES).div_ceil(64);
        Ok(SharedMemory {
            region,
            file,
            tracks: AtomicBool::new(false),
            written: (0..words).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    /// Memory for a log of all pages that a device writes to `memory`.
    pub(crate) fn log_of(memory: &SharedMemory) -> io::Result<SharedMemory> {
        let pages = memory.guest_address(memory.length()) as usize / PAGE_BYTES;
        SharedMemory::new(LOG_AT + pages.div_ceil(64) * size_of::<u64>())
    }

    pub(crate) fn length(&self) -> usize {
        self.region.size()
    }

    /// The guest address of an offset, as in descriptors.
    pub(crate) fn guest_address(&self, offset: usize) -> u64 {
        GUEST_BASE + offset as u64
    }

    /// The user address of an offset, as in SET_VRING_ADDR.
    pub(crate) fn user_address(&self, offset: usize) -> u64 {
        self.region.as_ptr() as u64 + offset as u64
    }

    /// The entry of the memory table. Borrows the file descriptor.
    pub(crate) fn table_entry(&self) -> VhostUserMemoryRegionInfo {
        VhostUserMemoryRegionInfo {
            guest_phys_addr: GUEST_BASE,
            memory_size: self.length() as u64,
            userspace_addr: self.user_address(0),
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        }
    }

    /// The argument of SET_LOG_BASE for a [log](Self::log_of). Borrows the file descriptor.
    pub(crate) fn log_place(&self) -> VhostUserDirtyLogRegion {
        VhostUserDirtyLogRegion {
            mmap_size: (self.length() - LOG_AT) as u64,
            mmap_offset: LOG_AT as u64,
            mmap_handle: self.file.as_raw_fd(),
        }
    }

    /// Takes the logged page numbers within `memory`. Others, which a server may have marked, are ignored.
    pub(crate) fn take_logged(&self, memory: &SharedMemory) -> Vec<usize> {
        let first = memory.guest_address(0) as usize / PAGE_BYTES;
        let mut pages = Vec::new();
        for at in (LOG_AT..self.length()).step_by(size_of::<u64>()) {
            let all = self.all();
            let word: &AtomicU64 = all.get_atomic_ref(at).expect(LAID_OUT);
            let bits = u64::from_le(word.swap(0, Ordering::SeqCst));
            let page = (at - LOG_AT) * 8;
            let logged = (0..64).filter(|bit| bits >> bit & 1 != 0);
            let within = logged.filter_map(|bit| (page + bit).checked_sub(first));
            pages.extend(within.filter(|page| page * PAGE_BYTES < memory.length()));
        }
        pages
    }

    /// Sets whether this side records the pages that it writes.
    pub(crate) fn track(&self, tracks: bool) {
        self.tracks.store(tracks, Ordering::SeqCst);
    }

    fn note(&self, offset: usize, length: usize) {
        if !self.tracks.load(Ordering::Relaxed) || length == 0 {
            return;
        }
        for page in offset / PAGE_BYTES..=(offset + length - 1) / PAGE_BYTES {
            self.written[page / 64].fetch_or(1 << (page % 64), Ordering::Relaxed);
        }
    }

    /// Takes the numbers of the pages written by this side.
    pub(crate) fn take_written(&self) -> Vec<usize> {
        let mut pages = Vec::new();
        for (index, word) in self.written.iter().enumerate() {
            let bits = word.swap(0, Ordering::Relaxed);
            pages.extend(
                (0..64)
                    .filter(|bit| bits >> bit & 1 != 0)
                    .map(|bit| index * 64 + bit),
            );
        }
        pages
    }

    /// Copies a page of `source` to the same offset.
    pub(crate) fn copy_page(&self, source: &SharedMemory, page: usize) {
        let mut bytes = [0; PAGE_BYTES];
        source.read(page * PAGE_BYTES, &mut bytes);
        self.write(page * PAGE_BYTES, &bytes);
    }

    pub(crate) fn fill(&self, byte: u8) {
        let bytes = [byte; PAGE_BYTES];
        for page in 0..self.length() / PAGE_BYTES {
            self.write(page * PAGE_BYTES, &bytes);
        }
    }

    fn all(&self) -> VolatileSlice<'_> {
        self.region.as_volatile_slice()
    }

    pub(crate) fn load_u16(&self, offset: usize, order: Ordering) -> u16 {
        self.all().load(offset, order).expect(LAID_OUT)
    }

    pub(crate) fn store_u16(&self, offset: usize, value: u16, order: Ordering) {
        self.all().store(value, offset, order).expect(LAID_OUT);
        self.note(offset, size_of::<u16>());
    }

    pub(crate) fn load_u32(&self, offset: usize) -> u32 {
        let order = Ordering::Relaxed;
        self.all().load(offset, order).expect(LAID_OUT)
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        self.all().write_slice(bytes, offset).expect(LAID_OUT);
        self.note(offset, bytes.len());
    }

    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.all().read_slice(bytes, offset).expect(LAID_OUT);
    }
}
