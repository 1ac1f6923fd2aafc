//! The driver's side of a split virtqueue (virtio 1.2, section 2.7).
//!
//! The driver writes the descriptor table and the available ring, the device writes the used ring; the event
//! index at the end of each ring belongs to the other side. The driver's own indices are in private memory and
//! are never read back.

use super::memory::SharedMemory;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Flags of a descriptor (`VIRTQ_DESC_F_*`).
pub mod descriptor_flags {
    /// There is another after it.
    pub const NEXT: u16 = 1;
    /// The device may write it, not read it.
    pub const WRITE: u16 = 2;
    /// It points at a table of descriptors.
    pub const INDIRECT: u16 = 4;
}

/// A descriptor, as it lies in the table (`struct virtq_desc`). Little-endian.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct RawDescriptor {
    /// Where the buffer is, in the guest's address space.
    pub address: u64,
    /// Its length in bytes.
    pub length: u32,
    /// [`descriptor_flags`].
    pub flags: u16,
    /// The index of the next descriptor of the chain.
    pub next: u16,
}

/// `VIRTQ_USED_F_NO_NOTIFY`: the device wants no kicks.
const NO_NOTIFY: u16 = 1;

/// Each ring begins on a page of its own: driver and device never write to the same cache line.
const RING_ALIGNMENT: usize = 4096;

const DESCRIPTOR_BYTES: usize = size_of::<RawDescriptor>();
/// Flags and index, before the entries of either ring.
const RING_HEADER_BYTES: usize = 4;
const AVAILABLE_ENTRY_BYTES: usize = 2;
const USED_ENTRY_BYTES: usize = 8;

/// Offsets of the three parts of a queue in the memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DriverRingLayout {
    pub(crate) size: u16,
    pub(crate) descriptors: usize,
    pub(crate) available: usize,
    pub(crate) used: usize,
    pub(crate) end: usize,
}

impl DriverRingLayout {
    /// From `start` (a multiple of [`RING_ALIGNMENT`]) on.
    pub(crate) fn new(start: usize, size: u16) -> DriverRingLayout {
        let entries = usize::from(size);
        let after = |end: usize| end.next_multiple_of(RING_ALIGNMENT);
        let available = after(start + entries * DESCRIPTOR_BYTES);
        let used = after(available + RING_HEADER_BYTES + entries * AVAILABLE_ENTRY_BYTES + 2);
        let end = after(used + RING_HEADER_BYTES + entries * USED_ENTRY_BYTES + 2);
        DriverRingLayout {
            size,
            descriptors: start,
            available,
            used,
            end,
        }
    }

    fn used_event(&self) -> usize {
        self.available + RING_HEADER_BYTES + usize::from(self.size) * AVAILABLE_ENTRY_BYTES
    }

    fn available_event(&self) -> usize {
        self.used + RING_HEADER_BYTES + usize::from(self.size) * USED_ENTRY_BYTES
    }

    fn slot(&self, index: u16) -> usize {
        // Queue sizes are powers of two.
        usize::from(index & (self.size - 1))
    }
}

/// An element of the used ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedElement {
    /// The head of the returned chain. Not checked.
    pub id: u32,
    /// Bytes written, as the device claims.
    pub length: u32,
}

/// The device's used index is more than the ring's size ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexJumped;

pub(crate) struct DriverRing {
    memory: Arc<SharedMemory>,
    layout: DriverRingLayout,
    event_index: bool,
    /// The index of the next chain to be made available.
    available: u16,
    /// `available` at the last decision on a kick.
    announced: u16,
    /// The index of the next used element to be read.
    used: u16,
}

impl DriverRing {
    /// Rings that begin at index `base`: that of GET_VRING_BASE, or 0 for new ones.
    pub(crate) fn new(
        memory: Arc<SharedMemory>,
        layout: DriverRingLayout,
        event_index: bool,
        base: u16,
    ) -> DriverRing {
        let ring = DriverRing {
            memory,
            layout,
            event_index,
            available: base,
            announced: base,
            used: base,
        };
        ring.memory
            .store_u16(layout.available + 2, base, Ordering::Relaxed);
        ring.memory
            .store_u16(layout.used + 2, base, Ordering::Release);
        ring
    }

    pub(crate) fn size(&self) -> u16 {
        self.layout.size
    }

    pub(crate) fn layout(&self) -> DriverRingLayout {
        self.layout
    }

    pub(crate) fn move_to(&mut self, memory: &Arc<SharedMemory>) {
        self.memory = Arc::clone(memory);
    }

    pub(crate) fn put_descriptor(&self, index: u16, descriptor: &RawDescriptor) {
        let offset = self.layout.descriptors + self.layout.slot(index) * DESCRIPTOR_BYTES;
        self.memory.write(offset, descriptor.as_bytes());
    }

    pub(crate) fn publish(&mut self, head: u16) {
        let entry = self.layout.available
            + RING_HEADER_BYTES
            + self.layout.slot(self.available) * AVAILABLE_ENTRY_BYTES;
        self.memory.store_u16(entry, head, Ordering::Relaxed);
        self.available = self.available.wrapping_add(1);
        // Release: the chain and the entry are visible before the index.
        self.memory
            .store_u16(self.layout.available + 2, self.available, Ordering::Release);
    }

    /// Whether the device wants a kick for what was published since the last call.
    pub(crate) fn needs_kick(&mut self) -> bool {
        let old = std::mem::replace(&mut self.announced, self.available);
        if old == self.available {
            return false;
        }
        // The store of our index before the load of the device's event; the device does the reverse.
        fence(Ordering::SeqCst);
        if self.event_index {
            let event = self
                .memory
                .load_u16(self.layout.available_event(), Ordering::Relaxed);
            is_due(event, self.available, old)
        } else {
            self.memory.load_u16(self.layout.used, Ordering::Relaxed) & NO_NOTIFY == 0
        }
    }

    pub(crate) fn next_used(&mut self) -> Result<Option<UsedElement>, IndexJumped> {
        let ready = self.used_index().wrapping_sub(self.used);
        if ready == 0 {
            return Ok(None);
        }
        if ready > self.layout.size {
            return Err(IndexJumped);
        }
        let entry =
            self.layout.used + RING_HEADER_BYTES + self.layout.slot(self.used) * USED_ENTRY_BYTES;
        self.used = self.used.wrapping_add(1);
        Ok(Some(UsedElement {
            id: self.memory.load_u32(entry),
            length: self.memory.load_u32(entry + 4),
        }))
    }

    pub(crate) fn used_index(&self) -> u16 {
        // Acquire: the element and the reply were written before the index.
        self.memory
            .load_u16(self.layout.used + 2, Ordering::Acquire)
    }

    /// Asks for a call with the next used chain. True when there is one already: do not sleep then.
    pub(crate) fn arm(&mut self) -> bool {
        if self.event_index {
            let event = self.layout.used_event();
            self.memory.store_u16(event, self.used, Ordering::Relaxed);
        } else {
            let flags = self.layout.available;
            self.memory.store_u16(flags, 0, Ordering::Relaxed);
        }
        // The store of our event before the load of the device's index; the device does the reverse.
        fence(Ordering::SeqCst);
        self.used_index() != self.used
    }
}

/// `vring_need_event`: whether an index passed `event` on its way from `old` to `new` (section 2.7.10).
fn is_due(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}
