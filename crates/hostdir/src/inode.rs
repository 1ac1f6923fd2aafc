//! One inode that the kernel knows.

use crate::datapath::Use;
use crate::filter::Filter;
use crate::identity::Identity;
use crate::mounts::LowerMount;
use crate::names::Names;
use crate::ownership::ReportedAttributes;
use crate::privileges::set_group_id_stays;
use crate::quota::QuotaCharge;
use parking_lot::{Mutex, MutexGuard};
use rustix::fs::FileType;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use thrufs::{Backing, LowerFile};
use thrufs_abi::NodeId;

/// Where an inode without a file handle was last seen.
pub(crate) struct Place {
    pub(crate) parent: Arc<Inode>,
    pub(crate) name: CString,
}

/// See the module. Shared by everybody who works on the inode at the moment; the table of nodes
/// holds it until the kernel forgets it.
pub(crate) struct Inode {
    node: NodeId,
    identity: Identity,
    mount: Arc<LowerMount>,
    /// `S_IFMT` bits.
    file_type: u32,
    lookups: AtomicU64,
    reach: Mutex<Reach>,
    /// Set whenever the descriptor is used; the clock that takes descriptors back clears it.
    recently_used: AtomicBool,
    /// In the queue of forgotten nodes that stay known for `export`.
    pub(crate) dormant: AtomicBool,
    reported: ReportedAttributes,
    /// Somebody may execute it, by the mode that was seen last.
    is_executable: AtomicBool,
    /// See [`set_group_id_stays`](Inode::set_group_id_stays).
    set_group_id_stays: AtomicBool,
    /// What the file was like when the kernel last cached its data; 0 for never.
    cached_version: AtomicU64,
    /// The file as some client has it open: the way to an inode whose last name is gone.
    opened: Mutex<Weak<LowerFile>>,
    /// How it is used by those who have it open; nothing when nobody has.
    uses: Mutex<Option<Box<Use>>>,
    /// Known with a policy in force.
    names: Names,
    /// A name of it was removed while it was open.
    lost_a_name: AtomicBool,
    /// It has no name left, and nobody will find it again.
    is_gone: AtomicBool,
    /// The strongbox has a descriptor of it.
    in_strongbox: AtomicBool,
}

/// What leads to it, beside its handle.
#[derive(Default)]
struct Reach {
    place: Option<Box<Place>>,
    held: Held,
}

/// What spares system calls; can be had again where there is a handle or a place.
#[derive(Default)]
struct Held {
    /// An `O_PATH` descriptor, as long as the budget allows.
    descriptor: Option<Arc<OwnedFd>>,
    /// Made from the descriptor, and kept no longer than that.
    backing: Option<Arc<Backing>>,
    /// Of the user who has removed it, where nothing but the descriptor leads to it.
    charge: Option<Box<QuotaCharge>>,
}

