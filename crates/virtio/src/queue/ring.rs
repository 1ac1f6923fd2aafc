//! One virtqueue: takes available buffers, returns used ones, and decides on notifications.
//!
//! **Writers.** The driver writes the descriptors and the available ring, its index last, and `used_event`.
//! The device writes the used ring the same way (only in [`VirtqueueRing::complete`]), and `avail_event`.
//! Each side publishes its index, executes a full fence and then reads the other's event, so that at least
//! one of the two sees the other's store.
//!
//! **Heads in use** are recorded: a head that becomes available again before it was returned would be two
//! requests with one id, so the ring is broken then.

use super::chain::{Chain, ChainFault, DESCRIPTOR_BYTES};
use super::table::ChainTable;
use crate::journal::{Again, Tracker};
use crate::memory::{DirtyLog, Extent, Outside, Regions};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

const USED_FLAG_NO_NOTIFY: u16 = 1;
const AVAILABLE_FLAG_NO_INTERRUPT: u16 = 1;

/// Bytes before the elements of the available and of the used ring: flags and index.
const RING_HEAD_BYTES: usize = 4;
const AVAILABLE_ELEMENT_BYTES: usize = 2;
const USED_ELEMENT_BYTES: usize = 8;

/// Why a queue cannot be served any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// Its tables are not in the guest's memory, or not aligned.
    #[error("a queue that is not in the guest's memory")]
    Outside,
    /// Its size is no power of two, or zero.
    #[error("a queue of an impossible size")]
    Size,
    /// The available index is more than the queue's size ahead.
    #[error("a queue with more requests than it has room for")]
    Overrun,
    /// An available head is beyond the table.
    #[error("a queue that names a descriptor it does not have")]
    NoSuchDescriptor,
    /// An available head is still in use.
    #[error("a queue that names a descriptor which is in use")]
    InUse,
}

impl From<Outside> for Broken {
    fn from(_: Outside) -> Broken {
        Broken::Outside
    }
}

/// The place of a queue, in front-end (user) addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VirtqueueLayout {
    /// Number of descriptors: a power of two, 32768 at most.
    pub size: u16,
    /// Address of the descriptor table.
    pub descriptors: u64,
    /// Address of the available ring.
    pub available: u64,
    /// Address of the used ring.
    pub used: u64,
}

/// The negotiated features of queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VirtqueueFeatures {
    /// `VIRTIO_RING_F_EVENT_IDX`: each side says at which index it wants a notification.
    pub event_index: bool,
    /// `VIRTIO_RING_F_INDIRECT_DESC`: a descriptor may name a table.
    pub indirect: bool,
}

/// Logs the writes of a queue.
#[derive(Clone, Debug)]
pub struct VirtqueueLog {
    /// The log.
    pub log: Arc<DirtyLog>,
    /// Guest address of the used ring, if writes to it are logged too.
    pub used: Option<u64>,
}

/// The three parts, within one table of regions.
#[derive(Clone, Copy, Debug, Default)]
struct Places {
    descriptors: Extent,
    available: Extent,
    used: Extent,
}

impl Places {
    fn find(layout: &VirtqueueLayout, regions: &Regions) -> Result<Places, Broken> {
        let size = usize::from(layout.size);
        // Two bytes for the event index, which exist without the feature too.
        let ring_bytes = |element_bytes| RING_HEAD_BYTES + element_bytes * size + 2;
        let available_bytes = ring_bytes(AVAILABLE_ELEMENT_BYTES);
        let used_bytes = ring_bytes(USED_ELEMENT_BYTES);
        let places = Places {
            descriptors: regions.locate_user(layout.descriptors, DESCRIPTOR_BYTES * size)?,
            available: regions.locate_user(layout.available, available_bytes)?,
            used: regions.locate_user(layout.used, used_bytes)?,
        };
        let is_aligned = |extent: &Extent, bytes| {
            let mapping = regions.mapping(extent)?;
            Ok::<_, Outside>(mapping.is_aligned(extent.offset, bytes))
        };
        let aligned = is_aligned(&places.descriptors, DESCRIPTOR_BYTES)?
            && is_aligned(&places.available, 2)?
            && is_aligned(&places.used, 4)?;
        if !aligned {
            return Err(Broken::Outside);
        }
        Ok(places)
    }
}

/// Reads the available index, from any thread.
#[derive(Clone, Debug)]
pub(crate) struct AvailableIndex {
    regions: Arc<Regions>,
    available: Extent,
}

impl AvailableIndex {
    /// Whether the index is not `next`. A hint: [`VirtqueueRing::has_available`] checks.
    pub(crate) fn sees_more_than(&self, next: u16) -> bool {
        let mapping = self.regions.mapping(&self.available);
        let index =
            mapping.map(|mapping| mapping.load_u16(self.available.offset + 2, Ordering::Relaxed));
        matches!(index, Ok(Ok(index)) if u16::from_le(index) != next)
    }
}

