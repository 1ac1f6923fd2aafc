//! One inode that the kernel has looked up: its lookup count, what leads to it (handle, place, descriptor),
//! and what was reported of it. Makes no system calls except closing descriptors.

use super::dax_state::DaxState;
use super::followed::Followed;
use super::idle_expiry::IdleExpiry;
use super::magic::{BTRFS_MAGIC, EXT_MAGIC, TMPFS_MAGIC, XFS_MAGIC};
use super::names::Names;
use super::reported::ReportedAttributes;
use super::uses::{Obstacle, Use};
use crate::filter::Filter;
use crate::identity::Identity;
use crate::ledger::{NotedPlace, Notes};
use crate::quota::QuotaCharge;
use parking_lot::{Mutex, MutexGuard, RwLock};
use rustix::fs::FileType;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use thrufs::{Backing, LowerFile, NoWait};
use thrufs_abi::NodeId;
use thrufs_sys::handle::FileHandleBuf;

/// Where an inode without a file handle was seen.
pub(crate) struct Place {
    pub(crate) parent: Arc<Inode>,
    pub(crate) name: CString,
    /// Where it was seen before.
    other: Option<Box<Place>>,
}

impl Place {
    pub(crate) fn new(parent: Arc<Inode>, name: CString) -> Box<Place> {
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
#[derive(Default)]
pub(super) struct Places(Option<Box<Place>>);

/// Places, and those that are to be dropped outside of the lock: they may hold the last reference to a directory.
pub(super) type ChangedPlaces = (Places, [Option<Box<Place>>; 2]);

impl Places {
    fn of(last: Option<Box<Place>>, other: Option<Box<Place>>) -> Places {
        Places(match last {
            Some(mut last) => {
                last.other = other;
                Some(last)
            }
            None => other,
        })
    }

    /// After it was seen at this place.
    pub(super) fn with(self, place: Box<Place>) -> ChangedPlaces {
        // It may be there already, as the last one or the other.
        let (before, [same, _]) = self.without(place.noted());
        let [last, dropped] = before.into_both();
        (Places::of(Some(place), last), [same, dropped])
    }

    /// After it has left this place.
    pub(super) fn without(self, place: NotedPlace<'_>) -> ChangedPlaces {
        let [last, other] = self.into_both();
        let is_it = |known: &Option<Box<Place>>| {
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
    pub(super) fn moved(self, from: NotedPlace<'_>, to: Box<Place>) -> ChangedPlaces {
        let (places, [left, _]) = self.without(from);
        // Two at most are there: none is dropped but that of before at this place.
        let (places, [same, _]) = places.with(to);
        (places, [left, same])
    }

    /// After it has left all of them.
    pub(super) fn without_any(self) -> ChangedPlaces {
        (Places::default(), self.into_both())
    }

    fn into_both(self) -> [Option<Box<Place>>; 2] {
        let mut last = self.0;
        let other = last.as_mut().and_then(|last| last.other.take());
        [last, other]
    }

    /// The last one first.
    fn iter(&self) -> impl Iterator<Item = &Place> {
        let last = self.0.as_deref();
        let other = last.and_then(|last| last.other.as_deref());
        last.into_iter().chain(other)
    }

    fn last(&self) -> Option<NotedPlace<'_>> {
        self.0.as_deref().map(Place::noted)
    }
}

/// What may be noted of an inode, as bits.
#[derive(Clone, Copy)]
#[repr(u16)]
pub(crate) enum Noted {
    /// Its last known mode lets somebody execute it.
    Executable = 1,
    /// [`set_group_id_stays`], by its last known mode.
    SetGroupIdStays = 1 << 1,
    /// Somebody has set a POSIX lock, through this mount.
    Locked = 1 << 2,
    /// A program that writes it has tried to lock a range, so that it takes turns with the host.
    TakesTurns = 1 << 3,
    /// An open was answered so that it has no cache, while others may have one.
    HasUncached = 1 << 4,
    /// The kernel above has read pages of it.
    PagesRead = 1 << 5,
    /// A program above that locks ranges has stored to it in a shared map.
    StoredTo = 1 << 6,
    /// A name was removed while it was open.
    LostAName = 1 << 7,
    /// It has no name left, and cannot be found again.
    Gone = 1 << 8,
    /// It was removed, and the kernel above may have it open without a handle here: only its descriptor leads to it.
    OnlyHeld = 1 << 9,
}

/// Shared by the requests that use it; the table of nodes holds it until the kernel forgets it.
pub(crate) struct Inode {
    node: NodeId,
    identity: Identity,
    mount: Arc<LowerMount>,
    pub(crate) file_type: u32,
    lookups: AtomicU64,
    reach: Mutex<Reach>,
    /// Set by each use of the descriptor, cleared by the clock hand.
    recently_used: AtomicBool,
    /// Forgotten, and kept for `export`.
    pub(crate) dormant: AtomicBool,
    /// Owner, group and mode as last reported to the kernel above.
    pub(crate) reported: ReportedAttributes,
    /// Bits of [`Noted`].
    noted: AtomicU16,
    /// The data version that the kernel has cached; 0 for none.
    cached_version: AtomicU64,
    /// A lower file that a client has open: leads to an inode without names.
    opened: Mutex<Weak<LowerFile>>,
    /// The opens of the inode; `None` if it is not open.
    uses: Mutex<Option<Box<Use>>>,
    /// Tracked under a policy.
    names: Names,
    in_strongbox: AtomicBool,
    /// How its changes beneath are told.
    pub(crate) followed: Followed,
    /// Whether a guest maps it.
    pub(crate) dax: DaxState,
}

/// What leads to it, beside its handle.
#[derive(Default)]
struct Reach {
    places: Places,
    held: Held,
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

impl Inode {
    pub(crate) fn new(
        node: NodeId,
        identity: Identity,
        mount: Arc<LowerMount>,
        file_type: u32,
        place: Option<Box<Place>>,
    ) -> Inode {
        Inode {
            node,
            identity,
            mount,
            file_type,
            lookups: AtomicU64::new(1),
            reach: Mutex::new(Reach {
                places: Places(place),
                held: Held::default(),
            }),
            recently_used: AtomicBool::new(false),
            dormant: AtomicBool::new(false),
            reported: ReportedAttributes::none(),
            noted: AtomicU16::new(0),
            cached_version: AtomicU64::new(0),
            opened: Mutex::new(Weak::new()),
            uses: Mutex::new(None),
            names: Names::default(),
            in_strongbox: AtomicBool::new(false),
            followed: Followed::default(),
            dax: DaxState::default(),
        }
    }

    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn mount(&self) -> &Arc<LowerMount> {
        &self.mount
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.file_type == libc::S_IFDIR
    }

    pub(crate) fn is_regular(&self) -> bool {
        self.file_type == libc::S_IFREG
    }

    pub(crate) fn is_symbolic_link(&self) -> bool {
        self.file_type == libc::S_IFLNK
    }

    pub(crate) fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.file_type)
    }

    /// Whether the next lookup gives the guest another inode of the file: it would map this one, which rules forbid
    /// now, until it forgets it. While the file is open, both would have it open in different ways.
    pub(crate) fn is_to_be_replaced(&self) -> bool {
        self.dax.is_withdrawn() && !self.is_open()
    }

    /// The names by which it was looked up.
    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// Records it as new, with one lookup.
    pub(super) fn note_in(&self, notes: &Notes) {
        let reach = self.reach.lock();
        let place = reach.places.last();
        notes.note_node(self.node, &self.identity, self.file_type, place);
    }

    pub(crate) fn lookups(&self) -> u64 {
        self.lookups.load(Ordering::Acquire)
    }

    pub(crate) fn set_lookups(&self, count: u64) {
        self.lookups.store(count, Ordering::Release);
    }

    pub(crate) fn add_lookup(&self) {
        if self.lookups.fetch_add(1, Ordering::AcqRel) == 0 {
            self.dax.reset();
        }
    }

    /// Takes back lookups and returns how many are left; never below zero, whatever a client forgets.
    pub(crate) fn take_lookups(&self, count: u64) -> u64 {
        let before = self
            .lookups
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| {
                Some(n.saturating_sub(count))
            })
            .unwrap_or(0);
        before.saturating_sub(count)
    }

    pub(crate) fn cached_descriptor(&self) -> Option<Arc<OwnedFd>> {
        let fd = self.reach.lock().held.descriptor.clone()?;
        self.recently_used.store(true, Ordering::Relaxed);
        Some(fd)
    }

    /// Caches `fd` unless another thread was faster, and returns the cached one.
    pub(crate) fn keep_descriptor(&self, fd: OwnedFd) -> (Arc<OwnedFd>, bool) {
        let held = &mut self.reach.lock().held;
        self.recently_used.store(true, Ordering::Relaxed);
        if let Some(other) = &held.descriptor {
            return (Arc::clone(other), false);
        }
        let fd = Arc::new(fd);
        held.descriptor = Some(Arc::clone(&fd));
        (fd, true)
    }

    pub(crate) fn can_be_found_again(&self) -> bool {
        let by_handle = self.identity.handle().is_some() && !self.is(Noted::OnlyHeld);
        by_handle || self.reach.lock().places.0.is_some()
    }

    /// Whether nothing else leads to it, and it has names or may be given some.
    pub(super) fn is_found_by_descriptor_alone(&self) -> bool {
        !self.is(Noted::Gone) && !self.can_be_found_again()
    }

    /// Takes the descriptor unless it was used since the clock hand's last visit.
    pub(crate) fn give_up_descriptor(&self) -> Option<Arc<OwnedFd>> {
        if self.recently_used.swap(false, Ordering::Relaxed) || !self.can_be_found_again() {
            return None;
        }
        self.take_held().descriptor
    }

    /// Whether there is no descriptor, without counting as a use.
    pub(crate) fn cached_descriptor_is_gone(&self) -> bool {
        self.reach.lock().held.descriptor.is_none()
    }

    /// Closes the descriptor, recently used or not.
    pub(crate) fn drop_descriptor(&self) {
        let is_of_no_use = self.is(Noted::Gone) || self.is(Noted::OnlyHeld);
        if self.can_be_found_again() || is_of_no_use {
            drop(self.take_held());
        }
    }

    /// Charges the descriptor to a user's quota: nothing else leads to the inode.
    pub(crate) fn charge_descriptor(&self, charge: Option<QuotaCharge>) {
        let charge = charge.map(Box::new);
        let reach = &mut *self.reach.lock();
        let has_place = reach.places.0.is_some();
        if reach.held.descriptor.is_some() && reach.held.charge.is_none() && !has_place {
            reach.held.charge = charge;
        }
    }

    /// Closes the only way to it, except for open files: its holders get ESTALE.
    pub(crate) fn drop_for_good(&self) {
        self.note(Noted::Gone);
        drop(self.take_held());
    }

    /// Closing takes system calls: the caller drops it outside the lock.
    fn take_held(&self) -> Held {
        std::mem::take(&mut self.reach.lock().held)
    }

    /// The cached registration for passthrough, if any.
    pub(crate) fn cached_backing(&self) -> Option<Arc<Backing>> {
        let backing = self.reach.lock().held.backing.clone()?;
        self.recently_used.store(true, Ordering::Relaxed);
        Some(backing)
    }

    pub(crate) fn keep_backing(&self, backing: &Arc<Backing>) {
        let held = &mut self.reach.lock().held;
        if held.descriptor.is_some() {
            held.backing = Some(Arc::clone(backing));
        }
    }

    /// The opens of the inode. The lock orders them.
    pub(crate) fn uses(&self) -> MutexGuard<'_, Option<Box<Use>>> {
        self.uses.lock()
    }

