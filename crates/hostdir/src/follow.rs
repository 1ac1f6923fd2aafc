//! Following: the kernel above keeps names, attributes and listings for long, and is told what changes
//! beneath. Made for `cache=auto`; without it, or where the file system beneath cannot be watched, the kernel
//! asks again after a second.
//!
//! ```text
//! change beneath ─► fanotify ─► reader ─► lanes ─► notifications to the kernel above
//! ```
//!
//! Rules by which an answer with a long timeout is never older than the last event that was delivered:
//!
//! * A directory is [marked](marks) before the first answer from it, or its file system is. Its mark tells of its
//!   names, and of the attributes and data of its entries. A file with several names has a mark of its own, and so has a
//!   directory for what is in it; both get one at the second question about them, but where their file system has one.
//! * Events that come while a name is looked up, before its inode is in the table of nodes, are counted by
//!   directory ([`PendingLookup`]): then the attributes are not kept.
//! * An inode that the kernel does not know yet, because the answer is on its way, gets its notification after
//!   that answer ([`sender`]).
//! * Where something is mounted or unmounted beneath, which gives no event, [the table of mounts](submounts)
//!   tells.
//! * What this process does itself, the kernel above knows.
//! * A file that is written again and again, and not looked at above, is [silent]: it is reported again from the
//!   next question on, before that is answered.
//! * After a loss of events, all that the kernel has is dropped, and nothing is kept until then ([`losses`]).
//!
//! **Access.** Requests mark, and read atomics. One thread reads events and waits for nothing else, another takes marks off; the lanes
//! wait for locks of the kernel above, so nothing that a request waits for waits for them. An open reads events itself that are
//! queued, under the lock of the reader, which waits for nothing.

mod changes;
mod figures;
mod lanes;
mod losses;
mod marks;
mod mount_table;
mod reader;
mod sender;
mod silent;
mod submounts;
mod watch;

pub use mount_table::MountTable;

use crate::config::{Config, FileHandles, FollowMode};
use crate::tree::{Followed, Inode, Noted, Tree, Use};
use changes::Seen;
pub(crate) use lanes::Untold;
use marks::{Marks, Wanted};
use parking_lot::Mutex;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;
use submounts::Submounts;
use thrufs::{Errno, Notifier, Result};
use thrufs_abi::NodeId;
use thrufs_sys::fanotify::{Group, NAMES};
use watch::Watch;

/// How long the kernel above may keep what it is told.
pub(crate) struct Follow {
    tree: Arc<Tree>,
    config: Arc<Config>,
    hides: Arc<AtomicBool>,
    /// Until it is started.
    mounts: Mutex<Option<MountTable>>,
    started: OnceLock<Started>,
    /// Changes by the kernel above that have begun and ended: renames, and of extended attributes.
    own_changes: [AtomicU64; 2],
}

/// A question about attributes, from before they are read.
#[derive(Clone, Copy)]
pub(crate) struct Question {
    /// How many changes by the kernel above had ended.
    own_changes: u64,
}

struct Started {
    watch: Arc<Watch>,
    /// Wakes the reader, and ends it.
    wakeup: OwnedFd,
    /// Marked inodes that the kernel has forgotten.
    forgotten: mpsc::Sender<Arc<Inode>>,
}

/// Starts the thread that takes the marks off inodes, one after the other.
fn start_unmarking(watch: &Arc<Watch>) -> std::io::Result<mpsc::Sender<Arc<Inode>>> {
    let (sender, forgotten) = mpsc::channel::<Arc<Inode>>();
    let watch = Arc::clone(watch);
    let unmark = move || {
        for inode in forgotten {
            watch.silent.end(&watch.marks, &watch.tree, &inode);
            watch.marks.forget(&watch.tree, &inode);
        }
    };
    let thread = std::thread::Builder::new().name("follow-unmark".into());
    thread.spawn(unmark).map(|_| sender)
}

impl Started {
    /// Whether an inode is marked, perhaps from now on, for the caller.
    fn has_mark(&self, inode: &Arc<Inode>, uid: Option<u32>, open: Option<BorrowedFd<'_>>) -> bool {
        let marks = &self.watch.marks;
        let has_mark = marks.has(&self.watch.tree, inode, uid, open);
        if self.watch.marks.has_new_group() {
            let _ = rustix::io::write(&self.wakeup, b"!");
        }
        has_mark
    }

