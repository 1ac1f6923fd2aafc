//! What leads to the inode beneath: its file handle, places, a descriptor, a client's open file. Makes no system
//! calls except closing descriptors.

use crate::identity::Identity;
use crate::ledger::{NotedPlace, StateTables};
use crate::quota::QuotaCharge;
use parking_lot::Mutex;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use thrufs::{Backing, LowerFile};
use thrufs_abi::NodeId;

/// What places are in: an [`Inode`](super::inode::Inode).
pub(crate) trait Directory: Sized {
    fn node(&self) -> NodeId;
    fn lower_mut(&mut self) -> &mut LowerInode<Self>;
}

/// Where an inode without a file handle was seen.
pub(crate) struct Place<D> {
    pub(crate) parent: Arc<D>,
    pub(crate) name: CString,
    /// Where it was seen before.
    other: Option<Box<Place<D>>>,
}

impl<D: Directory> Place<D> {
    pub(crate) fn new(parent: Arc<D>, name: CString) -> Box<Place<D>> {
        Box::new(Place {
            parent,
            name,
            other: None,
        })
    }

    /// As the ledger records it.
    pub(super) fn noted(&self) -> NotedPlace<'_> {
        (self.parent.node(), &self.name)
    }
}

/// The last two places of an inode without a file handle, so that a file with two names is found again after
/// it lost one. It may have left either.
pub(crate) struct Places<D>(Option<Box<Place<D>>>);

/// Places, and those that are to be dropped outside of the lock: they may hold the last reference to a directory.
pub(crate) type ChangedPlaces<D> = (Places<D>, [Option<Box<Place<D>>>; 2]);

impl<D: Directory> Places<D> {
    fn of(last: Option<Box<Place<D>>>, other: Option<Box<Place<D>>>) -> Places<D> {
        Places(match last {
            Some(mut last) => {
                last.other = other;
                Some(last)
            }
            None => other,
        })
    }

    /// After it was seen at this place.
    pub(super) fn with(self, place: Box<Place<D>>) -> ChangedPlaces<D> {
        // It may be there already, as the last one or the other.
        let (before, [same, _]) = self.without(place.noted());
        let [last, dropped] = before.into_both();
        (Places::of(Some(place), last), [same, dropped])
    }

    /// After it has left this place.
    pub(super) fn without(self, place: NotedPlace<'_>) -> ChangedPlaces<D> {
        let [last, other] = self.into_both();
        let is_it = |known: &Option<Box<Place<D>>>| {
            let known = known.as_deref().map(Place::noted);
            known == Some(place)
        };
        if is_it(&last) {
            (Places(other), [last, None])
        } else if is_it(&other) {
            (Places(last), [other, None])
        } else {
            (Places::of(last, other), [None, None])
        }
    }

    /// After it was moved.
    pub(super) fn moved(self, from: NotedPlace<'_>, to: Box<Place<D>>) -> ChangedPlaces<D> {
        let (places, [left, _]) = self.without(from);
        // Two at most are there: none is dropped but that of before at this place.
        let (places, [same, _]) = places.with(to);
        (places, [left, same])
    }

    /// After it has left all of them.
    pub(super) fn without_any(self) -> ChangedPlaces<D> {
        (Places(None), self.into_both())
    }

    fn into_both(self) -> [Option<Box<Place<D>>>; 2] {
        let mut last = self.0;
        let other = last.as_mut().and_then(|last| last.other.take());
        [last, other]
    }

    /// The last one first.
    fn iter(&self) -> impl Iterator<Item = &Place<D>> {
        let last = self.0.as_deref();
        let other = last.and_then(|last| last.other.as_deref());
        last.into_iter().chain(other)
    }

    fn last(&self) -> Option<NotedPlace<'_>> {
        self.0.as_deref().map(Place::noted)
    }
}