    /// The filter, if the open file is redacted.
    pub(crate) fn filter(&self) -> Option<Arc<Filter>> {
        self.uses.lock().as_ref()?.filter.clone()
    }

    /// A name was removed: nothing is cached once it is no longer open.
    pub(crate) fn name_removed(&self) {
        let uses = self.uses.lock();
        if uses.is_some() {
            self.note(Noted::LostAName);
        } else {
            drop(uses);
            self.drop_descriptor();
        }
    }

    /// The last name was removed: its space is freed once it is no longer open.
    pub(crate) fn last_name_removed(&self) {
        self.note(Noted::Gone);
        self.name_removed();
    }

    pub(crate) fn is_open(&self) -> bool {
        self.uses.lock().is_some()
    }

    pub(crate) fn in_strongbox(&self) -> &AtomicBool {
        &self.in_strongbox
    }

    pub(crate) fn is(&self, noted: Noted) -> bool {
        self.noted.load(Ordering::Relaxed) & noted as u16 != 0
    }

    pub(crate) fn note(&self, noted: Noted) {
        self.noted.fetch_or(noted as u16, Ordering::Relaxed);
    }

    /// To be called before the kernel above is given pages. It costs those files that had an open without a cache.
    pub(crate) fn note_pages_read(&self) {
        if self.is(Noted::HasUncached) {
            self.noted
                .fetch_or(Noted::PagesRead as u16, Ordering::SeqCst);
        }
    }