    fn is_silent(&self, inode: &Inode) -> bool {
        self.watch.silent.has(&self.watch.marks, inode)
    }
}

/// How long a name and the attributes of its inode may be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeouts {
    pub(crate) entry: Duration,
    pub(crate) attr: Duration,
}

impl Follow {
    pub(crate) fn new(tree: Arc<Tree>, config: Arc<Config>) -> Follow {
        Follow {
            tree,
            config,
            hides: Arc::default(),
            mounts: Mutex::new(None),
            started: OnceLock::new(),
            own_changes: Default::default(),
        }
    }

    /// Carries out a change by the kernel above, of which that notes only that the `ctime` is another: attributes that
    /// were read before, and arrive after, would be kept. A rename need not know what it renames, so these changes
    /// are counted for all inodes.
    pub(crate) fn during_change<T>(&self, change: impl FnOnce() -> T) -> T {
        let [begun, ended] = &self.own_changes;
        begun.fetch_add(1, Ordering::SeqCst);
        let changed = change();
        ended.fetch_add(1, Ordering::SeqCst);
        changed
    }

    /// To be called before it is started.
    pub(crate) fn watch_mounts(&self, table: MountTable) {
        *self.mounts.lock() = Some(table);
    }

    /// Begins, if that is asked for and possible. What is not, is logged.
    pub(crate) fn start(&self, notifier: &Notifier) {
        if !self.config.follows() || !notifier.is_connected() {
            return;
        }
        match self.begin(notifier) {
            Ok(started) => {
                let _ = self.started.set(started);
                tracing::debug!("changes beneath are followed");
            }
            Err(why) => tracing::info!(
                "changes beneath are not followed, so that names and attributes are asked for again after \
                 {:?}: {why}",
                self.config.entry_timeout()
            ),
        }
    }

    /// Whether it can begin, if it is asked for.
    pub(crate) fn may_start(&self) -> Result<()> {
        if self.config.follows() {
            if self.tree.root.mount().is_remote {
                return Err(Errno::EOPNOTSUPP);
            }
            let root = self.tree.descriptor(&self.tree.root)?;
            Group::new()?.mark(root.as_fd(), NAMES)?;
        }
        Ok(())
    }

    fn begin(&self, notifier: &Notifier) -> std::result::Result<Started, String> {
        let wanted = Wanted {
            most: self.config.follow_marks,
            whole_file_systems: match self.config.follow {
                FollowMode::Filesystem => true,
                // Its events name what is elsewhere. A worker that can be held in the source gets none of them.
                FollowMode::Auto => self.config.file_handles != FileHandles::Never,
                FollowMode::Directories | FollowMode::No => false,
            },
            mounts_are_private: self.mounts.lock().as_ref().is_some_and(|it| it.is_private),
        };
        let server_uid = self.tree.credentials.server_uid;
        let marks = Marks::new(wanted, server_uid).map_err(|error| error.to_string())?;
        marks
            .mark(&self.tree, &self.tree.root, None, None)
            .map_err(|error| format!("cannot mark the source: {error}"))?;
        let watch = Arc::new(Watch::new(
            Arc::clone(&self.tree),
            marks,
            Arc::clone(&self.hides),
        ));
        let submounts = self.submounts();
        let started = sender::start(&watch, notifier);
        let started = started.and_then(|()| reader::start(&watch, submounts, notifier));
        let wakeup = started.map_err(|error| error.to_string())?;
        let forgotten = start_unmarking(&watch).map_err(|error| error.to_string())?;
        Ok(Started {
            watch,
            wakeup,
            forgotten,
        })
    }

    /// Nobody has seen what happened since another process followed: the kernel above drops all that it has from then.
    /// Names at once, so that none is opened by one that leads elsewhere by now. What it is answered from now on is
    /// followed.
    pub(crate) fn go_on(&self) {
        let notifier = self.tree.connected_notifier();
        if let (Some(started), Some(notifier)) = (self.started.get(), notifier) {
            let _ = notifier.increment_epoch_now();
            started.watch.lanes.replace_all_by_repair();
        }
    }

