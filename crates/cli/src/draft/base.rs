//! What the tree was when a draft changed it, and whether it still is.
//!
//! At the end of each run the draft's file `bases` gets what the tree has in the place of each change: a map from
//! paths to [`Base`], written by postcard. Before that, times decide: what changed in the tree after the run began
//! conflicts, but for a file that was written in place before the command changed it, which is when overlayfs makes its
//! copy: that was seen.

use super::beneath::type_of;
use super::change::{Change, Time};
use super::layer::Draft;
use rustix::fs::{FileType, Mode, OFlags, Stat, openat, renameat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const BASES: &str = "bases";
const BASES_BYTES_MAX: u64 = 1 << 30;

pub(super) const CREATED: &str = "it was created in the tree meanwhile";
pub(super) const CHANGED: &str = "it changed in the tree meanwhile";
const REMOVED: &str = "it was removed from the tree meanwhile";

/// What the tree had in the place of a change.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Base {
    was: Was,
    /// Whether all beneath was removed then: what is there without a base of its own was made later.
    removes_beneath: bool,
    /// Mode and time of a directory in the layer, before an apply that takes out what is in it.
    before: Option<(u32, Time)>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Was {
    Absent,
    File(Version),
    /// It changed while the command ran.
    InConflict,
}

/// A state of a file. The device is left out: some have another number after a reboot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Version {
    inode: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    size: i64,
    modified: Time,
    /// `None` for a file with more than one link: those that come and go change it.
    changed: Option<Time>,
}

impl Version {
    fn of(stat: &Stat) -> Version {
        Version {
            inode: stat.st_ino,
            mode: stat.st_mode,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: stat.st_size,
            modified: modification_time(stat),
            changed: (stat.st_nlink == 1 || type_of(stat) == FileType::Directory)
                .then(|| change_time(stat)),
        }
    }

    fn is_directory(&self) -> bool {
        FileType::from_raw_mode(self.mode) == FileType::Directory
    }

    fn is_that_of(&self, now: Version) -> bool {
        let changed = self.changed;
        *self == Version { changed, ..now }
            && (changed.is_none() || now.changed.is_none_or(|it| Some(it) == changed))
    }
}

/// Whether a file is still as it was seen.
pub(super) fn is_untouched(seen: &Stat, now: &Stat) -> bool {
    Version::of(seen).is_that_of(Version::of(now))
}

/// Whether a file is still as it was seen, but for its time of change, which a rename sets.
pub(super) fn is_unchanged(seen: &Stat, now: &Stat) -> bool {
    let now = Version {
        changed: None,
        ..Version::of(now)
    };
    Version::of(seen).is_that_of(now)
}

/// What was found in the place of a change.
pub(super) struct Finding<'a> {
    pub(super) layer: Option<&'a Stat>,
    pub(super) tree: Option<&'a Stat>,
    /// The tree's directory.
    pub(super) above: Option<Stat>,
    /// Of a copy of overlayfs's: from when on the command may not have seen what changed in the tree.
    pub(super) copied: Option<Time>,
    /// When the run began.
    pub(super) since: Time,
    pub(super) has_same_attributes: bool,
}

#[derive(Default)]
pub(super) struct Bases(BTreeMap<Vec<u8>, Base>);