/// `D` is an [`Inode`](super::inode::Inode).
pub(crate) struct LowerInode<D: Directory> {
    pub(crate) identity: Identity,
    ways: Mutex<Ways<D>>,
    /// Set by each use of the descriptor, cleared by the clock hand.
    recently_used: AtomicBool,
    /// It has no name left, and cannot be found again.
    is_gone: AtomicBool,
    /// It was removed, and the kernel above may have it open without a handle here: only its descriptor leads to it.
    is_only_held: AtomicBool,
    /// The process that outlives this one has a descriptor.
    pub(super) is_stored: AtomicBool,
}

impl<D: Directory> Drop for LowerInode<D> {
    /// Clients make trees of any depth: the directories that only this inode refers to are not dropped by recursion.
    fn drop(&mut self) {
        let take_from = |lower: &mut LowerInode<D>| lower.ways.get_mut().places.0.take();
        let mut places: Vec<_> = take_from(self).into_iter().collect();
        while let Some(place) = places.pop() {
            places.extend(place.other);
            let last = Arc::into_inner(place.parent);
            places.extend(last.and_then(|mut directory| take_from(directory.lower_mut())));
        }
    }
}

struct Ways<D> {
    places: Places<D>,
    held: Held,
    /// A lower file that a client has open: leads to an inode without names.
    opened: Weak<LowerFile>,
}

#[derive(Default)]
struct Held {
    /// An `O_PATH` descriptor, within the budget.
    descriptor: Option<Arc<OwnedFd>>,
    /// Made from the descriptor, and dropped with it.
    backing: Option<Arc<Backing>>,
    /// For the user who removed it, if only the descriptor leads to it.
    charge: Option<Box<QuotaCharge>>,
}

/// A descriptor for `*at` calls with `AT_EMPTY_PATH`, alive while it is used.
pub(crate) enum Descriptor {
    /// The inode's own `O_PATH` descriptor.
    Cached(Arc<OwnedFd>),
    /// The lower file of a client's open file.
    Opened(Arc<LowerFile>),
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Descriptor::Cached(fd) => fd.as_fd(),
            Descriptor::Opened(file) => file.as_fd(),
        }
    }
}

impl<D: Directory> LowerInode<D> {
    pub(super) fn new(identity: Identity, place: Option<Box<Place<D>>>) -> LowerInode<D> {
        LowerInode {
            identity,
            ways: Mutex::new(Ways {
                places: Places(place),
                held: Held::default(),
                opened: Weak::new(),
            }),
            recently_used: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            is_only_held: AtomicBool::new(false),
            is_stored: AtomicBool::new(false),
        }
    }

    pub(crate) fn cached_descriptor(&self) -> Option<Arc<OwnedFd>> {
        let fd = self.ways.lock().held.descriptor.clone()?;
        self.recently_used.store(true, Ordering::Relaxed);
        Some(fd)
    }

    /// Caches `fd` unless another thread was faster, and returns the cached one.
    pub(super) fn keep_descriptor(&self, fd: OwnedFd) -> (Arc<OwnedFd>, bool) {
        let held = &mut self.ways.lock().held;
        self.recently_used.store(true, Ordering::Relaxed);
        if let Some(other) = &held.descriptor {
            return (Arc::clone(other), false);
        }
        let fd = Arc::new(fd);
        held.descriptor = Some(Arc::clone(&fd));
        (fd, true)
    }

    pub(super) fn can_be_found_again(&self) -> bool {
        let by_handle = self.identity.handle().is_some() && !self.is_only_held();
        by_handle || self.ways.lock().places.0.is_some()
    }

    /// Whether nothing else leads to it, and it has names or may be given some.
    pub(super) fn is_found_by_descriptor_alone(&self) -> bool {
        !self.is_gone.load(Ordering::Relaxed) && !self.can_be_found_again()
    }