    /// Rules hide names by what they lead to: a name is looked up again after each change of that.
    pub(crate) fn rules_hide_names(&self) {
        self.hides.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_started(&self) -> bool {
        self.started.get().is_some()
    }

    /// To be called before a directory is read whose listing the kernel keeps for good: if it cannot be
    /// followed, the kernel is told to drop it after as long as names are valid.
    pub(crate) fn listing_begins(
        &self,
        uid: Option<u32>,
        directory: &Arc<Inode>,
        open: Option<BorrowedFd<'_>>,
    ) {
        directory.followed.begin_listing();
        if let Some(started) = self.started.get()
            && !started.has_mark(directory, uid, open)
        {
            started
                .watch
                .drop_later(directory.node(), self.config.entry_timeout());
        }
    }

    /// To be called before data are read that the kernel keeps, and does not ask about at an open. If nobody tells of
    /// their changes, or not of all since somebody `has_writers` (who may store to a map), they are dropped after as
    /// long as attributes are valid that are not followed.
    pub(crate) fn data_will_be_kept(&self, inode: &Inode, has_writers: impl FnOnce() -> bool) {
        if let Some(Started { watch, .. }) = self.started.get()
            && (!self.is_followed(inode) || has_writers())
        {
            watch.drop_later(inode.node(), self.config.cache.default_timeout());
        }
    }

    /// A listing has come to its end, and is kept by the kernel. It drops what has changed meanwhile. The first listing
    /// `without_attributes` it drops too: if the next one is for attributes, they come with the entries instead of by
    /// a LOOKUP for each.
    pub(crate) fn listing_ended(&self, directory: &Inode, without_attributes: bool) {
        let is_outdated = directory.followed.end_listing();
        let is_first = without_attributes && !directory.followed.set(Followed::LISTED);
        if let Some(Started { watch, .. }) = self.started.get()
            && (is_outdated || is_first)
        {
            watch.drop_all_of(directory.node());
        }
    }

    fn submounts(&self) -> Option<Submounts> {
        let table = self.mounts.lock().take()?;
        match Submounts::new(table, &self.tree) {
            Ok(submounts) => Some(submounts),
            Err(error) => {
                tracing::info!("mounts beneath are not followed: {error}");
                None
            }
        }
    }

    /// What happened so far, if changes are followed.
    pub(crate) fn figures(&self) -> Option<crate::statistics::Following> {
        let watch = &self.started.get()?.watch;
        let oldest = watch.lanes.oldest();
        let marks = (watch.marks.count(), watch.marks.has_whole());
        Some(watch.figures.following(marks, oldest))
    }

    /// See [`HostDir::settle`](crate::HostDir::settle).
    pub(crate) fn settle(&self, patience: Duration) -> Result<()> {
        let started = self.started.get().ok_or(Errno::EOPNOTSUPP)?;
        match started.watch.settle(&started.wakeup, patience) {
            true => Ok(()),
            false => Err(Errno::ETIMEDOUT),
        }
    }

    /// Waits until the kernel above has been told what happened to an inode so far, though not for long. To be called
    /// before it is made to ask: it ignores an answer that a notification overtakes. False if it was not in that time.
    pub(crate) fn catch_up(&self, inode: &Inode) -> bool {
        let started = self.started.get();
        started.is_none_or(|started| started.watch.catch_up(inode.node()))
    }

    /// What the kernel above has not been told of what happened so far, nor asks for anew; `None` if there is nothing.
    /// Waits for a message until it is `late`.
    pub(crate) fn untold(&self, late: Duration) -> Option<Untold> {
        self.started.get()?.watch.untold(late)
    }

    /// The kernel above asks anew for what it was not told; for names only with `names`.
    pub(crate) fn asked(&self, untold: &Untold, names: bool) {
        if let Some(started) = self.started.get() {
            started.watch.lanes.asked(untold, names);
        }
    }

    /// Whether a message is on its way about data of an inode.
    pub(crate) fn is_telling(&self, inode: &Inode) -> bool {
        let started = self.started.get();
        started.is_some_and(|started| started.watch.lanes.are_telling(inode.node()))
    }

    /// Whether the kernel above may have found a file by a name that leads elsewhere by now: one has changed that it
    /// is not told of yet, or was told a moment ago.
    pub(crate) fn has_outdated_names(&self) -> bool {
        let started = self.started.get();
        started.is_some_and(|started| started.watch.has_outdated_names())
    }

    /// To be called before a name in `directory` is looked up or changed.
    pub(crate) fn begin_lookup(
        &self,
        uid: Option<u32>,
        directory: &Arc<Inode>,
    ) -> PendingLookup<'_> {
        let started = self.started.get();
        let started = started.filter(|started| started.has_mark(directory, uid, None));
        let watch = started.map(|started| &*started.watch);
        PendingLookup {
            follow: self,
            directory: directory.node(),
            mount: directory.mount().index,
            silence_ends: self.silence_ends(),
            seen: watch.map(|watch| Before {
                watch,
                seen: watch.changes.seen(directory.identity()),
                timeout: watch.losses.timeout(self.config.follow_timeout),
            }),
        }
    }

