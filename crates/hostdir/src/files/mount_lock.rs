//! Locks of files that programs above may map shared, without passthrough.
//!
//! Such a map is the page cache of the kernel above, and not that of the host: what one side stores, the other does
//! not see, and what the kernel above writes back later destroys what was stored beneath. Programs that share
//! memory through a file lock ranges of it with fcntl(2). So as long as owners above have such locks, the *mount*
//! has the file alone: an owner of its own ([`MOUNT`]) holds a write lock from the first byte to [`SHIFT`], and
//! the locks of the owners are moved behind that, where they conflict with each other alone. Before an owner
//! gets its first lock, and before the file is unlocked beneath, the kernel above drops its pages, and thereby
//! writes back those that were stored to.
//!
//! **Which files.** Those with the data path cached, from a lock of a writer on, while nobody holds another, of a
//! finite range below [`RANGES_END`]. What SQLite locks of a database itself is above that, and it reads that with
//! read(2); so are locks of a whole file.
//!
//! **Phases.** [`Phase`] is of a node, in a table under a lock. A request that is about to lock is counted
//! ([`Joined`]): meanwhile the phase does not leave [`Phase::Held`]. Only who has changed the phase to `Taking` or
//! `Leaving` sets the lock beneath and ends that phase; others wait. A request that waits for a lock of the host
//! does so in [`Phase::Free`], by the open file of the mount, so what it gets is what the next `Taking` finds.
//!
//! **Notifications** wait for pages, which other requests hold, so threads of their own send them, at most
//! [`THREADS_MAX`] at a time. A request waits for them for a second at most. Where the kernel above takes none
//! (guests), the lock is kept until the last owner has closed the file, which writes back and drops what was
//! mapped.

use super::lock_owners::{LockOwners, MOUNT, OwnerFile};
use crate::follow::Follow;
use crate::tree::Tree;
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};
use thrufs::{Context, Errno, Notifier, Result};
use thrufs_abi::NodeId;
use thrufs_sys::lock::{self, END_OF_FILE, LockKind, RangeLock};

/// Where the locks of owners above begin.
pub(super) const SHIFT: u64 = 1 << 62;

/// Where SQLite's locks of a database begin.
pub(super) const RANGES_END: u64 = 1 << 30;

/// How long the kernel above may take to drop pages, and another request to take or give up the lock.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long the lock stays with the host at least, so that one who waits for it there gets it.
const PAUSE: Duration = Duration::from_millis(1);

/// How often a waiting request looks whether it was interrupted.
const INTERVAL: Duration = Duration::from_millis(10);

const THREADS_MAX: usize = 8;

/// Most notifications that wait for a thread when a request asks for one more.
const JOBS_MAX: usize = 64;

pub(super) fn of_mount(kind: LockKind) -> RangeLock {
    RangeLock {
        kind,
        start: 0,
        end: SHIFT - 1,
        pid: 0,
    }
}

/// The range beneath for one above. Fails with `EOVERFLOW` for one that is too far up.
pub(super) fn shifted(range: &RangeLock) -> Result<RangeLock> {
    if range.start >= SHIFT {
        return Err(Errno::EOVERFLOW);
    }
    Ok(RangeLock {
        start: range.start + SHIFT,
        end: range.end.saturating_add(SHIFT).min(END_OF_FILE),
        ..*range
    })
}

/// The inverse of [`shifted`]; locks of the host stay as they are.
pub(super) fn unshifted(range: &RangeLock) -> RangeLock {
    let Some(start) = range.start.checked_sub(SHIFT) else {
        return *range;
    };
    let end = match range.end {
        END_OF_FILE.. => END_OF_FILE,
        end => end - SHIFT,
    };
    RangeLock {
        start,
        end,
        ..*range
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Locks are set as they are.
    Exact,
    /// The mount may lock the file.
    Free,
    Taking,
    Held,
    Leaving,
}

struct State {
    phase: Phase,
    /// Requests that are about to lock.
    users: u32,
    freed: Option<Instant>,
}

enum Job {
    /// Drops the pages of the first node, and the attributes of all.
    Drop(Vec<NodeId>, SyncSender<()>),
    Leave(NodeId),
}

#[derive(Default)]
struct Jobs {
    queue: VecDeque<Job>,
    threads: usize,
}

pub(crate) struct MountLocks {
    owners: Arc<LockOwners>,
    tree: Arc<Tree>,
    follow: Arc<Follow>,
    table: Mutex<HashMap<NodeId, State>>,
    changed: Condvar,
    jobs: Mutex<Jobs>,
}

/// A request that is about to lock, until it is dropped.
pub(super) struct Joined<'a> {
    locks: &'a Arc<MountLocks>,
    node: NodeId,
    pub(super) is_shifted: bool,
}