    /// Whether the kernel above was given pages since this was last asked.
    pub(crate) fn take_pages_read(&self) -> bool {
        let pages_read = Noted::PagesRead as u16;
        self.noted.fetch_and(!pages_read, Ordering::SeqCst) & pages_read != 0
    }

    pub(crate) fn is_written_by_kernel(&self) -> bool {
        let uses = self.uses.lock();
        uses.as_ref()
            .is_some_and(|uses| uses.is_written_by_kernel())
    }

    /// As [`is_written_by_kernel`](Self::is_written_by_kernel), for who reads events: an open does, which has locked
    /// its inode. False while somebody opens it.
    pub(crate) fn is_surely_written_by_kernel(&self) -> bool {
        let uses = self.uses.try_lock();
        let uses = uses.as_ref().and_then(|uses| uses.as_ref());
        uses.is_some_and(|uses| uses.is_written_by_kernel())
    }

    pub(crate) fn has_writers(&self) -> bool {
        self.uses
            .lock()
            .as_ref()
            .is_some_and(|uses| uses.has_writers())
    }

    /// Records a mode that was reported, or that the lower file has.
    pub(crate) fn record_mode(&self, mode: u32) {
        let (stays, executable) = (Noted::SetGroupIdStays as u16, Noted::Executable as u16);
        let mut by_mode = u16::from(mode & 0o111 != 0) * executable;
        by_mode |= u16::from(set_group_id_stays(mode)) * stays;
        let noted = |noted| Some(noted & !(stays | executable) | by_mode);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.noted.fetch_update(set, fetch, noted);
    }

