//! Locks of files that programs above may map shared, without passthrough.
//!
//! Such a map is the page cache of the kernel above, and not that of the host: what one side stores, the other does
//! not see, and what the kernel above writes back later destroys what was stored beneath. Programs that share
//! memory through a file lock ranges of it with fcntl(2). So as long as owners above have such locks, the *mount*
//! has the file: an owner of its own ([`MOUNT`]) holds a lock from the first byte to [`SHIFT`], and the locks of the
//! owners are moved behind that, where they conflict with each other alone. The mount locks for writing, so that it
//! has the file alone; for reading as long as only descriptors for reading have locked. Before an owner gets its
//! first lock, and before a file that was locked for writing is unlocked beneath, the kernel above drops its pages,
//! and thereby writes back those that were stored to.
//!
//! **Which files.** Those with the data path cached, from a lock of a finite range below [`RANGES_END`] on. What
//! SQLite locks of a database itself is above that, and it reads that with read(2). Such locks, and those of a whole
//! file, are set as they are until then. With the first range, those for reading move, while the host is kept out by
//! a lock of the mount for reading. One for writing keeps the host out by itself, but could not move without a
//! moment in which the host can take it: ranges of other owners wait for it.
//!
//! **Changes.** What is held is of a node, in a table under a lock, under which the kernel is asked nothing: all files
//! share it. A request that is about to lock is counted ([`Joined`]): meanwhile the file stays locked. One request at a
//! time changes what the mount holds, or a thread gives it up; others wait. Locks are moved, and ranges unlocked,
//! under a lock of the node, taken before that of the table. Of requests that find out whether the lock is still needed,
//! the last decides.
//!
//! **Turns.** Once a file has been locked for [`TURN`], an owner that holds nothing waits until the others have
//! unlocked, and the host may lock; not for longer than [`DRAIN_MAX`].
//!
//! Where the kernel above takes no notifications (guests), the lock is kept until the last owner has closed the
//! file, which writes back and drops what was mapped.

use super::lock_notifications::{LockNotifications, PATIENCE};
use super::lock_owners::{Exact, LockOwners, MOUNT, OwnerFile};
use super::moved_ranges::{SHIFT, of_mount, shifted};
use crate::tree::{Inode, Noted, Tree};
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use thrufs::{Context, Errno, Result};
use thrufs_abi::{LockOwner, NodeId};
use thrufs_sys::lock::{self, END_OF_FILE, LockKind, RangeLock};

/// Where SQLite's locks of a database begin.
pub(super) const RANGES_END: u64 = 1 << 30;

/// How long the lock stays with the host at least, so that one who waits for it there gets it.
const PAUSE: Duration = Duration::from_millis(1);

/// How often a waiting request looks whether it was interrupted, and for what nothing tells it of.
const INTERVAL: Duration = Duration::from_millis(10);

const TURN: Duration = Duration::from_millis(50);

/// How long the host's turn is waited for while nobody unlocks, and while others do.
const DRAIN: Duration = Duration::from_millis(50);
const DRAIN_MAX: Duration = Duration::from_millis(300);

/// How long owners that did not unlock have the file then.
const LONG_TURN: Duration = Duration::from_secs(5);

/// How long after the lock a file counts as one that a program may store to in a map, though nothing was written back from
/// one yet. The kernel above writes back after `vm.dirty_expire_centisecs`, 30 seconds by default.
const STORED_BY: Duration = Duration::from_secs(60);

/// What a request is about to lock.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) node: NodeId,
    pub(super) owner: LockOwner,
    /// How the mount has to lock the file for it.
    pub(super) kind: LockKind,
    /// Whether the mount locks the file on account of it.
    pub(super) is_of_range: bool,
}

/// How far a request may go.
pub(super) enum Step<'a> {
    Placed(Joined<'a>),
    /// This request changes what the mount holds.
    Change(Joined<'a>),
    /// Another changes it, or is about to lock. One that does not wait for locks waits for this long.
    Wait(Duration),
}

struct State {
    /// How the mount has locked the file. The locks of owners are moved then.
    held: Option<LockKind>,
    /// Whether a request or a thread is about to change that.
    is_changing: bool,
    /// Held while locks of owners are moved or unlocked.
    moving: Arc<Mutex<()>>,
    /// How often it was asked whether the lock is still needed.
    settles: u64,
    /// Whether that request waits for a lock of the host.
    waits_beneath: bool,
    /// Requests that are about to lock, but for `waiters`.
    users: u32,
    /// Requests that wait for a lock as it was asked for: they hold up no range.
    waiters: u32,
    turn_ends: Instant,
    /// When the mount locked the file.
    since: Instant,
    /// When a request has locked or unlocked.
    settled: Instant,
    freed: Option<Instant>,
    /// The user that made the mount lock it.
    uid: Option<u32>,
}

pub(crate) struct MountLocks {
    owners: Arc<LockOwners>,
    tree: Arc<Tree>,
    table: Mutex<HashMap<NodeId, State>>,
    changed: Condvar,
    notifications: Arc<LockNotifications>,
}

/// A request that is about to lock, until it is dropped.
pub(super) struct Joined<'a> {
    locks: &'a Arc<MountLocks>,
    node: NodeId,
    is_moved: bool,
    is_waiter: bool,
}

