//! Files that are silent until somebody asks: they are written again and again beneath, and nobody looks at them
//! above (a log). Who writes one pays for no events, and the kernel above gets no notifications.
//!
//! To become silent, a file gets a mark that ignores its data and an entry in the table, *then* the kernel above
//! drops all that it has of it. Whatever answers with attributes or data of an inode asks the table before it
//! reads them: the mark goes, *then* the entry. So the kernel above has nothing of a silent file, except what it
//! asked for before it was told, which it drops. A lookup learns what file it is about with its attributes: they
//! are not kept if any file was made to be reported again meanwhile.
//!
//! * Attributes that are changed without data, names and links are reported all the time.
//! * A mark belongs to the inode beneath, and outlives the node: so does the entry, which is found by the handle,
//!   for whatever node and mount.
//! * A mark that cannot be removed (its mount is gone, or the server of an ordinary user may not read the file any
//!   more) has its entry for good: the file is asked for again as one that is not followed.
//! * A file that the kernel above does not know may be silent as well: a log that is new, or was forgotten.
//! * The kernel above may have other inodes of it, by other mounts or since it has forgotten the first: it drops
//!   what it has of each that the table of nodes has by then. Later ones find the entry.

use super::changes::{COUNTS, index_of};
use super::marks::Marks;
use crate::identity::Identity;
use crate::tree::{Inode, Tree};
use parking_lot::Mutex;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, AtomicUsize, Ordering};
use thrufs::{Errno, Result};

/// Most silent files. With more, the one that has been silent for longest is reported again.
const FILES_MAX: usize = 64;

/// The same with those whose marks cannot be removed. With more, none becomes silent.
const ENTRIES_MAX: usize = 1024;

pub(super) struct Silent {
    /// How many there are.
    count: AtomicUsize,
    /// By the index of the handle: a 0 spares requests about others the lock.
    by_index: [AtomicU16; COUNTS],
    /// How often a file was made to be reported again.
    ends: AtomicU64,
    /// Held while marks are set and removed. The longest silent first.
    files: Mutex<Vec<File>>,
}

struct File {
    handle: LowerHandle,
    /// `None` if its mark cannot be removed.
    inode: Option<Arc<Inode>>,
}

/// An inode beneath, whatever mount shows it: its file system, and its identity on the first mount.
type LowerHandle = (u64, Identity);

fn handle_of(marks: &Marks, inode: &Inode) -> Option<LowerHandle> {
    let file_system = marks.file_system(inode.mount().index)?;
    Some((file_system, inode.identity().on(0)))
}

impl Default for Silent {
    fn default() -> Silent {
        Silent {
            count: AtomicUsize::new(0),
            ends: AtomicU64::new(0),
            by_index: [const { AtomicU16::new(0) }; COUNTS],
            files: Mutex::default(),
        }
    }
}

impl Silent {
    fn count_of(&self, identity: &Identity) -> &AtomicU16 {
        &self.by_index[index_of(identity.parts().1)]
    }

    /// Whether a file is silent.
    pub(super) fn has(&self, marks: &Marks, inode: &Inode) -> bool {
        if self.count.load(Ordering::SeqCst) == 0
            || self.count_of(inode.identity()).load(Ordering::SeqCst) == 0
        {
            return false;
        }
        let Some(handle) = handle_of(marks, inode) else {
            return false;
        };
        self.files.lock().iter().any(|file| file.handle == handle)
    }

    /// Makes a file silent, if it can be; false otherwise, and if it was.
    pub(super) fn begin(&self, marks: &Marks, tree: &Tree, inode: &Arc<Inode>) -> bool {
        if !inode.is_regular() {
            return false;
        }
        if let Some(oldest) = self.oldest_of_many() {
            self.end(marks, tree, &oldest);
        }
        self.enter(marks, tree, inode).unwrap_or(false)
    }

    fn enter(&self, marks: &Marks, tree: &Tree, inode: &Arc<Inode>) -> Result<bool> {
        let handle = handle_of(marks, inode).ok_or(Errno::ENOENT)?;
        let fd = tree.open_inode(inode, libc::O_PATH)?;
        let mut files = self.files.lock();
        if files.len() >= ENTRIES_MAX || files.iter().any(|file| file.handle == handle) {
            return Ok(false);
        }
        marks.ignore_data(fd.as_fd())?;
        self.count_of(&handle.1).fetch_add(1, Ordering::SeqCst);
        self.count.fetch_add(1, Ordering::SeqCst);
        let inode = Some(Arc::clone(inode));
        files.push(File { handle, inode });
        Ok(true)
    }