    /// To be called before the attributes of a known inode are read.
    pub(crate) fn mark(&self, uid: Option<u32>, inode: &Arc<Inode>) -> Question {
        let own_changes = self.own_changes[1].load(Ordering::SeqCst);
        if let Some(started) = self.started.get()
            && !inode
                .followed
                .any(Followed::BY_ITS_NAME | Followed::BY_FILE_SYSTEM)
        {
            started.has_mark(inode, uid, None);
        }
        self.end_silence(inode);
        Question { own_changes }
    }

    /// How long the attributes may be kept that answer a question.
    pub(crate) fn answer_timeout(&self, question: Question, inode: &Inode) -> Duration {
        let timeout = self.attr_timeout(inode);
        if self.own_changes[0].load(Ordering::SeqCst) == question.own_changes {
            timeout
        } else {
            timeout.min(self.config.attr_timeout())
        }
    }

    /// To be called before attributes or data of a known inode are read that the kernel above may keep.
    pub(crate) fn end_silence(&self, inode: &Arc<Inode>) {
        if let Some(Started { watch, .. }) = self.started.get() {
            watch.silent.end(&watch.marks, &watch.tree, inode);
        }
    }

    /// How often a silent file was made to be reported again.
    fn silence_ends(&self) -> u64 {
        let started = self.started.get();
        started.map_or(0, |started| started.watch.silent.ends())
    }

    /// A lookup without a directory, whose answer gets the timeouts of what is not followed. To be called before
    /// attributes are read.
    pub(crate) fn unfollowed_lookup(&self) -> PendingLookup<'_> {
        PendingLookup {
            follow: self,
            directory: NodeId(0),
            mount: 0,
            silence_ends: self.silence_ends(),
            seen: None,
        }
    }

    /// Whether the kernel is told of changes of a known inode.
    pub(crate) fn is_followed(&self, inode: &Inode) -> bool {
        let told = if inode.is_directory() {
            Followed::MARKED | Followed::BY_FILE_SYSTEM
        } else {
            Followed::MARKED | Followed::BY_FILE_SYSTEM | Followed::BY_ITS_NAME
        };
        self.is_started()
            && inode.followed.any(told)
            && !inode.uses.is_some_and(Use::is_written_by_kernel)
    }

    /// How long the attributes of a known inode may be kept.
    pub(crate) fn attr_timeout(&self, inode: &Inode) -> Duration {
        match self.started.get() {
            Some(started) if self.is_followed(inode) && !started.is_silent(inode) => {
                self.of_attributes(started.watch.losses.timeout(self.config.follow_timeout))
            }
            // Whoever locks it relies on what others wrote before.
            _ if inode.noted.has(Noted::Locked) && self.tree.connected_notifier().is_none() => {
                self.of_attributes(Duration::ZERO)
            }
            _ => self.config.attr_timeout(),
        }
    }

    fn of_attributes(&self, followed: Duration) -> Duration {
        self.config.attr_timeout.unwrap_or(followed)
    }

    /// The kernel has forgotten an inode, whose mark goes soon.
    pub(crate) fn forgotten(&self, inode: &Arc<Inode>) {
        if let Some(started) = self.started.get()
            && (inode.followed.any(Followed::MARKED) || started.is_silent(inode))
        {
            let _ = started.forgotten.send(Arc::clone(inode));
        }
    }
}