impl Joined<'_> {
    /// The range beneath for one above. One that is too far up to be moved is never set.
    pub(super) fn beneath(&self, range: &RangeLock) -> Result<RangeLock> {
        let moved = shifted(range)?;
        Ok(if self.is_moved { moved } else { *range })
    }

    pub(super) fn is_moved(&self) -> bool {
        self.is_moved
    }

    /// To be called before it waits for a lock that is not moved.
    pub(super) fn begin_wait(&mut self) {
        if self.is_moved || self.is_waiter {
            return;
        }
        self.is_waiter = true;
        if let Some(state) = self.locks.table.lock().get_mut(&self.node) {
            state.users -= 1;
            state.waiters += 1;
        }
        self.locks.changed.notify_all();
    }

    /// To be called once it has waited: a lock for reading is granted beside that of the mount, and is moved then.
    pub(super) fn end_wait(&self, owner: &OwnerFile) -> Result<()> {
        if !self.is_waiter {
            return Ok(());
        }
        let moving = self.locks.moving(self.node);
        let _moving = moving.lock();
        match self.locks.held(self.node) {
            Some(_) => owner.move_up(),
            None => Ok(()),
        }
    }

    /// Ends a change.
    pub(super) fn changed(&mut self) {
        self.is_moved = self.locks.end_change(self.node).is_some();
    }
}

impl Drop for Joined<'_> {
    fn drop(&mut self) {
        if let Some(state) = self.locks.table.lock().get_mut(&self.node) {
            match self.is_waiter {
                true => state.waiters -= 1,
                false => state.users -= 1,
            }
        }
        self.locks.settle(self.node);
    }
}

impl MountLocks {
    pub(super) fn new(owners: Arc<LockOwners>, tree: Arc<Tree>) -> MountLocks {
        MountLocks {
            notifications: LockNotifications::new(Arc::clone(&tree)),
            owners,
            tree,
            table: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// The state of a node that is not in the table, after a session was resumed or before its first lock.
    fn found(&self, node: NodeId) -> State {
        let mount = self.owners.get(node, MOUNT);
        State {
            held: mount.and_then(|mount| mount.first_lock(0, SHIFT - 1)),
            is_changing: false,
            moving: Arc::default(),
            settles: 0,
            waits_beneath: false,
            users: 0,
            waiters: 0,
            turn_ends: Instant::now(),
            since: Instant::now(),
            settled: Instant::now(),
            freed: None,
            uid: None,
        }
    }

    /// Before its first lock, or after a session was resumed, a node gets into the table.
    fn moving(&self, node: NodeId) -> Arc<Mutex<()>> {
        let mut table = self.table.lock();
        let state = table.entry(node).or_insert_with(|| self.found(node));
        Arc::clone(&state.moving)
    }

    pub(super) fn join<'a>(self: &'a Arc<Self>, asked: &Asked) -> Step<'a> {
        let mut table = self.table.lock();
        let state = table
            .entry(asked.node)
            .or_insert_with(|| self.found(asked.node));
        if state.is_changing {
            let patience = if state.waits_beneath {
                Duration::ZERO
            } else {
                PATIENCE
            };
            return Step::Wait(patience);
        }
        let is_enough = match state.held {
            Some(held) => held == LockKind::Write || asked.kind == LockKind::Read,
            None => !asked.is_of_range,
        };
        if !is_enough && state.held.is_none() && state.users > 0 {
            return Step::Wait(PATIENCE);
        }
        state.users += 1;
        let joined = Joined {
            locks: self,
            node: asked.node,
            is_moved: state.held.is_some(),
            is_waiter: false,
        };
        if is_enough {
            return Step::Placed(joined);
        }
        state.is_changing = true;
        drop(table);
        if joined.is_moved {
            return Step::Change(joined);
        }
        match self.owners.hold_exactly(asked.node, asked.owner) {
            Exact::Nothing | Exact::ForReading => Step::Change(joined),
            Exact::ForWriting => {
                // Others that wait for that lock, too, are not woken: they would ask, and wake this one.
                if let Some(state) = self.table.lock().get_mut(&asked.node) {
                    state.is_changing = false;
                }
                Step::Wait(Duration::ZERO)
            }
            Exact::Unmovable => {
                self.end_change(asked.node);
                Step::Placed(joined)
            }
        }
    }

