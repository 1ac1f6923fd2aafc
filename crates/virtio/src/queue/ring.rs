//! One queue: taking what is available, giving back what was used, and when to tell whom.
//!
//! **Who writes what.** The guest writes the descriptors and the available ring, with the index up to
//! which it is filled, last; and, at the end of it, the used index from which on it wants to be told.
//! We write the used ring in the same manner ([`Ring::complete`] is the only place), and at its end the
//! available index from which on we want to be told. Each side publishes its index and then looks at
//! what the other wants, with a full fence between the two; so one of the two always sees the other.
//!
//! **What is under way** is kept per descriptor: a head that is taken again before it was given back
//! would have two requests share one place of the used ring's accounts, so the ring is broken then.

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

/// Why a queue cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// Its tables are not in the guest's memory, or not aligned.
    #[error("a queue that is not in the guest's memory")]
    Outside,
    /// Its size is no power of two, or zero.
    #[error("a queue of an impossible size")]
    Size,
    /// The guest says that it has made more available than the queue has room for.
    #[error("a queue with more requests than it has room for")]
    Overrun,
    /// The guest made a descriptor available that is not in the table.
    #[error("a queue that names a descriptor it does not have")]
    NoSuchDescriptor,
    /// The guest made a descriptor available that we still have.
    #[error("a queue that names a descriptor which is in use")]
    InUse,
}

impl From<Outside> for Broken {
    fn from(_: Outside) -> Broken {
        Broken::Outside
    }
}

impl From<thrufs_sys::shared_memory::Outside> for Broken {
    fn from(_: thrufs_sys::shared_memory::Outside) -> Broken {
        Broken::Outside
    }
}

/// Where a queue is, in the front end's addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// How many descriptors it has: a power of two, 32768 at most.
    pub size: u16,
    /// Where the descriptors are.
    pub descriptors: u64,
    /// Where the available ring is.
    pub available: u64,
    /// Where the used ring is.
    pub used: u64,
}

/// What was agreed on about queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingFeatures {
    /// `VIRTIO_RING_F_EVENT_IDX`: both sides say when they want to be told next.
    pub event_index: bool,
    /// `VIRTIO_RING_F_INDIRECT_DESC`: a descriptor may stand for a table.
    pub indirect: bool,
}

/// Where it is noted what is written for a queue.
#[derive(Clone, Debug)]
pub struct RingLog {
    /// The log.
    pub log: Arc<DirtyLog>,
    /// The guest's address of the used ring, if writes to that are to be noted too.
    pub used: Option<u64>,
}

/// The three tables, in one table of regions.
#[derive(Clone, Copy, Debug)]
struct Places {
    descriptors: Extent,
    available: Extent,
    used: Extent,
}