    pub(crate) fn set_opened(&self, file: &Arc<LowerFile>) {
        *self.opened.lock() = Arc::downgrade(file);
    }

    pub(crate) fn opened(&self) -> Option<Arc<LowerFile>> {
        self.opened.lock().upgrade()
    }

    /// Where it was last seen.
    pub(crate) fn place(&self) -> Option<(Arc<Inode>, CString)> {
        self.places().into_iter().next()
    }

    /// Where it may be found, the likeliest place first.
    pub(crate) fn places(&self) -> Vec<(Arc<Inode>, CString)> {
        let reach = self.reach.lock();
        let places = reach.places.iter();
        places
            .map(|place| (Arc::clone(&place.parent), place.name.clone()))
            .collect()
    }

    pub(super) fn was_last_seen_at(&self, place: &Place) -> bool {
        self.reach.lock().places.last() == Some(place.noted())
    }

    /// Changes where it may be found, and records that with `note`.
    pub(super) fn change_places(
        &self,
        change: impl FnOnce(Places) -> ChangedPlaces,
        note: impl FnOnce(&[NotedPlace<'_>]),
    ) {
        let mut reach = self.reach.lock();
        let (places, dropped) = change(std::mem::take(&mut reach.places));
        note(&places.iter().map(Place::noted).collect::<Vec<_>>());
        // If it can be found again, its descriptor is no longer charged to a user.
        let charge = places.last().and_then(|_| reach.held.charge.take());
        reach.places = places;
        drop(reach);
        drop((dropped, charge));
    }

    /// Whether the kernel has cached data of this version; records it.
    pub(crate) fn same_version_as_cached(&self, version: u64) -> bool {
        self.cached_version.swap(version, Ordering::Relaxed) == version
    }

    pub(crate) fn has_cached_version(&self) -> bool {
        self.cached_version() != 0
    }

    /// The version of the kernel's cached data; 0 if unknown.
    pub(crate) fn cached_version(&self) -> u64 {
        self.cached_version.load(Ordering::Relaxed)
    }

    pub(crate) fn set_cached_version(&self, version: u64) {
        self.cached_version.store(version, Ordering::Relaxed);
    }
}

pub(crate) struct LowerMount {
    pub(crate) index: u32,
    pub(crate) id: u64,
    pub(crate) magic: u64,
    /// An open directory of the mount, for open_by_handle_at(2). `None` while the mount is released.
    pub(super) anchor: RwLock<Option<Arc<OwnedFd>>>,
    /// Whether its inodes have file handles that we may open.
    pub(crate) has_handles: bool,
    /// Without handles that can be opened: inodes are identified by handle all the same, as in events of
    /// changes.
    pub(super) has_closed_handles: bool,
    pub(super) number_in_handle: NumberInHandle,
    pub(crate) no_wait: NoWait,
    /// Whether another machine or process serves it.
    pub(crate) is_remote: bool,
    /// Its file system is stacked on others.
    pub(super) is_layered: bool,
    /// Found to be stacked too deep for passthrough.
    pub(super) is_stacked: AtomicBool,
    /// Found to have no POSIX ACLs.
    pub(super) is_without_acls: AtomicBool,
    /// Whether it was read-only, as the low bit, below the milliseconds of the last look; 0 for never.
    pub(super) read_only_seen: AtomicU64,
    /// An obstacle to passthrough was logged.
    pub(super) logged: AtomicBool,
    /// Its mount point, to find it again; `None` for the mount of the source.
    pub(super) mounted_on: Option<(Arc<Inode>, CString)>,
    pub(super) idle_expiry: IdleExpiry,
}

/// Where a handle contains the inode number, to see whether a handle and a stat, taken one after the other,
/// are of one inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberInHandle {
    /// First 4 bytes (ext2, ext3, ext4).
    Low32,
    /// First 8 bytes or first 4, by the handle's length (XFS, btrfs).
    Start,
    /// After a generation of 4 bytes: low and high half (tmpfs).
    AfterGeneration,
    /// Handles of other file systems are opaque.
    Unknown,
}

impl LowerMount {
    /// Whether positions of a listing stay valid when its directory is opened again.
    pub(crate) fn keeps_positions(&self) -> bool {
        self.has_handles && matches!(self.magic, EXT_MAGIC | XFS_MAGIC | BTRFS_MAGIC)
    }