/// A lookup, from before the name is looked up beneath until its answer.
pub(crate) struct PendingLookup<'a> {
    follow: &'a Follow,
    directory: NodeId,
    /// Of the directory.
    mount: u32,
    /// Before the attributes were read. Of a silent file, they may have changed since without an event.
    silence_ends: u64,
    /// `None` if the directory is not watched.
    seen: Option<Before<'a>>,
}

/// What there was before a lookup.
struct Before<'a> {
    watch: &'a Watch,
    /// What had happened in the directory.
    seen: Seen,
    /// How long names could be kept. What changes while that is short may not be told.
    timeout: Duration,
}

impl PendingLookup<'_> {
    /// How long a name may be kept that was found to lead nowhere.
    pub(crate) fn negative_timeout(&self) -> Duration {
        let config = &self.follow.config;
        match self.followed() {
            Some(followed) => config.negative_timeout.unwrap_or(followed),
            None => config.negative_timeout(),
        }
    }

    /// How long the name and the attributes may be kept of an inode that was found with `links` names, and
    /// that is in the table by now.
    pub(crate) fn found(&self, inode: &Arc<Inode>, links: u32) -> Timeouts {
        let config = &self.follow.config;
        self.follow.end_silence(inode);
        let was_silent = self.follow.silence_ends() != self.silence_ends;
        let zero = self.follow.of_attributes(Duration::ZERO);
        let (Some(Before { watch, seen, .. }), Some(followed)) = (&self.seen, self.followed())
        else {
            let attr = self.follow.attr_timeout(inode);
            return Timeouts {
                entry: config.entry_timeout(),
                attr: if was_silent { zero } else { attr },
            };
        };
        // The directory's mark tells nothing of a file that is mounted on the name.
        let is_by_its_name = links == 1
            && inode.mount().index == self.mount
            && inode.followed.record_found_in(self.directory);
        if is_by_its_name && !inode.is_directory() {
            inode.followed.set(Followed::BY_ITS_NAME);
        } else {
            inode.followed.clear(Followed::BY_ITS_NAME);
        }
        // The next GETATTR marks it. Until then no event reports other names, or what is in a directory: but where
        // the file system is marked, if none was read before the inode was in the table.
        let mut is_marked_later = (!is_by_its_name || inode.is_directory())
            && !inode.followed.any(Followed::MARKED | Followed::REFUSED);
        if is_marked_later {
            watch.marks.note_file_system(inode);
            is_marked_later = !inode.followed.any(Followed::BY_FILE_SYSTEM)
                || watch.changes.anywhere_since(*seen);
        }
        let mut attr = self.follow.attr_timeout(inode);
        if is_marked_later || was_silent {
            attr = zero;
        }
        // After the bit was set: an event that comes later clears it.
        if watch.changes.since(*seen) {
            inode.followed.clear(Followed::BY_ITS_NAME);
            attr = zero;
        }
        Timeouts {
            entry: config.entry_timeout.unwrap_or(followed),
            attr,
        }
    }

    fn followed(&self) -> Option<Duration> {
        let Before { watch, timeout, .. } = self.seen.as_ref()?;
        let now = watch.losses.timeout(self.follow.config.follow_timeout);
        Some(now.min(*timeout))
    }
}

#[cfg(test)]
mod tests {
    use super::lanes::Message;
    use super::*;
    use crate::ledger::{Ledger, StateTables};

    const MARKS: usize = 10;

    /// Followed without threads. `None` without fanotify(7) that ignores (Linux 6.0).
    fn followed(place: &std::path::Path, whole_file_systems: bool) -> Option<Follow> {
        followed_by(tree(place, None), place, whole_file_systems)
    }