    /// How the mount has locked a file.
    pub(super) fn held(&self, node: NodeId) -> Option<LockKind> {
        let table = self.table.lock();
        let state = table.get(&node);
        state.map_or_else(|| self.found(node).held, |state| state.held)
    }

    pub(super) fn has_waiters(&self, node: NodeId) -> bool {
        let table = self.table.lock();
        table.get(&node).is_some_and(|state| state.waiters > 0)
    }

    /// The host has its turn first, as long as it takes to be woken.
    pub(super) fn pause(&self, node: NodeId) {
        let freed = self.table.lock().get(&node).and_then(|state| state.freed);
        if let Some(rest) = freed.and_then(|freed| PAUSE.checked_sub(freed.elapsed())) {
            thread::sleep(rest);
        }
    }

    /// Locks a file for the mount beneath, by a request that changes it. Waits for the host if `context` is given.
    pub(super) fn set(
        &self,
        node: NodeId,
        mount: &OwnerFile,
        kind: LockKind,
        context: Option<&Context<'_>>,
    ) -> Result<()> {
        let range = of_mount(kind);
        match (
            lock::ofd_set(&mount.fd, &range).map_err(Errno::from),
            context,
        ) {
            (Err(Errno::EAGAIN | Errno::EACCES), None) => Err(Errno::EAGAIN),
            (Err(Errno::EAGAIN | Errno::EACCES), Some(context)) => {
                self.set_waits_beneath(node, true);
                let waited = context.interruptible(|_| Ok(lock::ofd_set_wait(&mount.fd, &range)?));
                self.set_waits_beneath(node, false);
                waited
            }
            // A file that the server cannot write either.
            (Err(Errno::EBADF), _) => Err(Errno::ENOLCK),
            (set, _) => set,
        }
    }

    fn set_waits_beneath(&self, node: NodeId, waits: bool) {
        if let Some(state) = self.table.lock().get_mut(&node) {
            state.waits_beneath = waits;
        }
        self.changed.notify_all();
    }

    /// Moves the locks of owners, all for reading, once the mount has locked the file.
    pub(super) fn is_locked(&self, node: NodeId, kind: LockKind, uid: Option<u32>) -> Result<()> {
        let moving = self.moving(node);
        let _moving = moving.lock();
        let is_new = self.held(node).is_none();
        if is_new {
            self.owners.move_up(node)?;
        }
        if let Some(state) = self.table.lock().get_mut(&node) {
            if is_new {
                state.since = Instant::now();
                state.turn_ends = state.since + TURN;
            }
            (state.held, state.uid) = (Some(kind), uid);
        }
        Ok(())
    }

    fn end_change(&self, node: NodeId) -> Option<LockKind> {
        let mut table = self.table.lock();
        let state = table.get_mut(&node)?;
        state.is_changing = false;
        let held = state.held;
        drop(table);
        self.changed.notify_all();
        held
    }

    /// Waits for a moment, until something has changed, unless a request has waited for as long as it may.
    pub(super) fn wait(
        &self,
        context: &Context<'_>,
        started: Instant,
        patience: Option<Duration>,
    ) -> Result<()> {
        if patience.is_some_and(|patience| started.elapsed() >= patience) {
            return Err(Errno::EAGAIN);
        }
        context.require_blocking()?;
        context.interruptible(|token| {
            self.changed.wait_for(&mut self.table.lock(), INTERVAL);
            if token.is_set() {
                return Err(Errno::EINTR);
            }
            Ok(())
        })
    }

    /// Has an owner that holds nothing wait once a turn of the side above has ended.
    pub(super) fn wait_for_turn(&self, context: &Context<'_>, asked: &Asked) -> Result<()> {
        let started = Instant::now();
        loop {
            let is_over = |state: &State| {
                state.held.is_some() && !state.is_changing && started >= state.turn_ends
            };
            if !self.table.lock().get(&asked.node).is_some_and(is_over) {
                return Ok(());
            }
            let holds = |owner: Arc<OwnerFile>| owner.first_lock(SHIFT, END_OF_FILE).is_some();
            if self.notifications.notifier().is_none()
                || self.owners.get(asked.node, asked.owner).is_some_and(holds)
            {
                return Ok(());
            }
            if let Some(state) = self.table.lock().get_mut(&asked.node) {
                let is_held_on = state.settled.max(started).elapsed() >= DRAIN;
                if is_held_on || started.elapsed() >= DRAIN_MAX {
                    state.turn_ends = Instant::now() + LONG_TURN;
                    return Ok(());
                }
            }
            self.wait(context, started, None)?;
        }
    }