    pub(crate) fn has_subvolumes(&self) -> bool {
        self.magic == BTRFS_MAGIC
    }

    pub(crate) fn is_memory(&self) -> bool {
        self.no_wait == NoWait::Memory
    }

    /// Whether its file system may reserve blocks for root (ext4, f2fs): known not to for tmpfs, XFS and btrfs.
    pub(crate) fn reserves_blocks(&self) -> bool {
        !matches!(self.magic, TMPFS_MAGIC | XFS_MAGIC | BTRFS_MAGIC)
    }

    pub(crate) fn is_stacked(&self) -> bool {
        self.is_stacked.load(Ordering::Relaxed)
    }

    pub(crate) fn set_stacked(&self) {
        self.is_stacked.store(true, Ordering::Relaxed);
    }

    pub(crate) fn may_have_acls(&self) -> bool {
        !self.is_without_acls.load(Ordering::Relaxed)
    }

    /// One of its inodes has no ACL support. Inodes other than files and directories never have.
    pub(crate) fn found_without_acls(&self, inode: &Inode) {
        if inode.is_regular() || inode.is_directory() {
            self.is_without_acls.store(true, Ordering::Relaxed);
        }
    }

    /// Logs the first obstacle to passthrough of its files.
    pub(crate) fn log_once(&self, obstacle: Obstacle) {
        if !self.logged.load(Ordering::Relaxed) && !self.logged.swap(true, Ordering::Relaxed) {
            tracing::info!(
                mount = self.id,
                "passthrough is off for files on a lower mount: {obstacle}"
            );
        }
    }

