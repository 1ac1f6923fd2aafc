//! Marks: one for a file system, or one for each directory in use, and for files with several names. A mark costs the kernel some 100
//! bytes, and holds its inode in memory (about 1 KB).

use crate::identity::Identity;
use crate::quota::{QuotaCharge, UserQuotas};
use crate::tree::{Followed, Inode, LowerMount, Tree, folds_case};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use thrufs::{Errno, Result};
use thrufs_abi::NodeId;
use thrufs_sys::fanotify::{
    ATTRIBUTES, DATA, Group, Handle, MOVED, NAMES, OF_ENTRIES, ON_DIRECTORY,
};

const OF_DIRECTORIES: u64 = OF_FILE_SYSTEMS | OF_ENTRIES;
/// A rename by other directories, which may have no marks, comes without a change of attributes.
const OF_FILES: u64 = DATA | ATTRIBUTES | MOVED;
const OF_FILE_SYSTEMS: u64 = NAMES | DATA | ATTRIBUTES | ON_DIRECTORY;

pub(super) struct Marks {
    wanted: Wanted,
    /// The first, and one for each subvolume (btrfs): a group has marks in one alone.
    groups: RwLock<Vec<Arc<Group>>>,
    /// There is a group that the reader does not know.
    has_new_group: AtomicBool,
    count: AtomicUsize,
    /// So that no user takes all marks by looking at many directories.
    quotas: Arc<UserQuotas>,
    charges: Mutex<HashMap<NodeId, QuotaCharge>>,
    /// Orders marking and unmarking.
    changing: Mutex<()>,
    file_systems: RwLock<Vec<FileSystem>>,
    /// A file system is served by several mounts, of which one may show what another changes.
    has_aliases: AtomicBool,
    /// That no more can be marked was logged.
    logged: AtomicBool,
}

/// What is to be marked.
pub(super) struct Wanted {
    /// Most inodes.
    pub(super) most: usize,
    pub(super) whole_file_systems: bool,
    /// Nobody else changes anything by the mounts of this process, so what is written by them is no change
    /// beneath.
    pub(super) mounts_are_private: bool,
}

/// Where marked inodes are: a file system may be served by several mounts, and a mount may show several (btrfs).
struct FileSystem {
    /// `f_fsid` of `statfs(2)`.
    id: u64,
    mount: u32,
    has_handles: bool,
    is_whole: bool,
    ignores_own_writes: bool,
}

impl FileSystem {
    fn identity(&self, handle: Handle<'_>) -> Option<Identity> {
        let from = if self.has_handles {
            Identity::from_parts
        } else {
            Identity::by_closed_handle
        };
        from(self.mount, handle.kind, handle.bytes)
    }
}

impl Marks {
    pub(super) fn new(mut wanted: Wanted, server_uid: u32) -> Result<Marks> {
        let group = Group::new()?;
        if !group.has_unlimited_marks() {
            wanted.most = wanted.most.min(marks_of_user() / 2);
        }
        let most = wanted.most;
        Ok(Marks {
            wanted,
            groups: RwLock::new(vec![Arc::new(group)]),
            has_new_group: AtomicBool::new(false),
            count: AtomicUsize::new(0),
            quotas: UserQuotas::new(most / 2, most / 4 * 3, server_uid),
            charges: Mutex::default(),
            changing: Mutex::new(()),
            file_systems: RwLock::default(),
            has_aliases: AtomicBool::new(false),
            logged: AtomicBool::new(false),
        })
    }

    /// The groups whose events are to be read.
    pub(super) fn groups(&self) -> Vec<Arc<Group>> {
        self.groups.read().clone()
    }

    /// Whether there are more [groups](Self::groups) since this was last asked.
    pub(super) fn has_new_group(&self) -> bool {
        let is_new = &self.has_new_group;
        is_new.load(Ordering::SeqCst) && is_new.swap(false, Ordering::SeqCst)
    }

    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Notes of an inode that its attributes are followed, if its file system is marked as a whole: whatever its names
    /// are. Subvolumes may have marks of their own.
    pub(super) fn note_file_system(&self, inode: &Inode) {
        let mount = inode.mount();
        let known = self.file_systems.read();
        let mut here = known.iter().filter(|it| it.mount == mount.index);
        if !mount.has_subvolumes() && here.any(|it| it.is_whole) {
            inode.followed.set(Followed::BY_FILE_SYSTEM);
        }
    }