    /// Unlocks a range of an owner.
    pub(super) fn unlock(&self, file: &OwnerFile, node: NodeId, range: &RangeLock) -> Result<()> {
        // Under the lock: the locks of the owner are not moved meanwhile.
        let moving = self.moving(node);
        let _moving = moving.lock();
        let range = match self.held(node) {
            Some(_) => shifted(range)?,
            None => *range,
        };
        self.owners.check_room_to_unlock(file, &range)?;
        lock::ofd_set(&file.fd, &range)?;
        file.has_changed();
        Ok(())
    }

    /// To be called when an owner may hold less, or is gone: gives up what nobody needs.
    pub(super) fn settle(self: &Arc<Self>, node: NodeId) {
        let mut table = self.table.lock();
        if !table.contains_key(&node) && self.owners.get(node, MOUNT).is_none() {
            return;
        }
        let state = table.entry(node).or_insert_with(|| self.found(node));
        state.settled = Instant::now();
        state.settles += 1;
        if state.users > 0 || state.is_changing {
            return;
        }
        let has_owners = self.owners.has_any(node);
        if state.held.is_some() {
            let settles = state.settles;
            drop(table);
            if !self.is_needed(node, has_owners) {
                self.begin_to_leave(node, settles);
            }
        } else if !has_owners && state.waiters == 0 {
            table.remove(&node);
            let mount = self.owners.remove(node, MOUNT);
            drop(table);
            if let Some(mount) = mount {
                mount.release(&self.tree);
            }
        }
    }

    /// Gives up the lock, unless a request has come since it was asked whether that is needed: it asks anew.
    fn begin_to_leave(self: &Arc<Self>, node: NodeId, settles: u64) {
        let mut table = self.table.lock();
        let is_unchanged =
            |state: &&mut State| state.settles == settles && state.users == 0 && !state.is_changing;
        let Some(state) = table.get_mut(&node).filter(is_unchanged) else {
            return;
        };
        state.is_changing = true;
        let (kind, uid) = (state.held, state.uid);
        drop(table);
        let locks = Arc::clone(self);
        if kind == Some(LockKind::Write) && self.notifications.notifier().is_some() {
            let leave = move || locks.leave(node);
            self.notifications.after_drop(node, uid, leave);
        } else {
            locks.leave(node);
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
        match self.notifications.notifier() {
            None => has_owners,
            // On the host, a lock for reading may go to the end of the file.
            Some(_) => {
                lock::ofd_get(&mount.fd, &any) != Ok(None) && self.owners.any_holds(node, SHIFT)
            }
        }
    }

    /// Gives up the lock, once pages were dropped.
    fn leave(self: &Arc<Self>, node: NodeId) {
        // Both under the lock: who gets a lock beneath now may unlock it at once.
        let moving = self.moving(node);
        let is_moving = moving.lock();
        if let Some(mount) = self.owners.get(node, MOUNT) {
            give_up(&mount);
        }
        if let Some(state) = self.table.lock().get_mut(&node) {
            (state.held, state.freed) = (None, Some(Instant::now()));
        }
        drop(is_moving);
        self.end_change(node);
        self.settle(node);
    }

    /// To be called while the attributes of a file that takes turns are on their way to be reported. With another time of
    /// modification than before, the kernel above drops all pages, also one that a write(2) has changed and that is not
    /// written yet; a program that maps it would read it as it was, and have it written back. So while the mount has
    /// locked the file for writing, a notification overtakes them: the kernel gives them to whoever has asked, and keeps
    /// none. Not for ever, if no program is known to store in a map.
    pub(crate) fn keep_pages(&self, inode: &Inode) {
        let Some(notifier) = self.notifications.notifier() else {
            return;
        };
        let is_kept = |state: &State| {
            state.held == Some(LockKind::Write)
                && (inode.noted.has(Noted::StoredTo) || state.since.elapsed() < STORED_BY)
        };
        let is_kept = self.table.lock().get(&inode.node()).is_some_and(is_kept);
        if is_kept {
            let _ = notifier.expire_attributes(inode.node());
        }
    }

    /// Waits until the kernel above has written back and dropped the pages of a file.
    pub(super) fn drop_pages(&self, node: NodeId, uid: Option<u32>) -> Result<()> {
        self.notifications.drop_pages(node, uid)
    }
}

pub(super) fn give_up(mount: &OwnerFile) {
    if let Err(error) = lock::ofd_set(&mount.fd, &of_mount(LockKind::Unlock)) {
        tracing::warn!(%error, "cannot give up a lock of the mount");
    }
}
