//! How a request to lock finds out where its locks are set: as they are, or behind those of the
//! [mount](super::mount_lock), which locks the file first.

use super::Files;
use super::lock_notifications::PATIENCE;
use super::lock_owners::{Exact, MOUNT};
use super::locks::TOLD_MAX;
use super::mount_lock::{Asked, Joined, RANGES_END, Step, give_up};
use super::open_file::OpenFile;
use crate::follow::Untold;
use crate::ledger::OwnerNote;
use crate::tree::{Inode, Noted};
use std::time::Instant;
use thrufs::{Context, Errno, LockArgs, Result};
use thrufs_abi::{FileHandle, NodeId};
use thrufs_policy::DataPath;
use thrufs_sys::lock::LockKind;

impl Files {
    /// Has the mount lock the file, if its locks demand that. `None` where they never do.
    pub(super) fn join_locks(
        &self,
        context: &Context<'_>,
        file: &OpenFile,
        args: &LockArgs,
        wait: bool,
    ) -> Result<Option<Joined<'_>>> {
        if !self.may_map_shared(file) || file.inode().dax.is_reported() {
            return Ok(None);
        }
        let locks = &self.mount_locks;
        let asked = Asked {
            node: file.node(),
            owner: args.owner,
            kind: match file.writable {
                true => LockKind::Write,
                false => LockKind::Read,
            },
            is_of_range: args.end < RANGES_END,
        };
        if asked.is_of_range && file.writable {
            file.inode().noted.set(Noted::TakesTurns);
        }
        let started = Instant::now();
        locks.wait_for_turn(context, &asked)?;
        loop {
            let patience = match locks.join(&asked) {
                Step::Placed(joined) => return Ok(Some(joined)),
                Step::Wait(patience) => patience,
                Step::Change(mut joined) => {
                    let taken = self.take_for_all(context, file, &asked, wait);
                    joined.changed();
                    match taken {
                        Ok(()) => return Ok(Some(joined)),
                        Err(Errno::EAGAIN) if wait => PATIENCE,
                        Err(error) => return Err(error),
                    }
                }
            };
            locks.wait(context, started, (!wait).then_some(patience))?;
        }
    }

    /// Whether the kernel above has pages of a file that is mapped shared: also where nothing else is cached, by
    /// `FUSE_DIRECT_IO_ALLOW_MMAP`, which is negotiated for the whole mount.
    pub(super) fn may_map_shared(&self, file: &OpenFile) -> bool {
        match file.path() {
            DataPath::Cached => true,
            DataPath::Direct => self.config.cache.data_path() == DataPath::Direct,
            DataPath::Passthrough | DataPath::Filtered => false,
        }
    }

    /// Locks a file for all owners above.
    fn take_for_all(
        &self,
        context: &Context<'_>,
        file: &OpenFile,
        asked: &Asked,
        wait: bool,
    ) -> Result<()> {
        context.require_blocking()?;
        let (locks, node, uid) = (&self.mount_locks, asked.node, context.uid());
        let mount = match self.locks.get(node, MOUNT) {
            Some(known) => known,
            None => self.new_owner(context, file, note(node))?,
        };
        if locks.held(node).is_some() {
            locks.set(node, &mount, asked.kind, None)?;
            return locks.is_locked(node, asked.kind, uid);
        }
        locks.pause(node);
        // In this order. What waits can get its lock first and ask for more, so nobody waits for that beneath.
        let is_alone = !locks.has_waiters(node)
            && self.locks.hold_exactly(node, asked.owner) == Exact::Nothing;
        let first = if is_alone { asked.kind } else { LockKind::Read };
        let set = locks.set(node, &mount, first, (wait && is_alone).then_some(context));
        if set == Err(Errno::ENOLCK) {
            // The file was executed when the mount opened it. The next request opens it anew.
            self.locks.remove(node, MOUNT);
            mount.release(&self.tree);
        }
        set?;
        self.refresh_pages(node, uid)
            .and_then(|()| locks.is_locked(node, first, uid))
            .inspect_err(|error| {
                tracing::debug!(?node, %error, "a file cannot be locked by the mount");
                give_up(&mount);
            })?;
        if first != asked.kind {
            locks.set(node, &mount, asked.kind, None)?;
            locks.is_locked(node, asked.kind, uid)?;
        }
        Ok(())
    }

    /// What another side has changed under its lock is read anew, also of other files that are open: a lock may
    /// stand for those.
    fn refresh_pages(&self, node: NodeId, uid: Option<u32>) -> Result<()> {
        self.mount_locks.drop_pages(node, uid)?;
        if let Some(untold) = self.follow.untold(TOLD_MAX) {
            self.ask_anew(&untold);
        }
        Ok(())
    }

    /// The kernel above asks for what it could not be told in time: for all names, and the attributes of what has changed.
    pub(super) fn ask_anew(&self, untold: &Untold) {
        let Some(notifier) = self.tree.notifier.get() else {
            return;
        };
        let expire = |node: &NodeId| notifier.expire_attributes(*node);
        let unknown = untold.nodes.iter().map(expire);
        let unknown = unknown.filter(|it| *it == Err(Errno::ENOENT)).count();
        if untold.all_nodes {
            // What is not open is found by its name.
            let files = self.files.iter().map(|(_, open)| open.node());
            let directories = self.directories.iter().map(|(_, open)| open.node());
            for node in files.chain(directories).chain([NodeId::ROOT]) {
                let _ = expire(&node);
            }
        }
        // An answer about a node that is not known may be on its way: that is void then, too.
        let epoch = (untold.names || unknown > 0).then(|| notifier.increment_epoch_now());
        if let Some(Err(error)) = epoch {
            tracing::debug!(%error, "cannot invalidate cached names");
        }
        self.follow.asked(untold, epoch.is_none_or(|it| it.is_ok()));
    }

    /// Whether an open leaves the pages of a file alone that others may be writing, and may map: they are dropped when the
    /// mount locks it, and at changes that are followed.
    pub(super) fn keeps_pages(&self, inode: &Inode) -> bool {
        let is_followed = || self.follow.is_started() && !self.judge.has_policy();
        let is_locked = || self.mount_locks.held(inode.node()) == Some(LockKind::Write);
        inode.noted.has(Noted::TakesTurns)
            && self.tree.connected_notifier().is_some()
            && (is_followed() || is_locked())
    }

    pub(crate) fn is_locked_by_mount(&self, inode: &Inode) -> bool {
        self.mount_locks.held(inode.node()).is_some()
    }

    /// Counts locks, completes moves of them, and gives up locks of the mount that no owner needs, after a session was resumed.
    pub(crate) fn settle_mount_locks(&self) {
        for owner in self.locks.all() {
            let note = owner.note();
            if note.owner != MOUNT {
                owner.count();
                continue;
            }
            if self.mount_locks.held(note.node).is_some()
                && let Err(error) = self.locks.move_up(note.node)
            {
                tracing::error!(node = note.node.0, %error, "cannot move locks");
            }
            self.mount_locks.settle(note.node);
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