/// A descriptor good for `*at` calls with `AT_EMPTY_PATH`, kept alive while it is used.
pub(crate) enum Descriptor {
    /// The inode's own `O_PATH` descriptor.
    Cached(Arc<OwnedFd>),
    /// A client's open file.
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
                place,
                held: Held::default(),
            }),
            recently_used: AtomicBool::new(false),
            dormant: AtomicBool::new(false),
            reported: ReportedAttributes::none(),
            is_executable: AtomicBool::new(false),
            set_group_id_stays: AtomicBool::new(false),
            cached_version: AtomicU64::new(0),
            opened: Mutex::new(Weak::new()),
            uses: Mutex::new(None),
            names: Names::default(),
            lost_a_name: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            in_strongbox: AtomicBool::new(false),
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

    /// What the kernel above was told of its owner and mode.
    pub(crate) fn reported(&self) -> &ReportedAttributes {
        &self.reported
    }

    /// Under which names it is known.
    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    pub(crate) fn lookups(&self) -> u64 {
        self.lookups.load(Ordering::Acquire)
    }

    pub(crate) fn set_lookups(&self, count: u64) {
        self.lookups.store(count, Ordering::Release);
    }

    pub(crate) fn add_lookup(&self) {
        self.lookups.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes back lookups and returns how many are left; a client that forgets more than it was
    /// told of ends at zero.
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

    /// Keeps `fd` unless another thread was faster, and returns the one that is kept.
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

    /// Whether the inode can be found again without its descriptor.
    pub(crate) fn can_be_found_again(&self) -> bool {
        self.identity.handle().is_some() || self.reach.lock().place.is_some()
    }

    /// Takes the descriptor back if it was not used since the clock came by last.
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

    /// Takes the descriptor back, recently used or not.
    pub(crate) fn drop_descriptor(&self) {
        if self.can_be_found_again() || self.is_gone.load(Ordering::Relaxed) {
            drop(self.take_held());
        }
    }

    /// Nothing but the descriptor leads to it any more, which is of a user's share.
    pub(crate) fn charge_descriptor(&self, charge: Option<QuotaCharge>) {
        let charge = charge.map(Box::new);
        let reach = &mut *self.reach.lock();
        if reach.held.descriptor.is_some() && reach.held.charge.is_none() && reach.place.is_none() {
            reach.held.charge = charge;
        }
    }

    /// Closes the only way to it, but for an open file: whoever holds it gets ESTALE.
    pub(crate) fn drop_for_good(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
        drop(self.take_held());
    }

    /// Closing takes system calls: what was held is dropped outside the lock.
    fn take_held(&self) -> Held {
        std::mem::take(&mut self.reach.lock().held)
    }

    /// The registration for passthrough, if one is kept.
    pub(crate) fn cached_backing(&self) -> Option<Arc<Backing>> {
        let backing = self.reach.lock().held.backing.clone()?;
        self.recently_used.store(true, Ordering::Relaxed);
        Some(backing)
    }

    /// Keeps a registration as long as the descriptor.
    pub(crate) fn keep_backing(&self, backing: &Arc<Backing>) {
        let held = &mut self.reach.lock().held;
        if held.descriptor.is_some() {
            held.backing = Some(Arc::clone(backing));
        }
    }

    /// How it is used at the moment. The lock orders the opens of the inode.
    pub(crate) fn uses(&self) -> MutexGuard<'_, Option<Box<Use>>> {
        self.uses.lock()
    }

    /// How its readers see it, where they do not see everything.
    pub(crate) fn filter(&self) -> Option<Arc<Filter>> {
        self.uses.lock().as_ref()?.filter().cloned()
    }

    /// A name of it was removed: nothing is to be kept of it once nobody has it open.
    pub(crate) fn name_removed(&self) {
        let uses = self.uses.lock();
        if uses.is_some() {
            self.lost_a_name.store(true, Ordering::Relaxed);
        } else {
            drop(uses);
            self.drop_descriptor();
        }
    }

    /// Its last name was removed: what it takes up is free when nobody has it open.
    pub(crate) fn last_name_removed(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
        self.name_removed();
    }

    pub(crate) fn lost_a_name(&self) -> bool {
        self.lost_a_name.load(Ordering::Relaxed)
    }

    /// Whether somebody has it open.
    pub(crate) fn is_open(&self) -> bool {
        self.uses.lock().is_some()
    }

    /// Whether the strongbox has a descriptor of it.
    pub(crate) fn in_strongbox(&self) -> &AtomicBool {
        &self.in_strongbox
    }

    /// `S_IFMT` bits.
    pub(crate) fn type_bits(&self) -> u32 {
        self.file_type
    }

    /// Whether somebody has it open for writing.
    pub(crate) fn has_writers(&self) -> bool {
        self.uses
            .lock()
            .as_ref()
            .is_some_and(|uses| uses.has_writers())
    }

    /// Takes note of a mode that the kernel is told, or that the file was found with.
    pub(crate) fn record_mode(&self, mode: u32) {
        let stays = set_group_id_stays(mode);
        self.set_group_id_stays.store(stays, Ordering::Relaxed);
        let executable = mode & 0o111 != 0;
        self.is_executable.store(executable, Ordering::Relaxed);
    }

    /// Whether somebody may execute it, by the mode that was seen last.
    pub(crate) fn is_executable(&self) -> bool {
        self.is_executable.load(Ordering::Relaxed)
    }

    /// [`set_group_id_stays`], by the mode that was seen last.
    pub(crate) fn set_group_id_stays(&self) -> bool {
        self.set_group_id_stays.load(Ordering::Relaxed)
    }

    pub(crate) fn set_opened(&self, file: &Arc<LowerFile>) {
        *self.opened.lock() = Arc::downgrade(file);
    }

    pub(crate) fn opened(&self) -> Option<Arc<LowerFile>> {
        self.opened.lock().upgrade()
    }

    pub(crate) fn place(&self) -> Option<(Arc<Inode>, CString)> {
        let reach = self.reach.lock();
        let place = reach.place.as_ref()?;
        Some((Arc::clone(&place.parent), place.name.clone()))
    }

    pub(crate) fn boxed_place(&self) -> Option<Box<Place>> {
        let (parent, name) = self.place()?;
        Some(Box::new(Place { parent, name }))
    }

    pub(crate) fn set_place(&self, place: Option<Box<Place>>) {
        let mut reach = self.reach.lock();
        // It is found again, and its descriptor is everybody's.
        let charge = place.as_ref().and_then(|_| reach.held.charge.take());
        let old = std::mem::replace(&mut reach.place, place);
        // The old place may hold the last reference to a parent: let go of it outside the lock.
        drop(reach);
        drop((old, charge));
    }

    /// Whether the kernel's cached data are of this version; remembers it for the next time.
    pub(crate) fn same_version_as_cached(&self, version: u64) -> bool {
        self.cached_version.swap(version, Ordering::Relaxed) == version
    }

    /// Whether it is remembered what the kernel's cached data are of.
    pub(crate) fn has_cached_version(&self) -> bool {
        self.cached_version() != 0
    }

    /// What the kernel's cached data are of; 0 if that is not known.
    pub(crate) fn cached_version(&self) -> u64 {
        self.cached_version.load(Ordering::Relaxed)
    }

    pub(crate) fn set_cached_version(&self, version: u64) {
        self.cached_version.store(version, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_fits_the_budget_of_300_bytes() {
        // With the two counts of Arc, a slot in the table and an entry in the map.
        let bytes = size_of::<Inode>() + 16 + 24 + 8;
        assert!(bytes <= 232, "{bytes} bytes an inode");
    }
}