    fn tree(place: &std::path::Path, ledger: Option<Ledger>) -> Arc<Tree> {
        let source = std::fs::File::open(place).unwrap();
        Arc::new(Tree::new(source.into(), &Config::default(), ledger, None, false).unwrap())
    }

    fn followed_by(
        tree: Arc<Tree>,
        place: &std::path::Path,
        whole_file_systems: bool,
    ) -> Option<Follow> {
        let config = Config::default();
        let wanted = Wanted {
            most: MARKS,
            whole_file_systems,
            mounts_are_private: false,
        };
        let marks = Marks::new(wanted, 0).ok()?;
        marks.mark(&tree, &tree.root, None, None).ok()?;
        let probe = std::fs::File::open(place.join("log")).unwrap();
        marks.ignore_data(probe.as_fd()).ok()?;
        let follow = Follow::new(Arc::clone(&tree), Arc::new(config));
        let started = Started {
            watch: Arc::new(Watch::new(tree, marks, Arc::clone(&follow.hides))),
            wakeup: rustix::pipe::pipe().unwrap().1,
            forgotten: mpsc::channel().0,
        };
        follow.started.set(started).ok()?;
        Some(follow)
    }

    /// Events come while the process has not read yet what the one before has recorded.
    #[test]
    fn what_another_process_has_recorded_is_read_before_an_event_is_looked_into() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("log"), "").unwrap();
        let ledger = Ledger::new().unwrap();
        let before = tree(place.path(), Some(ledger.clone()));
        let known = before.lookup_name(&before.root, c"log").unwrap().0;
        let next = tree(place.path(), Some(ledger.clone()));
        let Some(follow) = followed_by(next, place.path(), false) else {
            return thrufs_test_report::skipped("no marks that ignore (Linux 6.0)");
        };
        let watch = &follow.started.get().unwrap().watch;
        let event = Message::SilenceUnknown((NodeId::ROOT, b"log".as_slice().into()));
        let _ = watch.send(&event, &Notifier::disconnected());
        let read = StateTables::new(ledger).unwrap().read().unwrap();
        let nodes: Vec<_> = read.nodes.iter().map(|noted| noted.node).collect();
        assert_eq!(nodes, [known.node()]);
    }

    /// One that is not marked for a user may be for another.
    #[test]
    fn a_user_takes_half_of_the_marks() {
        const USER: u32 = 1000;
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("log"), "").unwrap();
        let Some(follow) = followed(place.path(), false) else {
            return thrufs_test_report::skipped("no marks that ignore (Linux 6.0)");
        };
        let Started { watch, .. } = follow.started.get().unwrap();
        let tree = &watch.tree;
        let directory = |number: usize| {
            let name = format!("directory-{number}");
            std::fs::create_dir(place.path().join(&name)).unwrap();
            let name = std::ffi::CString::new(name).unwrap();
            tree.lookup_name(&tree.root, &name).unwrap().0
        };
        let directories: Vec<_> = (0..MARKS).map(directory).collect();
        let has = |inode, user| watch.marks.has(tree, inode, user, None);
        let marked = directories.iter().filter(|it| has(it, Some(USER)));
        assert_eq!(marked.count(), MARKS / 2);
        let [.., refused] = &directories[..] else {
            unreachable!("there are some");
        };
        assert!(!has(refused, Some(USER)) && has(refused, None));
        assert!(has(refused, Some(USER)), "it is marked");
        tree.forget(directories[0].node(), 1);
        watch.marks.forget(tree, &directories[0]);
        assert!(has(&directories[MARKS - 2], Some(USER)));
    }

    /// What happens in the directory after the attributes were read, and before the answer: no event that comes
    /// later tells of it.
    #[test]
    fn attributes_of_a_lookup_are_not_kept_if_the_directory_changed_meanwhile() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("log"), "").unwrap();
        let file = place.path().join("file");
        std::fs::write(&file, "").unwrap();
        let Some(follow) = followed(place.path(), false) else {
            return thrufs_test_report::skipped("no marks that ignore (Linux 6.0)");
        };
        let Started { watch, .. } = follow.started.get().unwrap();
        let tree = &watch.tree;
        let looked_up = |meanwhile: &dyn Fn()| {
            let pending = follow.begin_lookup(None, &tree.root);
            let (inode, _) = tree.lookup_name(&tree.root, c"file").unwrap();
            meanwhile();
            // The events are those of others.
            watch.reading.lock().own = 0;
            watch.read_queued(None);
            let timeouts = pending.found(&inode, 1);
            (timeouts.attr, inode.followed.any(Followed::BY_ITS_NAME))
        };
        let kept = follow.config.follow_timeout;
        assert_eq!(looked_up(&|| ()), (kept, true));
        let change = || std::fs::write(&file, "more").unwrap();
        assert_eq!(looked_up(&change), (Duration::ZERO, false));
        assert_eq!(looked_up(&|| ()), (kept, true));
        let link = || std::fs::hard_link(&file, place.path().join("other")).unwrap();
        assert_eq!(looked_up(&link), (Duration::ZERO, false));
    }

    /// Where the file system is marked, they are from the first answer on, unless something happened meanwhile.
    #[test]
    fn attributes_of_a_directory_are_kept_on_a_followed_file_system() {
        let place = tempfile::tempdir().unwrap();
        for name in ["log", "one", "other"] {
            std::fs::create_dir(place.path().join(name)).unwrap();
        }
        let follow = followed(place.path(), true);
        let Some(follow) = follow.filter(|it| {
            let marks = &it.started.get().unwrap().watch.marks;
            marks.note_file_system(&it.tree.root);
            it.tree.root.followed.any(Followed::BY_FILE_SYSTEM)
        }) else {
            return thrufs_test_report::skipped("no marks of file systems (CAP_SYS_ADMIN)");
        };
        let Started { watch, .. } = follow.started.get().unwrap();
        watch.reading.lock().own = 0;
        watch.read_queued(None);
        let looked_up = |name, before: &dyn Fn()| {
            let pending = follow.begin_lookup(None, &follow.tree.root);
            before();
            let (inode, _) = follow.tree.lookup_name(&follow.tree.root, name).unwrap();
            (pending.found(&inode, 2).attr, inode)
        };
        let kept = follow.config.follow_timeout;
        assert_eq!(looked_up(c"one", &|| ()).0, kept);
        let (attr, other) = looked_up(c"other", &|| {
            std::fs::write(place.path().join("other/file"), "").unwrap();
            watch.read_queued(None);
        });
        assert_eq!(attr, Duration::ZERO);
        let question = follow.mark(None, &other);
        assert_eq!(follow.answer_timeout(question, &other), kept);
    }

    /// They were read before the file was reported again, by this lookup or another request.
    #[test]
    fn attributes_of_a_silent_file_are_not_kept_by_lookups_under_way() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("log"), "").unwrap();
        let Some(follow) = followed(place.path(), false) else {
            return thrufs_test_report::skipped("no marks that ignore (Linux 6.0)");
        };
        let Started { watch, .. } = follow.started.get().unwrap();
        let (tree, marks) = (&watch.tree, &watch.marks);
        let looked_up = |meanwhile: &dyn Fn(&Arc<Inode>)| {
            let pending = follow.begin_lookup(None, &tree.root);
            let (inode, _) = tree.lookup_name(&tree.root, c"log").unwrap();
            meanwhile(&inode);
            let timeouts = pending.found(&inode, 1);
            assert_eq!(timeouts.entry, follow.config.follow_timeout);
            (inode, timeouts.attr)
        };
        let kept = follow.config.follow_timeout;
        let (log, attr) = looked_up(&|_| ());
        assert_eq!(attr, kept);
        assert!(watch.silent.begin(marks, tree, &log));
        assert_eq!(looked_up(&|_| ()).1, Duration::ZERO);
        assert_eq!(looked_up(&|_| ()).1, kept);
        assert!(watch.silent.begin(marks, tree, &log));
        let ended = looked_up(&|inode| watch.silent.end(marks, tree, inode));
        assert_eq!(ended.1, Duration::ZERO);
        assert!(watch.silent.begin(marks, tree, &log));
        follow.mark(None, &log);
        assert!(!watch.silent.has(marks, &log));
        assert_eq!(follow.attr_timeout(&log), kept);
    }
}
