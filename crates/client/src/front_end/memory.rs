//! The memory that both sides map: a guest's, as far as the server can tell.
//!
//! The server may change any byte of it at any time. It is therefore never looked at through
//! references: every access here is an atomic load or store of one number, or a volatile copy to or
//! from private memory, by the checked calls of `vm-memory`. Nothing read from it is trusted as an
//! index, and what this side must remember it keeps in memory of its own.

use rustix::fs::{MemfdFlags, SealFlags};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use vhost::VhostUserMemoryRegionInfo;
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory, VolatileSlice};

/// Where the memory lies for the guest: not at zero, so that offsets taken for addresses are found
/// out.
const GUEST_BASE: u64 = 1 << 32;

/// Offsets are computed from a layout that was checked against the length when it was made.
const LAID_OUT: &str = "offsets lie within the memory that was laid out";

/// A sealed memfd, mapped.
pub(crate) struct SharedMemory {
    region: MmapRegion,
    file: File,
}

impl SharedMemory {
    /// `length` bytes (rounded up to whole pages) of zeroes, which take room when they are touched.
    pub(crate) fn new(length: usize) -> io::Result<SharedMemory> {
        let length = length.next_multiple_of(rustix::param::page_size());
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create("thrufs-client", flags)?);
        file.set_len(length as u64)?;
        // A server that cut it off would kill this process by SIGBUS.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let mapped = FileOffset::new(file.try_clone()?, 0);
        let region = MmapRegion::from_file(mapped, length).map_err(io::Error::other)?;
        Ok(SharedMemory { region, file })
    }

    /// Bytes of it.
    pub(crate) fn length(&self) -> usize {
        self.region.size()
    }

    /// Where an offset is for the guest: what descriptors hold.
    pub(crate) fn guest_address(&self, offset: usize) -> u64 {
        GUEST_BASE + offset as u64
    }

    /// Where an offset is in this process: what the messages that place rings hold.
    pub(crate) fn user_address(&self, offset: usize) -> u64 {
        self.region.as_ptr() as u64 + offset as u64
    }

    /// The entry of the memory table. The descriptor in it is this value's.
    pub(crate) fn table_entry(&self) -> VhostUserMemoryRegionInfo {
        VhostUserMemoryRegionInfo {
            guest_phys_addr: GUEST_BASE,
            memory_size: self.length() as u64,
            userspace_addr: self.user_address(0),
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
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
    }

    pub(crate) fn load_u32(&self, offset: usize) -> u32 {
        let order = Ordering::Relaxed;
        self.all().load(offset, order).expect(LAID_OUT)
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        self.all().write_slice(bytes, offset).expect(LAID_OUT);
    }

    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.all().read_slice(bytes, offset).expect(LAID_OUT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_cannot_be_cut_off() {
        let memory = SharedMemory::new(5000).unwrap();
        assert_eq!(memory.length(), 8192);
        memory.write(4990, b"across");
        let mut back = [0; 6];
        memory.read(4990, &mut back);
        assert_eq!(&back, b"across");
        memory.store_u16(8, 0x1234, Ordering::Release);
        assert_eq!(memory.load_u16(8, Ordering::Acquire), 0x1234);
        assert_eq!(memory.load_u32(8), 0x1234);
        assert!(memory.file.set_len(100).is_err());
        let entry = memory.table_entry();
        assert_eq!(entry.memory_size, 8192);
        assert_ne!(memory.guest_address(0), memory.user_address(0));
    }
}