    /// Whether it was read-only, if known and not older than `age_ms`.
    pub(crate) fn known_read_only(&self, now_ms: u64, age_ms: u64) -> Option<bool> {
        let seen = self.read_only_seen.load(Ordering::Relaxed);
        let is_fresh = seen != 0 && now_ms.saturating_sub(seen >> 1) < age_ms;
        is_fresh.then_some(seen & 1 == 1)
    }

    pub(crate) fn record_read_only(&self, now_ms: u64, is_read_only: bool) {
        let seen = now_ms.max(1) << 1 | u64::from(is_read_only);
        self.read_only_seen.store(seen, Ordering::Relaxed);
    }

    pub(crate) fn file_opened(&self) {
        self.idle_expiry.file_opened();
    }

    pub(crate) fn file_closed(&self) {
        self.idle_expiry.file_closed();
    }

    /// To be called after something of the mount was cached or used.
    pub(crate) fn mark_used(&self) {
        self.idle_expiry.mark_used();
    }

    pub(crate) fn mounted_on(&self) -> Option<&(Arc<Inode>, CString)> {
        self.mounted_on.as_ref()
    }

    pub(crate) fn is_source(&self) -> bool {
        self.index == 0
    }

    /// Whether a handle and a stat are of one inode; `None` for opaque handles.
    pub(crate) fn handle_is_of(&self, handle: &FileHandleBuf, ino: u64) -> Option<bool> {
        let bytes = handle.bytes();
        let word = |at: usize| -> Option<u64> {
            let bytes = bytes.get(at..at + 4)?;
            Some(u64::from(u32::from_ne_bytes(bytes.try_into().ok()?)))
        };
        let number = match self.number_in_handle {
            NumberInHandle::Unknown => return None,
            NumberInHandle::Low32 => return Some(word(0)? == ino & 0xffff_ffff),
            NumberInHandle::AfterGeneration => word(4)? | word(8)? << 32,
            NumberInHandle::Start if bytes.len() <= 8 => return Some(word(0)? == ino),
            NumberInHandle::Start => word(0)? | word(4)? << 32,
        };
        Some(number == ino)
    }

    /// How many file systems may be stacked for passthrough of its files: 2 if it is itself stacked. No
    /// more than needed: a FUSE mount that allows 2 cannot be a layer of an overlay file system.
    pub(crate) fn stack_depth(&self) -> u32 {
        if self.is_layered { 2 } else { 1 }
    }

    /// The inode number that clients see. Clients see one device for all mounts, so numbers of submounts
    /// differ from the source's: programs that recognise hard links by device and number would otherwise
    /// take two files for one.
    pub(crate) fn client_ino(&self, ino: u64) -> u64 {
        if self.index == 0 {
            return ino;
        }
        ino ^ (u64::from(self.index) << 48)
    }
}

/// Whether a file with this mode has the set-group-id bit without execution by its group. It is no
/// privilege then (it meant mandatory locking, once), and FUSE wants it kept on every write. The lower file
/// system would drop it unless the writer, which is this thread, is in the file's group.
pub(crate) fn set_group_id_stays(mode: u32) -> bool {
    mode & (libc::S_ISGID | libc::S_IXGRP) == libc::S_ISGID
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inode_fits_in_300_bytes() {
        // With the two counts of Arc, a slot in the table and an entry in the map. glibc takes as much for 8 bytes less.
        let bytes = size_of::<Inode>() + 16 + 24 + 8;
        assert!(bytes <= 248, "{bytes} bytes an inode");
    }
}