impl Places {
    fn find(layout: &Layout, regions: &Regions) -> Result<Places, Broken> {
        let size = usize::from(layout.size);
        // Two bytes for the event index, which are there whether they are used or not.
        let ring_bytes = |element_bytes| RING_HEAD_BYTES + element_bytes * size + 2;
        let available_bytes = ring_bytes(AVAILABLE_ELEMENT_BYTES);
        let used_bytes = ring_bytes(USED_ELEMENT_BYTES);
        let places = Places {
            descriptors: regions.locate_user(layout.descriptors, DESCRIPTOR_BYTES * size)?,
            available: regions.locate_user(layout.available, available_bytes)?,
            used: regions.locate_user(layout.used, used_bytes)?,
        };
        // Found out here, not in the midst of serving.
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

/// Looks at the guest's index, which anybody may do.
#[derive(Clone, Debug)]
pub(crate) struct Lookout {
    regions: Arc<Regions>,
    available: Extent,
}

impl Lookout {
    /// Whether more was made available than up to the index `next`. What there is has to be
    /// [asked](Ring::has_available) again.
    pub(crate) fn sees_more_than(&self, next: u16) -> bool {
        let mapping = self.regions.mapping(&self.available);
        let index =
            mapping.map(|mapping| mapping.load_u16(self.available.offset + 2, Ordering::Relaxed));
        matches!(index, Ok(Ok(index)) if u16::from_le(index) != next)
    }
}

/// A queue that is being served.
#[derive(Debug)]
pub struct Ring {
    regions: Arc<Regions>,
    layout: Layout,
    features: RingFeatures,
    places: Places,
    /// The next to be taken of the available ring.
    next_available: u16,
    /// Up to where it is known to be filled.
    seen_available: u16,
    /// The next to be filled of the used ring.
    next_used: u16,
    /// Up to where the guest was told, or needed no telling.
    told_used: u16,
    /// Which heads were taken and not given back, a bit each.
    in_use: Box<[u64]>,
    log: Option<RingLog>,
    /// The same, for whoever comes after this process.
    tracker: Tracker,
}

impl Ring {
    /// A queue in the memory of `regions`, from its available index `base` on.
    ///
    /// # Errors
    ///
    /// When it is not in that memory, or cannot be a queue.
    pub fn new(
        regions: Arc<Regions>,
        layout: Layout,
        features: RingFeatures,
        base: u16,
    ) -> Result<Ring, Broken> {
        if !layout.size.is_power_of_two() {
            return Err(Broken::Size);
        }
        let places = Places::find(&layout, &regions)?;
        let mut ring = Ring {
            regions,
            layout,
            features,
            places,
            next_available: base,
            seen_available: base,
            next_used: 0,
            told_used: 0,
            in_use: vec![0; usize::from(layout.size).div_ceil(64)].into(),
            log: None,
            tracker: Tracker::default(),
        };
        ring.next_used = ring.load_used(2, Ordering::Relaxed)?;
        ring.told_used = ring.next_used;
        Ok(ring)
    }

    /// None: a ring that has no memory and nothing in it. It stands where one was taken away.
    pub(crate) fn absent() -> Ring {
        let nowhere = Extent::default();
        Ring {
            regions: Arc::default(),
            layout: Layout::default(),
            features: RingFeatures::default(),
            places: Places {
                descriptors: nowhere,
                available: nowhere,
                used: nowhere,
            },
            next_available: 0,
            seen_available: 0,
            next_used: 0,
            told_used: 0,
            in_use: Box::default(),
            log: None,
            tracker: Tracker::default(),
        }
    }

    /// The guest's memory as it is now.
    pub fn regions(&self) -> &Arc<Regions> {
        &self.regions
    }

    /// Puts another table of regions in place. Chains that were read with the old one stay with it.
    ///
    /// # Errors
    ///
    /// When the queue is not in that memory.
    pub fn set_regions(&mut self, regions: Arc<Regions>) -> Result<(), Broken> {
        self.places = Places::find(&self.layout, &regions)?;
        self.regions = regions;
        Ok(())
    }

    /// Where to note what is written, from now on.
    pub fn set_log(&mut self, log: Option<RingLog>) {
        self.log = log;
    }

    /// Where to note what is written for requests, before they are [completed](Self::complete).
    pub fn log(&self) -> Option<&DirtyLog> {
        self.log.as_ref().map(|log| &*log.log)
    }

    /// Notes that `length` bytes at `at` in the used ring were written.
    fn note_used(&self, at: usize, length: usize) {
        if let Some(RingLog {
            log,
            used: Some(used),
        }) = &self.log
        {
            log.mark(used.saturating_add(at as u64), length);
        }
    }

    /// The index of the used ring up to which requests were given back.
    pub fn next_used(&self) -> u16 {
        self.next_used
    }

    /// The index of the available ring from which another would have to go on.
    pub fn next_available(&self) -> u16 {
        self.next_available
    }

    /// Whether there is something to be taken.
    ///
    /// # Errors
    ///
    /// When the queue is broken.
    pub fn has_available(&mut self) -> Result<bool, Broken> {
        if self.seen_available == self.next_available {
            // What was written before the index is seen with it.
            let index = self.load_available(2, Ordering::Acquire)?;
            if index.wrapping_sub(self.next_available) > self.layout.size {
                return Err(Broken::Overrun);
            }
            self.seen_available = index;
        }
        Ok(self.seen_available != self.next_available)
    }

    /// Takes the next: the number of its first descriptor. Each is to be given to
    /// [`complete`](Self::complete) in the end.
    ///
    /// # Errors
    ///
    /// When the queue is broken.
    pub fn take(&mut self) -> Result<Option<u16>, Broken> {
        if !self.has_available()? {
            return Ok(None);
        }
        let slot = usize::from(self.next_available % self.layout.size);
        let at = RING_HEAD_BYTES + slot * AVAILABLE_ELEMENT_BYTES;
        let head = self.load_available(at, Ordering::Relaxed)?;
        if head >= self.layout.size {
            return Err(Broken::NoSuchDescriptor);
        }
        self.mark(head)?;
        self.tracker.take(head);
        self.next_available = self.next_available.wrapping_add(1);
        Ok(Some(head))
    }

    /// Notes in `tracker` what is in flight from now on, beginning with `heads`.
    pub(crate) fn track(&mut self, mut tracker: Tracker, heads: &[u16]) {
        tracker.begin(self.next_used, heads);
        self.tracker = tracker;
    }

    /// Goes on where another process has stopped, if it has begun with this queue. Returns what it has
    /// left, to be carried out once more and [completed](Self::complete); it counts as taken.
    ///
    /// # Errors
    ///
    /// When that cannot be.
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

    /// Notes that `head` was taken, by who served this queue elsewhere.
    pub(crate) fn note_taken(&mut self, head: u16) {
        self.tracker.take(head);
    }

    /// What is noted of requests.
    pub(crate) fn tracker(&self) -> &Tracker {
        &self.tracker
    }

    /// Counts a head as in use that was taken before this queue was stopped and started again.
    ///
    /// # Errors
    ///
    /// When it cannot be.
    pub fn mark(&mut self, head: u16) -> Result<(), Broken> {
        let (word, bit) = (usize::from(head / 64), 1 << (head % 64));
        let word = self.in_use.get_mut(word).ok_or(Broken::NoSuchDescriptor)?;
        if *word & bit != 0 {
            return Err(Broken::InUse);
        }
        *word |= bit;
        Ok(())
    }

    /// Counts no head as in use.
    pub fn unmark_all(&mut self) {
        self.in_use.fill(0);
    }

    /// With what chains are read, until [other regions](Self::set_regions) are put in place.
    pub(crate) fn chains(&self) -> ChainTable {
        ChainTable {
            descriptors: self.places.descriptors,
            size: self.layout.size,
            indirect: self.features.indirect,
        }
    }

    /// Reads the chain of `head` into `chain`.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn read_chain(&self, head: u16, chain: &mut Chain) -> Result<(), ChainFault> {
        self.chains().read(&self.regions, head, chain)
    }

    /// How many are known to be waiting to be taken. More may have come since the guest's index was
    /// [looked at](Self::has_available).
    pub(crate) fn waiting(&self) -> u16 {
        self.seen_available.wrapping_sub(self.next_available)
    }

    /// With what to look out for more without the ring.
    pub(crate) fn lookout(&self) -> Lookout {
        Lookout {
            regions: Arc::clone(&self.regions),
            available: self.places.available,
        }
    }

    /// Gives `head` back: `length` bytes were written for it. The guest can see it at once;
    /// [`must_tell`](Self::must_tell) says whether it waits to be told.
    ///
    /// # Errors
    ///
    /// When the queue is broken.
    pub fn complete(&mut self, head: u16, length: u32) -> Result<(), Broken> {
        let (word, bit) = (usize::from(head / 64), 1 << (head % 64));
        if let Some(word) = self.in_use.get_mut(word) {
            *word &= !bit;
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
        // What was written for the request, and the element, are seen before the index.
        self.store_used(2, self.next_used, Ordering::Release)?;
        self.tracker.gave_back(head, self.next_used);
        Ok(())
    }

    /// Whether the guest is to be told of what was given back since it was asked last.
    ///
    /// # Errors
    ///
    /// When the queue is broken.
    pub fn must_tell(&mut self) -> Result<bool, Broken> {
        if self.told_used == self.next_used {
            return Ok(false);
        }
        // The index must be out before we look at what the guest wants.
        fence(Ordering::SeqCst);
        let wanted = if self.features.event_index {
            let at = RING_HEAD_BYTES + usize::from(self.layout.size) * AVAILABLE_ELEMENT_BYTES;
            let event = self.load_available(at, Ordering::Relaxed)?;
            has_passed(event, self.told_used, self.next_used)
        } else {
            let flags = self.load_available(0, Ordering::Relaxed)?;
            flags & AVAILABLE_FLAG_NO_INTERRUPT == 0
        };
        self.told_used = self.next_used;
        Ok(wanted)
    }

    /// Says that the guest need not tell us of what it makes available, while we look by ourselves.
    ///
    /// # Errors
    ///
    /// When the queue is broken.
    pub fn look_by_ourselves(&mut self) -> Result<(), Broken> {
        // With the event index, the one that was asked for last lies behind us.
        if self.features.event_index {
            return Ok(());
        }
        self.store_used(0, USED_FLAG_NO_NOTIFY, Ordering::Relaxed)
    }

    /// Asks to be told of the next that is made available. True when there is one already, for which
    /// nobody may tell us.
    ///
    /// # Errors
    ///
    /// When the queue is broken.
    pub fn ask_to_be_told(&mut self) -> Result<bool, Broken> {
        if self.features.event_index {
            let at = RING_HEAD_BYTES + usize::from(self.layout.size) * USED_ELEMENT_BYTES;
            self.store_used(at, self.next_available, Ordering::Relaxed)?;
        } else {
            self.store_used(0, 0, Ordering::Relaxed)?;
        }
        // The wish must be out before we look for the last time.
        fence(Ordering::SeqCst);
        self.has_available()
    }

    fn load_available(&self, at: usize, order: Ordering) -> Result<u16, Broken> {
        let extent = &self.places.available;
        let mapping = self.regions.mapping(extent)?;
        Ok(u16::from_le(mapping.load_u16(extent.offset + at, order)?))
    }

    fn load_used(&self, at: usize, order: Ordering) -> Result<u16, Broken> {
        let extent = &self.places.used;
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

/// Whether the index, on its way from `old` to `new`, has gone beyond `event` (virtio 1.2, 2.7.7.2).
fn has_passed(event: u16, old: u16, new: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}
