//! Marks: one for each directory in use, and for files with several names. A mark costs the kernel some 120
//! bytes, and holds its inode in memory (about 1 KB).

use crate::identity::Identity;
use crate::tree::{Followed, Inode, Tree, folds_case};
use parking_lot::{Mutex, RwLock};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use thrufs::{Errno, Result};
use thrufs_sys::fanotify::{
    ATTRIBUTES, DATA, Group, Handle, MOVED, NAMES, OF_ENTRIES, ON_DIRECTORY,
};

const OF_DIRECTORIES: u64 = NAMES | DATA | ATTRIBUTES | ON_DIRECTORY | OF_ENTRIES;
/// A rename by other directories, which may have no marks, comes without a change of attributes.
const OF_FILES: u64 = DATA | ATTRIBUTES | MOVED;

pub(super) struct Marks {
    group: Group,
    count: AtomicUsize,
    most: usize,
    /// Nobody else changes anything by the mounts of this process.
    mounts_are_private: bool,
    /// Orders marking and unmarking.
    changing: Mutex<()>,
    file_systems: RwLock<Vec<FileSystem>>,
    /// That no more can be marked was logged.
    logged: AtomicBool,
}

/// Where marked inodes are: a file system may be served by several mounts, and a mount may show several (btrfs).
#[derive(PartialEq, Eq)]
struct FileSystem {
    /// `f_fsid` of `statfs(2)`.
    id: u64,
    mount: u32,
    has_handles: bool,
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
    pub(super) fn new(most: usize, mounts_are_private: bool) -> Result<Marks> {
        Ok(Marks {
            group: Group::new()?,
            count: AtomicUsize::new(0),
            most,
            mounts_are_private,
            changing: Mutex::new(()),
            file_systems: RwLock::default(),
            logged: AtomicBool::new(false),
        })
    }

    pub(super) fn group(&self) -> &Group {
        &self.group
    }

    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether an inode is marked, perhaps from now on.
    pub(super) fn has(&self, tree: &Tree, inode: &Arc<Inode>) -> bool {
        if inode.followed().any(Followed::MARKED) {
            return true;
        }
        if inode.followed().any(Followed::REFUSED) {
            return false;
        }
        match self.mark(tree, inode) {
            Ok(()) => true,
            Err(error) => {
                inode.followed().set(Followed::REFUSED);
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
    /// `EOPNOTSUPP` where others may change it unseen, `ENOSPC`, and those of fanotify_mark(2).
    pub(super) fn mark(&self, tree: &Tree, inode: &Arc<Inode>) -> Result<()> {
        if inode.mount().is_remote() {
            return Err(Errno::EOPNOTSUPP);
        }
        if self.count() >= self.most {
            return Err(Errno::ENOSPC);
        }
        tree.credentials.as_server()?;
        let descriptor = tree.descriptor(inode)?;
        if inode.is_directory() && folds_case(tree, inode)? {
            // An event has one spelling of a name, the kernel above may have others.
            return Err(Errno::EOPNOTSUPP);
        }
        let file_system = rustix::fs::fstatvfs(descriptor.as_fd())?.f_fsid;
        let _changing = self.changing.lock();
        if inode.followed().any(Followed::MARKED) {
            return Ok(());
        }
        self.enter(
            tree,
            FileSystem {
                id: file_system,
                mount: inode.mount().index(),
                has_handles: inode.mount().has_handles(),
            },
            descriptor.as_fd(),
        );
        self.group.mark(descriptor.as_fd(), events_of(inode))?;
        self.count.fetch_add(1, Ordering::Relaxed);
        inode.followed().set(Followed::MARKED);
        Ok(())
    }

    fn enter(&self, tree: &Tree, file_system: FileSystem, inode: BorrowedFd<'_>) {
        let is_known = self.file_systems.read().contains(&file_system);
        if is_known {
            return;
        }
        // What the kernel above writes itself (passthrough) has the process id of its caller.
        if self.mounts_are_private
            && let Err(error) = self.group.ignore_data_by_mount(inode)
        {
            tracing::debug!(%error, "own writes are taken for changes beneath");
        }
        let mut known = self.file_systems.write();
        known.retain(|known| tree.mounts.has(known.mount));
        known.push(file_system);
    }

    /// Takes the mark off a forgotten inode, unless it was looked up again meanwhile, or is known by another
    /// mount as well.
    pub(super) fn forget(&self, tree: &Tree, inode: &Arc<Inode>) {
        if !inode.followed().any(Followed::MARKED) {
            return;
        }
        let _changing = self.changing.lock();
        inode.followed().clear(Followed::MARKED);
        if inode.lookups() > 0 {
            inode.followed().set(Followed::MARKED);
            return;
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
        if self.is_shared(tree, inode) {
            return;
        }
        let unmarked = tree
            .open_inode(inode, libc::O_PATH)
            .and_then(|fd| Ok(self.group.unmark(fd.as_fd(), events_of(inode))?));
        if let Err(error) = unmarked {
            // Removed beneath, with its mark.
            tracing::trace!(node = ?inode.node(), %error, "no mark to take off");
        }
    }

    fn is_shared(&self, tree: &Tree, inode: &Inode) -> bool {
        let mounts = self.file_systems.read();
        mounts.iter().any(|it| {
            let known = tree.nodes.find(&inode.identity().on(it.mount));
            known.is_some_and(|known| known.followed().any(Followed::MARKED))
        })
    }

    /// The known inodes with a handle: one for each served mount that shows it.
    pub(super) fn known(&self, tree: &Tree, handle: Handle<'_>) -> Vec<Arc<Inode>> {
        let mounts = self.file_systems.read();
        let here = mounts.iter().filter(|it| it.id == handle.file_system);
        here.filter_map(|it| tree.nodes.find(&it.identity(handle)?))
            .collect()
    }
}

fn events_of(inode: &Inode) -> u64 {
    if inode.is_directory() {
        OF_DIRECTORIES
    } else {
        OF_FILES
    }
}