    /// Takes the descriptor unless it was used since the clock hand's last visit.
    pub(super) fn give_up_descriptor(&self) -> Option<Arc<OwnedFd>> {
        if self.recently_used.swap(false, Ordering::Relaxed) || !self.can_be_found_again() {
            return None;
        }
        self.take_held().descriptor
    }

    /// Whether there is a descriptor, without counting as a use.
    pub(crate) fn has_descriptor(&self) -> bool {
        self.ways.lock().held.descriptor.is_some()
    }

    /// Closes the descriptor, recently used or not.
    pub(crate) fn drop_descriptor(&self) {
        let is_of_no_use = self.is_gone.load(Ordering::Relaxed) || self.is_only_held();
        if self.can_be_found_again() || is_of_no_use {
            drop(self.take_held());
        }
    }

    /// Charges the descriptor to a user's quota: nothing else leads to the inode.
    pub(super) fn charge_descriptor(&self, charge: Option<QuotaCharge>) {
        let charge = charge.map(Box::new);
        let ways = &mut *self.ways.lock();
        let has_place = ways.places.0.is_some();
        if ways.held.descriptor.is_some() && ways.held.charge.is_none() && !has_place {
            ways.held.charge = charge;
        }
    }

    /// Closes the only way to it, except for open files: its holders get ESTALE.
    pub(super) fn drop_for_good(&self) {
        self.set_gone();
        drop(self.take_held());
    }

    /// Closing takes system calls: the caller drops it outside the lock.
    fn take_held(&self) -> Held {
        std::mem::take(&mut self.ways.lock().held)
    }

    pub(super) fn set_gone(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_only_held(&self) -> bool {
        self.is_only_held.load(Ordering::Relaxed)
    }

    pub(crate) fn set_only_held(&self) {
        self.is_only_held.store(true, Ordering::Relaxed);
    }

    /// The cached registration for passthrough, if any.
    pub(crate) fn cached_backing(&self) -> Option<Arc<Backing>> {
        let backing = self.ways.lock().held.backing.clone()?;
        self.recently_used.store(true, Ordering::Relaxed);
        Some(backing)
    }

    pub(crate) fn keep_backing(&self, backing: &Arc<Backing>) {
        let held = &mut self.ways.lock().held;
        if held.descriptor.is_some() {
            held.backing = Some(Arc::clone(backing));
        }
    }

    pub(crate) fn set_opened(&self, file: &Arc<LowerFile>) {
        self.ways.lock().opened = Arc::downgrade(file);
    }

    pub(crate) fn opened(&self) -> Option<Arc<LowerFile>> {
        self.ways.lock().opened.upgrade()
    }

    /// Where it may be found, the likeliest place first.
    pub(crate) fn places(&self) -> Vec<(Arc<D>, CString)> {
        let ways = self.ways.lock();
        let copy = |place: &Place<D>| (Arc::clone(&place.parent), place.name.clone());
        ways.places.iter().map(copy).collect()
    }

    /// Records it as new, with one lookup.
    pub(super) fn note_in(&self, tables: &StateTables, node: NodeId, file_type: u32) {
        let ways = self.ways.lock();
        tables.note_node(node, &self.identity, file_type, ways.places.last());
    }

    pub(super) fn was_last_seen_at(&self, place: &Place<D>) -> bool {
        self.ways.lock().places.last() == Some(place.noted())
    }

    /// Changes where it may be found, and records that with `note`.
    pub(super) fn change_places(
        &self,
        change: impl FnOnce(Places<D>) -> ChangedPlaces<D>,
        note: impl FnOnce(&[NotedPlace<'_>]),
    ) {
        let mut ways = self.ways.lock();
        let (places, dropped) = change(std::mem::replace(&mut ways.places, Places(None)));
        note(&places.iter().map(Place::noted).collect::<Vec<_>>());
        // If it can be found again, its descriptor is no longer charged to a user.
        let charge = places.last().and_then(|_| ways.held.charge.take());
        ways.places = places;
        drop(ways);
        drop((dropped, charge));
    }
}