impl Bases {
    pub(super) fn read(draft: &Draft) -> io::Result<Bases> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match openat(draft.directory(), BASES, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(Bases::default()),
            opened => File::from(opened?),
        };
        let mut bytes = Vec::new();
        file.take(BASES_BYTES_MAX).read_to_end(&mut bytes)?;
        postcard::from_bytes(&bytes)
            .map(Bases)
            .map_err(io::Error::other)
    }

    pub(super) fn write(&self, draft: &Draft) -> io::Result<()> {
        let bytes = postcard::to_allocvec(&self.0).map_err(io::Error::other)?;
        let new = format!("{BASES}.new");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(draft.directory(), &new, flags, Mode::RUSR | Mode::WUSR)?;
        File::from(file).write_all(&bytes)?;
        Ok(renameat(draft.directory(), new, draft.directory(), BASES)?)
    }

    /// Whether the tree had nothing there.
    pub(super) fn is_absent(&self, path: &Path) -> bool {
        let base = self.0.get(path.as_os_str().as_bytes());
        base.is_some_and(|base| matches!(base.was, Was::Absent))
    }

    /// Gives a directory in the layer the mode and the time that it had before an apply that was interrupted.
    pub(super) fn restore(&self, path: &Path, layer: &mut Stat) {
        let base = self.0.get(path.as_os_str().as_bytes());
        if let Some((mode, (seconds, nanoseconds))) = base.and_then(|base| base.before)
            && [mode, mode | 0o700].contains(&layer.st_mode)
        {
            layer.st_mode = mode;
            layer.st_mtime = seconds;
            layer.st_mtime_nsec = nanoseconds as u64;
        }
    }

    /// Adds those of changes that have none, and removes those of what is no longer in the layer.
    pub(super) fn update(&mut self, changes: &[Change], applies: bool) {
        let base = |change: &Change| {
            let path = change.path.as_os_str().as_bytes().to_vec();
            let was = match (self.0.get(&path), change.conflict, &change.tree) {
                (Some(base), ..) => base.was,
                (None, Some(CREATED), _) => Was::Absent,
                (None, Some(_), _) => Was::InConflict,
                (None, None, Some(stat)) => Was::File(Version::of(stat)),
                (None, None, None) => Was::Absent,
            };
            let removes_beneath = change.removes_directory() || change.is_opaque;
            let is_directory = change.layer_type() == Some(FileType::Directory);
            let layer = change.layer.filter(|_| applies && is_directory);
            let base = Base {
                was,
                removes_beneath,
                before: layer.map(|it| (it.st_mode, modification_time(&it))),
            };
            (path, base)
        };
        self.0 = changes.iter().map(base).collect();
    }

    /// What happened in the tree since the command changed a file.
    pub(super) fn conflict(&self, path: &Path, found: &Finding<'_>) -> Option<&'static str> {
        let base = |path: &Path| self.0.get(path.as_os_str().as_bytes());
        if found.is_half_applied() {
            return None;
        }
        match (base(path).map(|base| base.was), found.tree) {
            // The draft removes it as well, and makes another file.
            (Some(Was::File(was)), None) if was.is_directory() && !found.are_directories().0 => {
                None
            }
            (Some(Was::InConflict), _) => Some(CHANGED),
            (Some(Was::Absent), tree) => tree.map(|_| CREATED),
            (Some(Was::File(_)), None) => Some(REMOVED),
            (Some(Was::File(was)), Some(tree)) => found.is_changed(&was, tree).then_some(CHANGED),
            (None, Some(_)) if found.layer.is_none() => {
                let above = path.ancestors().skip(1).find_map(base);
                match above.is_some_and(|above| above.removes_beneath) {
                    true => Some(CREATED),
                    false => found.conflict_by_time(),
                }
            }
            (None, _) => found.conflict_by_time(),
        }
    }
}

impl Finding<'_> {
    fn are_directories(&self) -> (bool, bool) {
        let is_directory = |stat: &Stat| type_of(stat) == FileType::Directory;
        (
            self.layer.is_some_and(is_directory),
            self.tree.is_some_and(is_directory),
        )
    }

    /// Whether it is a directory of an apply that was interrupted: its owner may write there until all is in it.
    fn is_half_applied(&self) -> bool {
        let mode = |stat: Option<&Stat>| stat.map(|stat| stat.st_mode);
        let made = mode(self.layer).map(|mode| mode | 0o700);
        self.are_directories() == (true, true)
            && self.has_same_attributes
            && made == mode(self.tree)
    }

    fn is_changed(&self, was: &Version, tree: &Stat) -> bool {
        let now = Version::of(tree);
        match self.are_directories() {
            (_, false) => !was.is_that_of(now),
            // What is in it decides. Inodes are used again.
            (false, true) => was.inode != now.inode || !was.is_directory(),
            // Files that come and go change its times. After an apply that was interrupted the mode is either.
            (true, true) => {
                let mode = self.layer.map(|stat| stat.st_mode);
                let is_same = (was.inode, was.uid, was.gid) == (now.inode, now.uid, now.gid)
                    && self.has_same_attributes
                    && (was.mode == now.mode || mode == Some(now.mode));
                !is_same && (was.changed.is_none() || was.changed != now.changed)
            }
        }
    }

    fn conflict_by_time(&self) -> Option<&'static str> {
        let copied = self.copied.unwrap_or(self.since);
        match (self.are_directories(), self.tree) {
            (_, Some(tree)) => (change_time(tree) > copied).then_some(CHANGED),
            ((is_directory, _), None) if self.copied.is_some() => {
                // A file that was renamed is a copy as well.
                let modified = |stat: Stat| modification_time(&stat) > copied;
                (is_directory || self.above.is_some_and(modified)).then_some(REMOVED)
            }
            (_, None) => None,
        }
    }
}

fn change_time(stat: &Stat) -> Time {
    (stat.st_ctime, stat.st_ctime_nsec as i64)
}

fn modification_time(stat: &Stat) -> Time {
    (stat.st_mtime, stat.st_mtime_nsec as i64)
}