/// A split virtqueue, as the device has it. The default is a placeholder without memory.
#[derive(Debug, Default)]
pub struct VirtqueueRing {
    regions: Arc<Regions>,
    layout: VirtqueueLayout,
    features: VirtqueueFeatures,
    places: Places,
    /// Next entry of the available ring to be taken.
    next_available: u16,
    seen_available: u16,
    /// Next entry of the used ring to be filled.
    next_used: u16,
    /// Used index at the last decision on a notification.
    notified_used: u16,
    /// Of each head, whether it was taken and not returned.
    in_use: Box<[bool]>,
    log: Option<VirtqueueLog>,
    /// The same, for the process that resumes this queue.
    tracker: Tracker,
}

impl VirtqueueRing {
    /// A queue in `regions`, from the available index `base` on.
    ///
    /// # Errors
    ///
    /// When it is not in that memory, or its size or alignment is invalid.
    pub fn new(
        regions: Arc<Regions>,
        layout: VirtqueueLayout,
        features: VirtqueueFeatures,
        base: u16,
    ) -> Result<VirtqueueRing, Broken> {
        if !layout.size.is_power_of_two() {
            return Err(Broken::Size);
        }
        let places = Places::find(&layout, &regions)?;
        let mut ring = VirtqueueRing {
            regions,
            layout,
            features,
            places,
            next_available: base,
            seen_available: base,
            in_use: vec![false; usize::from(layout.size)].into(),
            ..VirtqueueRing::default()
        };
        ring.next_used = ring.load(&places.used, 2, Ordering::Relaxed)?;
        ring.notified_used = ring.next_used;
        Ok(ring)
    }

    /// The guest's memory.
    pub fn regions(&self) -> &Arc<Regions> {
        &self.regions
    }

    /// Replaces the table of regions. Chains that were read with the old one keep it.
    ///
    /// # Errors
    ///
    /// When the queue is not in that memory.
    pub fn set_regions(&mut self, regions: Arc<Regions>) -> Result<(), Broken> {
        self.places = Places::find(&self.layout, &regions)?;
        self.regions = regions;
        Ok(())
    }

    /// Sets the log of writes.
    pub fn set_log(&mut self, log: Option<VirtqueueLog>) {
        self.log = log;
    }

    /// The log in which to mark a reply before it is [completed](Self::complete).
    pub fn log(&self) -> Option<&DirtyLog> {
        self.log.as_ref().map(|log| &*log.log)
    }

    /// Logs `length` bytes written at `at` in the used ring.
    fn note_used(&self, at: usize, length: usize) {
        if let Some(VirtqueueLog {
            log,
            used: Some(used),
        }) = &self.log
        {
            log.mark(used.saturating_add(at as u64), length);
        }
    }

    /// The used index.
    pub fn next_used(&self) -> u16 {
        self.next_used
    }

    /// The available index from which to continue elsewhere.
    pub fn next_available(&self) -> u16 {
        self.next_available
    }

    /// Whether a request is available.
    pub fn has_available(&mut self) -> Result<bool, Broken> {
        if self.seen_available == self.next_available {
            // Acquire: the entries and descriptors were written before the index.
            let index = self.load_available(2, Ordering::Acquire)?;
            if index.wrapping_sub(self.next_available) > self.layout.size {
                return Err(Broken::Overrun);
            }
            self.seen_available = index;
        }
        Ok(self.seen_available != self.next_available)
    }

    /// Takes the next head. Each must be passed to [`complete`](Self::complete).
    pub fn take(&mut self) -> Result<Option<u16>, Broken> {
        if !self.has_available()? {
            return Ok(None);
        }
        let slot = usize::from(self.next_available % self.layout.size);
        let at = RING_HEAD_BYTES + slot * AVAILABLE_ELEMENT_BYTES;
        let head = self.load_available(at, Ordering::Relaxed)?;
        self.mark(head)?;
        self.tracker.take(head);
        self.next_available = self.next_available.wrapping_add(1);
        Ok(Some(head))
    }

    /// Records requests in flight in `tracker` from now on, beginning with `heads`.
    pub(crate) fn track(&mut self, mut tracker: Tracker, heads: &[u16]) {
        tracker.begin(self.next_used, heads);
        self.tracker = tracker;
    }

    /// Resumes a queue that another process has begun with, if one has. Returns the requests that it left in
    /// flight, which count as taken, to be replayed and [completed](Self::complete).
    pub(crate) fn take_over(
        &mut self,
        mut tracker: Tracker,
        base: Option<u16>,
    ) -> Result<Vec<Again>, Broken> {
        let Some(again) = tracker.recover(self.next_used, base) else {
            self.track(tracker, &[]);
            return Ok(Vec::new());
        };
        for Again { head, .. } in &again {
            self.mark(*head)?;
        }
        self.tracker = tracker;
        self.next_available = self.next_used.wrapping_add(again.len() as u16);
        self.seen_available = self.next_available;
        Ok(again)
    }

    /// Records that another device took `head` before it handed over this queue.
    pub(crate) fn note_taken(&mut self, head: u16) {
        self.tracker.take(head);
    }

    pub(crate) fn tracker(&self) -> &Tracker {
        &self.tracker
    }