    /// Whether an inode is marked, of a directory the names in it as well, perhaps from now on, for a user. A directory
    /// may be `open` for reading.
    pub(super) fn has(
        &self,
        tree: &Tree,
        inode: &Arc<Inode>,
        uid: Option<u32>,
        open: Option<BorrowedFd<'_>>,
    ) -> bool {
        if inode.followed.any(Followed::MARKED) {
            return true;
        }
        if inode.followed.any(Followed::REFUSED) {
            return false;
        }
        match self.mark(tree, inode, uid, open) {
            Ok(()) => true,
            // Another user may have it marked.
            Err(Errno::ENFILE) => false,
            Err(error) => {
                inode.followed.set(Followed::REFUSED);
                if error == Errno::ENOSPC && !self.logged.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        marks = self.count(),
                        "no more directories can be followed (follow_marks, user.max_fanotify_marks): further \
                         ones are asked for again after a second"
                    );
                }
                tracing::debug!(node = ?inode.node(), %error, "not followed");
                false
            }
        }
    }

    /// # Errors
    /// `EOPNOTSUPP` where others may change it unseen, `ENFILE` if the user has too many, `ENOSPC`, and those of
    /// fanotify_mark(2).
    pub(super) fn mark(
        &self,
        tree: &Tree,
        inode: &Arc<Inode>,
        uid: Option<u32>,
        open: Option<BorrowedFd<'_>>,
    ) -> Result<()> {
        if inode.mount().is_remote {
            return Err(Errno::EOPNOTSUPP);
        }
        tree.credentials.as_server()?;
        if inode.is_directory() && folds_case(tree, inode, open)? {
            // An event has one spelling of a name, the kernel above may have others.
            return Err(Errno::EOPNOTSUPP);
        }
        if inode.followed.any(Followed::BY_FILE_SYSTEM) {
            inode.followed.set(Followed::MARKED);
            return Ok(());
        }
        let descriptor = tree.descriptor(inode)?;
        let id = rustix::fs::fstatvfs(descriptor.as_fd())?.f_fsid;
        let _changing = self.changing.lock();
        if inode.followed.any(Followed::MARKED) {
            return Ok(());
        }
        match self.is_whole(id, inode.mount()) {
            Some(true) => _ = inode.followed.set(Followed::BY_FILE_SYSTEM),
            Some(false) => {
                let charge = self.quotas.charge(uid)?;
                self.mark_inode(inode, descriptor.as_fd())?;
                let charge = charge.map(|charge| (inode.node(), charge));
                self.charges.lock().extend(charge);
            }
            None => {
                let group = self.mark_inode(inode, descriptor.as_fd())?;
                self.enter(tree, (id, inode.mount()), (&group, descriptor.as_fd()));
            }
        }
        inode.followed.set(Followed::MARKED);
        Ok(())
    }

    /// Whether a file system is marked as a whole, if anything in it is marked.
    fn is_whole(&self, id: u64, mount: &LowerMount) -> Option<bool> {
        let known = self.file_systems.read();
        let mut known = known.iter();
        let known = known.find(|it| it.id == id && it.mount == mount.index);
        known.map(|known| known.is_whole)
    }

    /// Whether any file system is marked as a whole.
    pub(super) fn has_whole(&self) -> bool {
        self.file_systems.read().iter().any(|it| it.is_whole)
    }

    /// Adds a mark to the group of the inode's subvolume, which is returned.
    fn mark_inode(&self, inode: &Inode, descriptor: BorrowedFd<'_>) -> Result<Arc<Group>> {
        if self.count() >= self.wanted.most {
            return Err(Errno::ENOSPC);
        }
        let events = events_of(inode);
        let of_another_subvolume = Err(rustix::io::Errno::XDEV);
        for group in self.groups() {
            let marked = group.mark(descriptor, events);
            if marked != of_another_subvolume {
                marked?;
                self.count.fetch_add(1, Ordering::Relaxed);
                return Ok(group);
            }
        }
        let group = Arc::new(Group::new()?);
        group.mark(descriptor, events)?;
        self.count.fetch_add(1, Ordering::Relaxed);
        self.groups.write().push(Arc::clone(&group));
        self.has_new_group.store(true, Ordering::SeqCst);
        Ok(group)
    }

    /// Knows a file system from now on, by a mount and a marked inode.
    fn enter(
        &self,
        tree: &Tree,
        (id, mount): (u64, &LowerMount),
        (group, inode): (&Group, BorrowedFd<'_>),
    ) {
        let whole = self.wanted.whole_file_systems;
        let whole = whole.then(|| group.mark_file_system(inode, OF_FILE_SYSTEMS));
        let mut known = self.file_systems.write();
        known.retain(|known| tree.mounts.get(known.mount).is_some());
        let is_alias = known.iter().any(|other| other.id == id);
        for other in known.iter_mut().filter(|other| other.id == id) {
            self.has_aliases.store(true, Ordering::SeqCst);
            if std::mem::take(&mut other.ignores_own_writes)
                && let Some(mount) = tree.mounts.get(other.mount)
                && let Ok(anchor) = tree.mounts.anchor(&mount, |parent| tree.descriptor(parent))
            {
                let _ = group.report_data_by_mount(anchor.as_fd());
            }
        }
        // What the kernel above writes itself (passthrough) has the process id of its caller.
        let ignoring = self.wanted.mounts_are_private && !is_alias;
        let ignoring = ignoring.then(|| group.ignore_data_by_mount(inode));
        tracing::debug!(id, ?whole, ?ignoring, is_alias, "a file system is followed");
        known.push(FileSystem {
            id,
            mount: mount.index,
            has_handles: mount.has_handles,
            is_whole: whole == Some(Ok(())),
            ignores_own_writes: ignoring == Some(Ok(())),
        });
    }

    /// Reports no more data of a file, by whatever mark.
    pub(super) fn ignore_data(&self, file: BorrowedFd<'_>) -> Result<()> {
        let ignored = self
            .groups()
            .into_iter()
            .map(|group| group.ignore_data(file));
        let mut ignored = ignored.filter(|it| *it != Err(rustix::io::Errno::XDEV));
        Ok(ignored.next().ok_or(Errno::EXDEV)??)
    }

    /// Ends [`ignore_data`](Self::ignore_data); also if the mark is gone with its inode.
    ///
    /// # Errors
    /// `EACCES` for a file that the server may not read any more.
    pub(super) fn report_data(&self, file: BorrowedFd<'_>) -> Result<()> {
        for group in self.groups() {
            match group.report_data(file) {
                Err(rustix::io::Errno::NOENT | rustix::io::Errno::XDEV) => {}
                reported => return Ok(reported?),
            }
        }
        Ok(())
    }

    /// The `f_fsid` of a served mount, if anything on it is marked.
    pub(super) fn file_system(&self, mount: u32) -> Option<u64> {
        let known = self.file_systems.read();
        known.iter().find(|it| it.mount == mount).map(|it| it.id)
    }

    /// The identity of an inode anywhere on a file system that is marked as a whole, by a mount that leads to it.
    pub(super) fn identity_of(&self, handle: Handle<'_>) -> Option<Identity> {
        let known = self.file_systems.read();
        let mut whole = known.iter().filter(|it| it.is_whole && it.has_handles);
        let whole = whole.find(|it| it.id == handle.file_system)?;
        whole.identity(handle)
    }

    /// Whether what is changed by one mount may have to be told of another.
    pub(super) fn has_aliases(&self) -> bool {
        self.has_aliases.load(Ordering::SeqCst)
    }

    /// Whether no event tells of what the kernel above writes itself by a mount.
    pub(super) fn ignores_own_writes(&self, mount: &LowerMount) -> bool {
        let known = self.file_systems.read();
        let mut here = known.iter().filter(|it| it.mount == mount.index);
        here.all(|it| it.ignores_own_writes)
    }

    /// Takes the mark off a forgotten inode, unless it was looked up again meanwhile, or is known by another
    /// mount as well. To open a directory whose name is not in memory takes the file system a millisecond.
    pub(super) fn forget(&self, tree: &Tree, inode: &Arc<Inode>) {
        if !inode.followed.any(Followed::MARKED) {
            return;
        }
        let is_own = !inode.followed.any(Followed::BY_FILE_SYSTEM);
        let descriptor = is_own.then(|| tree.open_inode(inode, libc::O_PATH));
        let _changing = self.changing.lock();
        inode.followed.clear(Followed::MARKED);
        if inode.lookups() > 0 {
            inode.followed.set(Followed::MARKED);
            return;
        }
        let Some(descriptor) = descriptor else { return };
        self.count.fetch_sub(1, Ordering::Relaxed);
        drop(self.charges.lock().remove(&inode.node()));
        if self.is_shared(tree, inode) {
            return;
        }
        // What was removed beneath is gone with its mark.
        if let Ok(fd) = descriptor {
            let unmark = |group: &Arc<Group>| group.unmark(fd.as_fd(), events_of(inode)).is_ok();
            self.groups().iter().any(unmark);
        }
    }

    fn is_shared(&self, tree: &Tree, inode: &Inode) -> bool {
        let mut known = self.everywhere(tree, inode).into_iter();
        known.any(|it| it.followed.any(Followed::MARKED))
    }

    /// The known inodes with the handle of `inode`: it may be known by several mounts.
    pub(super) fn everywhere(&self, tree: &Tree, inode: &Inode) -> Vec<Arc<Inode>> {
        let mounts = self.file_systems.read();
        let mounts = mounts.iter();
        let known = mounts.filter_map(|it| tree.nodes.find(&inode.identity().on(it.mount)));
        known.collect()
    }

    /// The known inodes with a handle: one for each served mount that shows it.
    pub(super) fn known(&self, tree: &Tree, handle: Handle<'_>) -> Vec<Arc<Inode>> {
        let mounts = self.file_systems.read();
        let here = mounts.iter().filter(|it| it.id == handle.file_system);
        here.filter_map(|it| tree.nodes.find(&it.identity(handle)?))
            .collect()
    }
}

/// How many marks this user may have in all (`user.max_fanotify_marks`).
fn marks_of_user() -> usize {
    let limit = std::fs::read_to_string("/proc/sys/user/max_fanotify_marks");
    let limit = limit.ok().and_then(|limit| limit.trim().parse().ok());
    limit.unwrap_or(usize::MAX)
}

fn events_of(inode: &Inode) -> u64 {
    if inode.is_directory() {
        OF_DIRECTORIES
    } else {
        OF_FILES
    }
}