    /// The file that has been silent for longest, if there are as many as can be.
    fn oldest_of_many(&self) -> Option<Arc<Inode>> {
        let files = self.files.lock();
        let inodes = files.iter().filter_map(|file| file.inode.as_ref());
        let mut inodes = inodes.rev().skip(FILES_MAX - 1);
        inodes.next().map(Arc::clone)
    }

    /// How often a file was made to be reported again.
    pub(super) fn ends(&self) -> u64 {
        self.ends.load(Ordering::SeqCst)
    }

    /// What happens to a file from now on is reported, if that can be.
    pub(super) fn end(&self, marks: &Marks, tree: &Tree, inode: &Arc<Inode>) {
        if !self.has(marks, inode) {
            return;
        }
        let opened = tree.open_inode(inode, libc::O_PATH);
        let Some(handle) = handle_of(marks, inode) else {
            return;
        };
        let mut files = self.files.lock();
        let Some(at) = files.iter().position(|file| file.handle == handle) else {
            return;
        };
        let ended = match opened {
            Ok(fd) => marks.report_data(fd.as_fd()),
            // The inode is gone with its mark.
            Err(Errno::ESTALE) if is_handle_usable(tree, inode) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            tracing::debug!(node = ?inode.node(), %error, "a silent file cannot be reported again");
            files[at].inode = None;
            return;
        }
        files.remove(at);
        // Before the counts: who sees that it is not silent sees this, too.
        self.ends.fetch_add(1, Ordering::SeqCst);
        self.count_of(&handle.1).fetch_sub(1, Ordering::SeqCst);
        self.count.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether a handle leads to an inode as long as that exists.
fn is_handle_usable(tree: &Tree, inode: &Inode) -> bool {
    inode.identity().handle().is_some() && tree.anchor_of(inode.mount()).is_ok()
}

/// Notifications about the data of a file before it becomes silent: for the first time, and after it was
/// asked for. A silence costs two marks and a notification, some 10 µs.
const TIMES: u8 = 16;
const TIMES_AGAIN: u8 = 2;

/// Files whose data change again and again, by any number: one for each index. Another one replaces it that is
/// told of more often.
pub(super) struct Repeated([(u64, u8); FILES_MAX]);

impl Default for Repeated {
    fn default() -> Repeated {
        Repeated([(0, 0); FILES_MAX])
    }
}

impl Repeated {
    /// The data of a file have changed. Returns whether that was often enough.
    pub(super) fn again(&mut self, file: u64) -> bool {
        let (known, times) = &mut self.0[file as usize % FILES_MAX];
        if *known != file && *times > 0 {
            *times -= 1;
            return false;
        }
        *known = file;
        *times += 1;
        if *times < TIMES {
            return false;
        }
        *times -= TIMES_AGAIN;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::marks::Wanted;
    use super::*;
    use crate::config::Config;
    use std::ffi::CString;
    use std::fs;
    use std::path::PathBuf;
    use thrufs_sys::fanotify::BUFFER_BYTES;

    /// A directory whose changes are reported.
    struct Watched {
        place: tempfile::TempDir,
        tree: Tree,
        marks: Marks,
        silent: Silent,
    }

    impl Watched {
        /// `None` without fanotify(7), or before Linux 6.0.
        fn new() -> Option<Watched> {
            let place = tempfile::tempdir().unwrap();
            let source = fs::File::open(place.path()).unwrap();
            let tree = Tree::new(source.into(), &Config::default(), None, None, false).unwrap();
            let wanted = Wanted {
                most: 10,
                whole_file_systems: false,
                mounts_are_private: false,
            };
            let marks = Marks::new(wanted, 0).ok()?;
            marks.mark(&tree, &tree.root, None, None).ok()?;
            let silent = Silent::default();
            let watched = Watched {
                place,
                tree,
                marks,
                silent,
            };
            fs::write(watched.path("probe"), "").unwrap();
            let probe = fs::File::open(watched.path("probe")).unwrap();
            if watched.marks.ignore_data(probe.as_fd()).is_err() {
                thrufs_test_report::skipped("no marks that ignore (Linux 6.0)");
                return None;
            }
            Some(watched)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.place.path().join(name)
        }

        /// Looks a file up that is there from now on.
        fn look_up(&self, name: &str) -> Arc<Inode> {
            fs::write(self.path(name), "content").unwrap();
            self.look_up_again(name)
        }

        fn look_up_again(&self, name: &str) -> Arc<Inode> {
            let name = CString::new(name).unwrap();
            self.tree.lookup_name(&self.tree.root, &name).unwrap().0
        }

        fn begin(&self, inode: &Arc<Inode>) -> bool {
            self.silent.begin(&self.marks, &self.tree, inode)
        }

        /// Returns whether it was silent until then.
        fn end(&self, inode: &Arc<Inode>) -> bool {
            let ends = self.silent.ends();
            self.silent.end(&self.marks, &self.tree, inode);
            self.silent.ends() > ends
        }

        /// Whether something was reported since this was last asked.
        fn was_reported(&self) -> bool {
            let mut buffer = vec![0; BUFFER_BYTES];
            let groups = self.marks.groups();
            let mut read = groups.iter().map(|group| group.read(&mut buffer).is_ok());
            read.any(|is_some| is_some)
        }

        /// Whether a write is reported.
        fn reports(&self, name: &str) -> bool {
            self.was_reported();
            fs::write(self.path(name), "other content").unwrap();
            self.was_reported()
        }
    }

    #[test]
    fn silent_file_is_reported_again_once_it_is_asked_for() {
        let Some(watched) = Watched::new() else {
            return;
        };
        let (log, other) = (watched.look_up("log"), watched.look_up("other"));
        assert!(watched.reports("log"));
        assert!(watched.begin(&log) && !watched.begin(&log));
        assert!(!watched.reports("log") && watched.reports("other"));
        rustix::fs::chmod(watched.path("log"), 0o600.into()).unwrap();
        assert!(watched.was_reported(), "its mode");
        assert!(!watched.end(&other) && !watched.reports("log"));
        assert!(watched.end(&log) && watched.reports("log"));
        assert!(!watched.end(&log));
        assert!(!watched.begin(&watched.tree.root), "no directory");
    }

    #[test]
    fn silent_file_is_reported_again_for_its_next_node() {
        let Some(watched) = Watched::new() else {
            return;
        };
        let log = watched.look_up("log");
        assert!(watched.begin(&log));
        watched.tree.forget(log.node(), 1);
        let next = watched.look_up_again("log");
        assert!(next.node() != log.node());
        assert!(watched.end(&next) && watched.reports("log"));
        assert!(watched.begin(&log) && watched.silent.has(&watched.marks, &next));
        let known = watched.marks.everywhere(&watched.tree, &log);
        assert!(matches!(&known[..], [known] if Arc::ptr_eq(known, &next)));
    }

    #[test]
    fn removed_file_is_silent_no_longer_once_it_is_forgotten() {
        let Some(watched) = Watched::new() else {
            return;
        };
        let log = watched.look_up("log");
        assert!(watched.begin(&log));
        fs::remove_file(watched.path("log")).unwrap();
        log.lower.drop_descriptor();
        assert_eq!(watched.end(&log), log.mount().has_handles);
    }

    #[test]
    fn longest_silent_file_makes_room_for_another() {
        let Some(watched) = Watched::new() else {
            return;
        };
        let files: Vec<_> = (0..=FILES_MAX)
            .map(|number| watched.look_up(&number.to_string()))
            .collect();
        assert!(files.iter().all(|file| watched.begin(file)));
        assert!(watched.reports("0"));
        assert!(!watched.reports("1") && !watched.reports(&FILES_MAX.to_string()));
        assert!(files.iter().skip(1).all(|file| watched.end(file)));
        let counts = &watched.silent.by_index;
        assert!(counts.iter().all(|count| count.load(Ordering::SeqCst) == 0));
        assert_eq!(watched.silent.count.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn file_counts_that_changes_more_often_than_others() {
        let mut repeated = Repeated::default();
        let often = |repeated: &mut Repeated, node: u64| {
            let times = 1..=100;
            let mut times = times.filter(|_| repeated.again(node));
            times.next()
        };
        let slots = FILES_MAX as u64;
        assert_eq!(often(&mut repeated, 1), Some(TIMES.into()));
        assert_eq!(often(&mut repeated, 1), Some(TIMES_AGAIN.into()));
        assert_eq!(often(&mut repeated, 2), Some(TIMES.into()), "another slot");
        let many = (3..100).map(|number| 1 + slots * number);
        assert!(many.into_iter().all(|node| !repeated.again(node)));
        let (once, twice) = (1 + slots * 200, 1 + slots * 300);
        let rounds = (1..=100).filter(|_| {
            repeated.again(once);
            let is_often = repeated.again(twice);
            repeated.again(twice) || is_often
        });
        assert!(rounds.count() > 0);
    }
}