impl Joined<'_> {
    pub(super) fn beneath(&self, range: &RangeLock) -> Result<RangeLock> {
        match self.is_shifted {
            true => shifted(range),
            false => Ok(*range),
        }
    }
}

impl Drop for Joined<'_> {
    fn drop(&mut self) {
        if let Some(state) = self.locks.table.lock().get_mut(&self.node) {
            state.users -= 1;
        }
        self.locks.settle(self.node);
    }
}

impl MountLocks {
    pub(super) fn new(owners: Arc<LockOwners>, tree: Arc<Tree>, follow: Arc<Follow>) -> MountLocks {
        MountLocks {
            owners,
            tree,
            follow,
            table: Mutex::default(),
            changed: Condvar::new(),
            jobs: Mutex::default(),
        }
    }

    /// The state of a node that is not in the table, after a session was resumed or before its first lock.
    fn found(&self, node: NodeId) -> State {
        let phase = match self.owners.get(node, MOUNT) {
            None => Phase::Exact,
            Some(mount) if mount.holds_any(0, SHIFT - 1) => Phase::Held,
            Some(_) => Phase::Free,
        };
        State {
            phase,
            users: 0,
            freed: None,
        }
    }

    pub(super) fn join<'a>(self: &'a Arc<Self>, node: NodeId, is_of_map: bool) -> Joined<'a> {
        let mut table = self.table.lock();
        let state = table.entry(node).or_insert_with(|| self.found(node));
        let may_change = state.phase == Phase::Exact && state.users == 0;
        if may_change && is_of_map && self.owners.hold_nothing(node) {
            state.phase = Phase::Free;
        }
        state.users += 1;
        drop(table);
        Joined {
            locks: self,
            node,
            is_shifted: false,
        }
    }

    /// Of a node that is joined.
    pub(super) fn phase(&self, node: NodeId) -> Phase {
        let table = self.table.lock();
        table.get(&node).map_or(Phase::Exact, |state| state.phase)
    }

    /// From free to taking; false if another request was faster. The host has its turn first.
    pub(super) fn begin_taking(&self, node: NodeId) -> bool {
        let mut table = self.table.lock();
        let Some(state) = table.get_mut(&node).filter(|it| it.phase == Phase::Free) else {
            return false;
        };
        state.phase = Phase::Taking;
        let freed = state.freed;
        drop(table);
        if let Some(rest) = freed.and_then(|freed| PAUSE.checked_sub(freed.elapsed())) {
            thread::sleep(rest);
        }
        true
    }

    pub(super) fn end_phase(&self, node: NodeId, phase: Phase) {
        if let Some(state) = self.table.lock().get_mut(&node) {
            if state.phase == Phase::Leaving {
                state.freed = Some(Instant::now());
            }
            state.phase = phase;
        }
        self.changed.notify_all();
    }

    pub(super) fn wait_for_others(
        &self,
        context: &Context<'_>,
        node: NodeId,
        wait: bool,
    ) -> Result<()> {
        let started = Instant::now();
        context.interruptible(|token| {
            let mut table = self.table.lock();
            while let Some(Phase::Taking | Phase::Leaving) = table.get(&node).map(|it| it.phase) {
                if token.is_set() {
                    return Err(Errno::EINTR);
                }
                if !wait && started.elapsed() >= PATIENCE {
                    return Err(Errno::EAGAIN);
                }
                self.changed.wait_for(&mut table, INTERVAL);
            }
            Ok(())
        })
    }

    /// To be called when an owner may hold less, or is gone: gives up what nobody needs.
    pub(super) fn settle(self: &Arc<Self>, node: NodeId) {
        let mut table = self.table.lock();
        if !table.contains_key(&node) && self.owners.get(node, MOUNT).is_none() {
            return;
        }
        let state = table.entry(node).or_insert_with(|| self.found(node));
        if state.users > 0 {
            return;
        }
        let has_owners = self.owners.has_any(node);
        match state.phase {
            Phase::Held if !self.is_needed(node, has_owners) => {
                state.phase = Phase::Leaving;
                drop(table);
                match self.notifier() {
                    Some(_) => self.push(Job::Leave(node)),
                    None => self.leave(node),
                }
            }
            Phase::Exact | Phase::Free if !has_owners => {
                table.remove(&node);
                let mount = self.owners.remove(node, MOUNT);
                drop(table);
                if let Some(mount) = mount {
                    mount.release(&self.tree);
                }
            }
            _ => {}
        }
    }

    fn is_needed(&self, node: NodeId, has_owners: bool) -> bool {
        let Some(mount) = self.owners.get(node, MOUNT) else {
            return false;
        };
        let any = RangeLock {
            kind: LockKind::Write,
            start: SHIFT,
            end: END_OF_FILE,
            pid: 0,
        };
        match self.notifier() {
            None => has_owners,
            Some(_) => lock::ofd_get(&mount.fd, &any) != Ok(None),
        }
    }

    fn notifier(&self) -> Option<&Notifier> {
        let notifier = self.tree.notifier.get();
        notifier.filter(|notifier| notifier.is_connected())
    }

    pub(super) fn unlock(&self, mount: &OwnerFile) {
        if let Err(error) = lock::ofd_set(&mount.fd, &of_mount(LockKind::Unlock)) {
            tracing::warn!(%error, "cannot give up a lock of the mount");
        }
    }

    /// Waits until the kernel above has dropped the pages of the first node, and the attributes of all.
    pub(super) fn drop_pages(self: &Arc<Self>, nodes: Vec<NodeId>) -> Result<()> {
        if self.notifier().is_none() {
            return Ok(());
        }
        if self.jobs.lock().queue.len() >= JOBS_MAX {
            return Err(Errno::EAGAIN);
        }
        let (done, dropped): (_, Receiver<()>) = sync_channel(1);
        self.push(Job::Drop(nodes, done));
        dropped.recv_timeout(PATIENCE).map_err(|_| Errno::EAGAIN)
    }

    fn push(self: &Arc<Self>, job: Job) {
        let mut jobs = self.jobs.lock();
        jobs.queue.push_back(job);
        if jobs.threads == THREADS_MAX {
            return;
        }
        let locks = Arc::clone(self);
        let thread = thread::Builder::new().name("mount-locks".to_owned());
        match thread.spawn(move || locks.work()) {
            Ok(_) => jobs.threads += 1,
            // Another thread, or the next job, sees to this one.
            Err(error) => tracing::warn!(%error, "cannot start a thread for notifications"),
        }
    }

    fn work(self: &Arc<Self>) {
        loop {
            let mut jobs = self.jobs.lock();
            let Some(job) = jobs.queue.pop_front() else {
                jobs.threads -= 1;
                return;
            };
            drop(jobs);
            match job {
                Job::Leave(node) => self.leave(node),
                Job::Drop(nodes, done) => {
                    self.drop_cached(&nodes);
                    let _ = done.send(());
                }
            }
        }
    }

    /// The kernel writes back the pages of a file that were stored to, and drops all.
    fn invalidate(&self, node: NodeId, offset: i64) {
        let sent = self
            .notifier()
            .map(|notifier| notifier.inval_inode_now(node, offset, 0));
        if let Some(Err(error)) = sent
            && !matches!(error, Errno::ENOENT | Errno::ENOTCONN)
        {
            tracing::warn!(?node, %error, "the kernel refused to drop pages");
        }
    }

    fn drop_cached(&self, nodes: &[NodeId]) {
        let [node, others @ ..] = nodes else { return };
        self.invalidate(*node, 0);
        if self.follow.settle(PATIENCE / 2).is_err() {
            others.iter().for_each(|node| self.invalidate(*node, -1));
        }
    }

    /// Gives up the lock, in [`Phase::Leaving`].
    fn leave(self: &Arc<Self>, node: NodeId) {
        self.invalidate(node, 0);
        if let Some(mount) = self.owners.get(node, MOUNT) {
            self.unlock(&mount);
        }
        self.end_phase(node, Phase::Free);
        self.settle(node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_moved_and_back() {
        for (range, beneath) in [
            ((0, 0), (SHIFT, SHIFT)),
            ((128, 200), (SHIFT + 128, SHIFT + 200)),
            ((5, END_OF_FILE), (SHIFT + 5, END_OF_FILE)),
            ((5, u64::MAX), (SHIFT + 5, END_OF_FILE)),
            ((SHIFT - 1, SHIFT), (END_OF_FILE, END_OF_FILE)),
        ] {
            let of = |(start, end)| RangeLock {
                kind: LockKind::Read,
                start,
                end,
                pid: 7,
            };
            let moved = shifted(&of(range)).unwrap();
            assert_eq!(moved, of(beneath));
            let (start, end) = (range.0, range.1.min(END_OF_FILE));
            let end = if end >= SHIFT { END_OF_FILE } else { end };
            assert_eq!(unshifted(&moved), of((start, end)));
            assert_eq!(unshifted(&of((3, END_OF_FILE))), of((3, END_OF_FILE)));
        }
        let far = RangeLock {
            start: SHIFT,
            ..of_mount(LockKind::Read)
        };
        assert_eq!(shifted(&far), Err(Errno::EOVERFLOW));
    }
}
