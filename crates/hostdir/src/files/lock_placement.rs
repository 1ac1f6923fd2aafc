//! How a request to lock finds out where its locks are set: as they are, or behind those of the
//! [mount](super::mount_lock), which locks the file first.

use super::Files;
use super::lock_owners::MOUNT;
use super::mount_lock::{Joined, Phase, RANGES_END, SHIFT, of_mount};
use super::open_file::OpenFile;
use crate::ledger::OwnerNote;
use crate::tree::Inode;
use thrufs::{Context, Errno, Result};
use thrufs_abi::{FileHandle, NodeId};
use thrufs_policy::DataPath;
use thrufs_sys::lock::{self, LockKind, RangeLock};

/// How the locks of an inode are set, while it is held.
pub(super) struct Placement<'a>(Option<Joined<'a>>);

impl Placement<'_> {
    /// The range beneath for one above.
    pub(super) fn beneath(&self, range: &RangeLock) -> Result<RangeLock> {
        self.0
            .as_ref()
            .map_or(Ok(*range), |joined| joined.beneath(range))
    }
}

impl Files {
    /// Has the mount lock the file, if its locks demand that.
    pub(super) fn join_locks(
        &self,
        context: &Context<'_>,
        file: &OpenFile,
        range: &RangeLock,
        wait: bool,
    ) -> Result<Placement<'_>> {
        if !self.may_map_shared(file) || file.inode().dax().is_reported() {
            return Ok(Placement(None));
        }
        let (locks, node) = (&self.mount_locks, file.node());
        let mut joined = locks.join(node, file.is_writable() && range.end < RANGES_END);
        loop {
            match locks.phase(node) {
                Phase::Exact => break,
                Phase::Held => {
                    joined.is_shifted = true;
                    break;
                }
                Phase::Free | Phase::Taking | Phase::Leaving => context.require_blocking()?,
            }
            if !locks.begin_taking(node) {
                locks.wait_for_others(context, node, wait)?;
                continue;
            }
            let taken = self.take_for_all(context, file);
            locks.end_phase(
                node,
                if taken.is_ok() {
                    Phase::Held
                } else {
                    Phase::Free
                },
            );
            match taken {
                Err(Errno::EAGAIN) if wait => self.wait_beneath(context, node)?,
                taken => taken?,
            }
        }
        Ok(Placement(Some(joined)))
    }

    /// Whether the kernel above has pages of a file that is mapped shared: also where nothing else is cached, by
    /// `FUSE_DIRECT_IO_ALLOW_MMAP`, which is negotiated for the whole mount.
    fn may_map_shared(&self, file: &OpenFile) -> bool {
        match file.path() {
            DataPath::Cached => true,
            DataPath::Direct => self.config.cache.data_path() == DataPath::Direct,
            DataPath::Passthrough | DataPath::Filtered => false,
        }
    }

    /// Locks a file for all owners above, in [`Phase::Taking`]. What another side has changed under its lock is
    /// read anew, also of other files that are open: a lock may stand for those.
    fn take_for_all(&self, context: &Context<'_>, file: &OpenFile) -> Result<()> {
        let locks = &self.mount_locks;
        let node = file.node();
        let mount = match self.locks.get(node, MOUNT) {
            Some(known) => known,
            None => self.new_owner(context, file, note(node))?,
        };
        match lock::ofd_set(&mount.fd, &of_mount(LockKind::Write)).map_err(Errno::from) {
            Err(Errno::EACCES) => return Err(Errno::EAGAIN),
            // A file that the server cannot write either.
            Err(Errno::EBADF) => return Err(Errno::ENOLCK),
            set => set?,
        }
        let others = self.files.iter().map(|(_, open)| open);
        let others = others.filter(|open| self.may_map_shared(open));
        let mut nodes = vec![node];
        nodes.extend(others.map(|open| open.node()));
        locks.drop_pages(nodes).inspect_err(|_| {
            tracing::debug!(?node, "the kernel does not drop its pages for a lock");
            locks.unlock(&mount);
        })
    }

    /// Waits for locks of the host.
    fn wait_beneath(&self, context: &Context<'_>, node: NodeId) -> Result<()> {
        let Some(mount) = self.locks.get(node, MOUNT) else {
            return Ok(());
        };
        let range = of_mount(LockKind::Write);
        context.interruptible(|_| Ok(lock::ofd_set_wait(&mount.fd, &range)?))
    }

    pub(crate) fn is_locked_by_mount(&self, inode: &Inode) -> bool {
        let mount = self.locks.get(inode.node(), MOUNT);
        mount.is_some_and(|mount| mount.holds_any(0, SHIFT - 1))
    }

    /// Gives up locks of the mount that no owner needs, after a session was resumed.
    pub(crate) fn settle_mount_locks(&self) {
        for owner in self.locks.all() {
            let note = owner.note();
            if note.owner == MOUNT {
                self.mount_locks.settle(note.node);
            }
        }
    }
}

fn note(node: NodeId) -> OwnerNote {
    OwnerNote {
        node,
        owner: MOUNT,
        handle: FileHandle(0),
        pid: 0,
    }
}
