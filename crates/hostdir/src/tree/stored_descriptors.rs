//! Forgets nodes, and keeps what would be lost: descriptors of inodes without a name, stored for a resuming
//! process or charged to the user who removed them.

use super::Tree;
use super::beneath::End;
use super::inode::Inode;
use super::lower_inode::Descriptor;
use super::noted::Noted;
use super::open_store::STORED_MAX;
use crate::ledger::{FdStore, Key};
use crate::stat::stat_open;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thrufs::Result;
use thrufs_abi::NodeId;

impl Tree {
    pub(crate) fn fd_store(&self) -> Option<&dyn FdStore> {
        self.fd_store.as_deref()
    }

    /// Stores a descriptor outside this process. False if that fails: a resumed session lacks it then.
    pub(crate) fn keep(&self, key: Key, fd: BorrowedFd<'_>) -> bool {
        let Some(fd_store) = self.fd_store() else {
            return false;
        };
        match fd_store.keep(key.into(), fd) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(?key, %error, "cannot store a descriptor for the next worker");
                false
            }
        }
    }

    pub(crate) fn discard(&self, key: Key) {
        if let Some(fd_store) = self.fd_store() {
            fd_store.discard(key.into());
        }
    }

    /// Names were removed: the blocks of files without names are free when this returns.
    pub(crate) fn settle_discards(&self) {
        if self.discarded.swap(false, Ordering::SeqCst)
            && let Some(fd_store) = self.fd_store()
        {
            fd_store.settle();
        }
    }

    /// A name of an inode is about to be removed. If it is the last name of an open file, or the only known one
    /// of an inode without a file handle, nothing else would lead a resuming process to it.
    pub(crate) fn keep_if_last_name(&self, inode: &Arc<Inode>, end: End<'_>) {
        let is_found_by_name = !inode.mount().has_handles;
        let is_in_question = inode.uses.is_open() || is_found_by_name && !inode.is_directory();
        if self.fd_store().is_none() || !is_in_question {
            return;
        }
        let Ok(descriptor) = self.descriptor(inode) else {
            return;
        };
        let has_other_names = stat_open(&descriptor).is_ok_and(|stat| stat.stx_nlink > 1);
        let is_needed = match (has_other_names, is_found_by_name) {
            (true, true) => !self.is_also_elsewhere(inode, end),
            (true, false) => false,
            (false, _) => inode.uses.is_open(),
        };
        if is_needed {
            self.store(&mut self.stored.lock(), inode, &descriptor);
        }
    }

    /// As [`keep_if_last_name`](Self::keep_if_last_name), for a file without a name.
    pub(crate) fn keep_inode(&self, inode: &Arc<Inode>, fd: BorrowedFd<'_>) {
        if self.fd_store().is_none() {
            return;
        }
        // O_PATH: an open file would stay busy as long as it is stored.
        if let Ok(fd) = self.reopen(fd, libc::O_PATH) {
            self.store(
                &mut self.stored.lock(),
                inode,
                &Descriptor::Cached(Arc::new(fd)),
            );
        }
    }

    fn store(&self, stored: &mut usize, inode: &Arc<Inode>, descriptor: &Descriptor) {
        if inode.lower.is_stored.load(Ordering::SeqCst) {
            return;
        }
        let key = Key::Node(inode.node());
        let is_stored = match descriptor {
            Descriptor::Cached(fd) => self.keep(key, fd.as_fd()),
            // As above.
            Descriptor::Opened(file) => self
                .reopen(file.as_fd(), libc::O_PATH)
                .is_ok_and(|fd| self.keep(key, fd.as_fd())),
        };
        if is_stored {
            *stored += 1;
            inode.lower.is_stored.store(true, Ordering::SeqCst);
            if !inode.uses.is_open() && !inode.lower.is_found_by_descriptor_alone() {
                // Closed meanwhile, by a request that did not see it stored.
                self.open_store.enter(inode);
            }
        }
    }

    /// A file was opened.
    pub(crate) fn was_opened(&self, inode: &Arc<Inode>) {
        if self.fd_store.is_some() && !inode.lower.is_stored.load(Ordering::SeqCst) {
            self.open_store.enter(inode);
        }
    }

    /// An open file was closed, perhaps the last one of its inode. Its descriptor is discarded now: a file that is
    /// removed next is to free its blocks.
    pub(crate) fn was_closed(&self, inode: &Arc<Inode>) {
        if inode.lower.is_stored.load(Ordering::SeqCst) {
            self.store_if_open(inode);
        }
    }

    /// Stores a descriptor of an open file, or discards that of a closed one.
    pub(super) fn store_if_open(&self, inode: &Arc<Inode>) {
        let Some(fd_store) = self.fd_store() else {
            return;
        };
        let is_stored = &inode.lower.is_stored;
        let is_to_be_stored = !is_stored.load(Ordering::SeqCst) && inode.uses.is_open();
        // Before the lock: the file system beneath may let it wait.
        let descriptor = is_to_be_stored.then(|| self.descriptor(inode).ok());
        let stored = &mut *self.stored.lock();
        if self.open_store.is_over() {
            return;
        }
        let stored_max = STORED_MAX.min(fd_store.kept_max() / 2);
        if inode.uses.is_open() {
            if let Some(descriptor) = descriptor.flatten().filter(|_| *stored < stored_max) {
                self.store(stored, inode, &descriptor);
            }
        } else if is_stored.swap(false, Ordering::SeqCst) {
            // An open from now on enters the inode again; one from before shows here.
            if inode.uses.is_open() || inode.lower.is_found_by_descriptor_alone() {
                is_stored.store(true, Ordering::SeqCst);
            } else {
                *stored = stored.saturating_sub(1);
                self.discard(Key::Node(inode.node()));
                self.discarded.store(true, Ordering::SeqCst);
                if inode.noted.has(Noted::LostAName) {
                    self.settle_discards();
                }
            }
        }
        // Forgotten meanwhile: whoever sees both, discards it.
        if self.nodes.get(inode.node()).is_err() && is_stored.swap(false, Ordering::SeqCst) {
            *stored = stored.saturating_sub(1);
            self.discard(Key::Node(inode.node()));
        }
    }

    /// A descriptor that another process has stored.
    pub(crate) fn record_stored(&self, inode: &Inode) {
        *self.stored.lock() += 1;
        inode.lower.is_stored.store(true, Ordering::SeqCst);
    }

    /// What is stored stays: files are closed with this process's state, and open for the next worker.
    pub(crate) fn stop_storing(&self) {
        // The thread looks whether it is over under this lock.
        let _stored = self.stored.lock();
        self.open_store.end();
    }

    /// The session is over: discards all.
    pub(crate) fn end_storing(&self) {
        self.open_store.end();
        let stored = &mut *self.stored.lock();
        for (_, inode) in self.nodes.iter() {
            if inode.lower.is_stored.swap(false, Ordering::SeqCst) {
                self.discard(Key::Node(inode.node()));
            }
        }
        *stored = 0;
    }

    pub(crate) fn forget(&self, node: NodeId, count: u64) {
        drop(self.take_lookups(node, count));
    }

    /// Takes back lookups of a node. Returns its inode if they were the last.
    pub(crate) fn take_lookups(&self, node: NodeId, count: u64) -> Option<Arc<Inode>> {
        let forgotten = self.nodes.forget(node, count)?;
        if forgotten.lower.is_stored.swap(false, Ordering::SeqCst) {
            let mut stored = self.stored.lock();
            *stored = stored.saturating_sub(1);
            self.discard(Key::Node(node));
        }
        Some(forgotten)
    }

    /// A name of an inode without a file handle was removed. Without another place it keeps its descriptor,
    /// since it may have other names; but not a file without links, which must be freed, nor beyond the
    /// user's quota of removed inodes.
    pub(crate) fn forget_place(&self, uid: Option<u32>, inode: &Arc<Inode>, end: End<'_>) {
        if self.is_elsewhere_now(inode, end) {
            return;
        }
        let links = self
            .descriptor(inode)
            .map(|fd| rustix::fs::fstat(fd.as_fd()));
        if inode.is_regular() && matches!(links, Ok(Ok(stat)) if stat.st_nlink == 0) {
            inode.last_name_removed();
        }
        self.drop_if_over_quota(uid, inode);
    }

    /// As [`forget_place`](Self::forget_place), for a name that is another inode's now: clients that have looked
    /// it up before still reach this one.
    pub(crate) fn forget_replaced(&self, uid: Option<u32>, inode: &Arc<Inode>, end: End<'_>) {
        if !self.is_elsewhere_now(inode, end) {
            self.drop_if_over_quota(uid, inode);
        }
    }

    /// Forgets a place of an inode without a file handle; returns whether another one leads to it.
    fn is_elsewhere_now(&self, inode: &Arc<Inode>, end: End<'_>) -> bool {
        let is_elsewhere = self.is_also_elsewhere(inode, end);
        if is_elsewhere {
            self.nodes.left(inode, &end.place());
        } else {
            self.nodes.left_all(inode);
            // A descriptor that was stored while the file was open may have been discarded before that was known.
            let is_discarded = || !inode.lower.is_stored.load(Ordering::SeqCst);
            if self.fd_store().is_some() && is_discarded() {
                self.keep_if_last_name(inode, end);
            }
        }
        is_elsewhere
    }

    pub(crate) fn drop_if_over_quota(&self, uid: Option<u32>, inode: &Arc<Inode>) {
        if self.charge_removed(uid, inode).is_err() {
            inode.lower.drop_for_good();
        }
    }

    /// Charges a removed inode that only its descriptor leads to, to the user who removed it. Fails with
    /// `ENFILE` when the quota of that user, or of all users, is used up.
    pub(crate) fn charge_removed(&self, uid: Option<u32>, inode: &Arc<Inode>) -> Result<()> {
        if !inode.lower.can_be_found_again() && inode.lower.has_descriptor() {
            inode
                .lower
                .charge_descriptor(self.removed_quotas.charge(uid)?);
        }
        Ok(())
    }
}