    /// Marks a head as in use that was taken before this queue was restarted.
    ///
    /// # Errors
    ///
    /// When it is beyond the table or in use.
    pub fn mark(&mut self, head: u16) -> Result<(), Broken> {
        let in_use = self.in_use.get_mut(usize::from(head));
        if std::mem::replace(in_use.ok_or(Broken::NoSuchDescriptor)?, true) {
            return Err(Broken::InUse);
        }
        Ok(())
    }

    /// Marks no head as in use.
    pub fn unmark_all(&mut self) {
        self.in_use.fill(false);
    }

    /// Reads chains, until [other regions](Self::set_regions) are set.
    pub(crate) fn chains(&self) -> ChainTable {
        ChainTable {
            descriptors: self.places.descriptors,
            size: self.layout.size,
            indirect: self.features.indirect,
        }
    }

    /// Reads the chain of `head` into `chain`.
    pub fn read_chain(&self, head: u16, chain: &mut Chain) -> Result<(), ChainFault> {
        self.chains().read(&self.regions, head, chain)
    }

    /// Pending requests, as of the last [`has_available`](Self::has_available).
    pub(crate) fn waiting(&self) -> u16 {
        self.seen_available.wrapping_sub(self.next_available)
    }

    pub(crate) fn available_index(&self) -> AvailableIndex {
        AvailableIndex {
            regions: Arc::clone(&self.regions),
            available: self.places.available,
        }
    }

    /// Returns `head` with `length` bytes written. The guest can see it at once;
    /// [`needs_notification`](Self::needs_notification) says whether it is to be notified.
    pub fn complete(&mut self, head: u16, length: u32) -> Result<(), Broken> {
        if let Some(in_use) = self.in_use.get_mut(usize::from(head)) {
            *in_use = false;
        }
        let slot = usize::from(self.next_used % self.layout.size);
        let element = RING_HEAD_BYTES + slot * USED_ELEMENT_BYTES;
        let at = self.places.used.offset + element;
        let mapping = self.regions.mapping(&self.places.used)?;
        mapping.store_u32(at, u32::from(head).to_le())?;
        mapping.store_u32(at + 4, length.to_le())?;
        self.note_used(element, USED_ELEMENT_BYTES);
        self.next_used = self.next_used.wrapping_add(1);
        self.tracker.begin_to_give_back(head);
        // Release: the reply and the element are visible before the index.
        self.store_used(2, self.next_used, Ordering::Release)?;
        self.tracker.gave_back(head, self.next_used);
        Ok(())
    }

    /// Whether the guest wants a used buffer notification for what was returned since the last call.
    pub fn needs_notification(&mut self) -> Result<bool, Broken> {
        if self.notified_used == self.next_used {
            return Ok(false);
        }
        // The store of the used index before the load of the guest's event.
        fence(Ordering::SeqCst);
        let wanted = if self.features.event_index {
            let at = RING_HEAD_BYTES + usize::from(self.layout.size) * AVAILABLE_ELEMENT_BYTES;
            let event = self.load_available(at, Ordering::Relaxed)?;
            has_passed(event, self.notified_used, self.next_used)
        } else {
            let flags = self.load_available(0, Ordering::Relaxed)?;
            flags & AVAILABLE_FLAG_NO_INTERRUPT == 0
        };
        self.notified_used = self.next_used;
        Ok(wanted)
    }

    /// Asks for no kicks while the device polls.
    pub fn disable_kicks(&mut self) -> Result<(), Broken> {
        // With the event index: the last event has passed, so no kick comes.
        if self.features.event_index {
            return Ok(());
        }
        self.store_used(0, USED_FLAG_NO_NOTIFY, Ordering::Relaxed)
    }

    /// Asks for a kick with the next available request. True when there is one already, for which no kick
    /// may come.
    pub fn enable_kicks(&mut self) -> Result<bool, Broken> {
        if self.features.event_index {
            let at = RING_HEAD_BYTES + usize::from(self.layout.size) * USED_ELEMENT_BYTES;
            self.store_used(at, self.next_available, Ordering::Relaxed)?;
        } else {
            self.store_used(0, 0, Ordering::Relaxed)?;
        }
        // The store of the event before the last load of the available index.
        fence(Ordering::SeqCst);
        self.has_available()
    }

    fn load_available(&self, at: usize, order: Ordering) -> Result<u16, Broken> {
        self.load(&self.places.available, at, order)
    }

    fn load(&self, extent: &Extent, at: usize, order: Ordering) -> Result<u16, Broken> {
        let mapping = self.regions.mapping(extent)?;
        Ok(u16::from_le(mapping.load_u16(extent.offset + at, order)?))
    }

    fn store_used(&self, at: usize, value: u16, order: Ordering) -> Result<(), Broken> {
        let extent = &self.places.used;
        let mapping = self.regions.mapping(extent)?;
        mapping.store_u16(extent.offset + at, value.to_le(), order)?;
        self.note_used(at, size_of::<u16>());
        Ok(())
    }
}

/// `vring_need_event`: whether the index passed `event` on its way from `old` to `new` (virtio 1.2, 2.7.7.2).
fn has_passed(event: u16, old: u16, new: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}
