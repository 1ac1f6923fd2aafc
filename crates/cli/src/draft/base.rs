//! What the tree was when a draft changed it, and whether it still is.
//!
//! At the end of each run the draft's file `bases` gets what the tree has in the place of each change: a map from
//! paths to [`Base`], written by postcard. From then on type, mode, owner and content of three files are compared: what
//! only the host has changed is none of the draft's. Before that, times decide: what changed in the tree after the run
//! began conflicts, but for a file that was written in place before the command changed it, which is when overlayfs
//! makes its copy: that was seen.

use super::beneath::{Time, type_of};
use super::compared::Compared;
use super::layer::{Draft, read_file, replace_file};
use rustix::fs::{FileType, Stat, fstat};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const BASES: &str = "bases";
const BASES_BYTES_MAX: u64 = 1 << 30;

pub(super) const CREATED: &str = "it was created in the tree meanwhile";
pub(super) const CHANGED: &str = "it changed in the tree meanwhile";
const REMOVED: &str = "it was removed from the tree meanwhile";

/// What the tree had in the place of a change.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Base {
    was: Was,
    /// Whether all beneath was removed then: what is there without a base of its own was made later.
    removes_beneath: bool,
}

impl Base {
    /// Whether there was nothing.
    pub(super) fn was_absent(&self) -> bool {
        matches!(self.was, Was::Absent)
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Was {
    Absent,
    File(Version),
    /// It changed while the command ran.
    InConflict,
}

/// A state of a file. The device is left out: some have another number after a reboot.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Version {
    mode: u32,
    owner: (u32, u32),
    /// A hash of bytes and attributes; `None` for what the draft removes.
    content: Option<u64>,
    inode: u64,
    size: i64,
    modified: Time,
    changed: Time,
}

impl Version {
    fn of(stat: &Stat, content: Option<u64>) -> Version {
        Version {
            mode: stat.st_mode,
            owner: (stat.st_uid, stat.st_gid),
            content,
            inode: stat.st_ino,
            size: stat.st_size,
            modified: modification_time(stat),
            changed: change_time(stat),
        }
    }

    fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }

    /// Whether a file was changed since, in what the draft changes as well.
    fn is_changed(&self, file: &Compared<'_>, tree: &Stat) -> io::Result<bool> {
        let now = Version::of(tree, None);
        let [in_layer, in_tree] = file.are_directories();
        if self.file_type() != now.file_type() {
            return Ok(true);
        }
        if in_tree && !in_layer {
            // What is in it decides.
            return Ok(false);
        }
        let is_mine = |layer: Stat| layer.st_mode == self.mode || layer.st_mode == now.mode;
        if self.mode != now.mode && !file.layer.is_some_and(is_mine)
            || self.owner != now.owner && !in_tree
        {
            return Ok(true);
        }
        let seen = |it: &Version| (it.inode, it.size, it.modified);
        if seen(self) == seen(&now) && (self.changed == now.changed || self.content.is_none()) {
            return Ok(false);
        }
        let Some(content) = self.content else {
            return Ok(true);
        };
        let found = file.tree_content()?;
        Ok(found != content && found != file.layer_content()?)
    }
}

/// Whether a file is still as it was seen. Names that come and go, and a rename, set its time of change.
pub(super) fn is_unchanged(seen: &Stat, now: &Stat) -> bool {
    let [seen, now] = [seen, now].map(|it| Version::of(it, None));
    let all = |it: Version| (it.mode, it.owner, it.inode, it.size, it.modified);
    all(seen) == all(now)
}

#[derive(Default)]
pub(super) struct Bases(BTreeMap<Vec<u8>, Base>);

impl Bases {
    pub(super) fn read(draft: &Draft) -> io::Result<Bases> {
        match read_file(&draft.directory, BASES, BASES_BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Bases::default()),
            read => postcard::from_bytes(&read?)
                .map(Bases)
                .map_err(io::Error::other),
        }
    }

    /// Keeps those of the changes.
    pub(super) fn keep<'a>(
        &mut self,
        draft: &Draft,
        all: impl Iterator<Item = (&'a Path, Base)>,
    ) -> io::Result<()> {
        let all = all.map(|(path, base)| (path.as_os_str().as_bytes().to_vec(), base));
        self.0 = all.collect();
        let bytes = postcard::to_allocvec(&self.0).map_err(io::Error::other)?;
        replace_file(&draft.directory, BASES, &bytes)
    }

    fn get(&self, path: &Path) -> Option<&Base> {
        self.0.get(path.as_os_str().as_bytes())
    }

    /// The base of a change that was just found.
    pub(super) fn base(
        &self,
        path: &Path,
        file: &Compared<'_>,
        conflict: Option<&'static str>,
        removes_beneath: bool,
    ) -> Base {
        let was = match (self.get(path), conflict, &file.tree) {
            (Some(base), ..) => base.was,
            (None, Some(CREATED), _) => Was::Absent,
            (None, Some(_), _) => Was::InConflict,
            (None, None, Some(tree)) => {
                let content = file.layer.and_then(|_| file.tree_content().ok());
                Was::File(Version::of(tree, content))
            }
            (None, None, None) => Was::Absent,
        };
        Base {
            was,
            removes_beneath,
        }
    }

    /// Takes of the tree what the draft has not changed of a file. Returns whether it has changed nothing: the file was
    /// opened for writing, or came by a change that was applied.
    pub(super) fn merge(&self, path: &Path, file: &mut Compared<'_>) -> bool {
        let (Some(Was::File(was)), Some(layer)) = (self.get(path).map(|it| it.was), file.layer)
        else {
            return false;
        };
        let is_same_mode = layer.st_mode == was.mode;
        let is_unchanged = is_same_mode
            && was.file_type() != FileType::Directory
            && was.content.is_some()
            && was.content == file.layer_content().ok();
        if let (Some(layer), Some(tree), true) = (&mut file.layer, &file.tree, is_same_mode)
            && type_of(tree) == was.file_type()
        {
            layer.st_mode = tree.st_mode;
        }
        is_unchanged
    }

    /// What happened in the tree since the command changed a file.
    pub(super) fn conflict(
        &self,
        path: &Path,
        file: &Compared<'_>,
        since: Time,
    ) -> io::Result<Option<&'static str>> {
        let are_directories = file.are_directories();
        if let (Some(layer), Some(tree), [true, true]) = (&file.layer, &file.tree, are_directories)
            && layer.st_mode | 0o700 == tree.st_mode
            && file.layer_content()? == file.tree_content()?
        {
            // Of an apply that was interrupted: its owner may write there until all is in it.
            return Ok(None);
        }
        Ok(match (self.get(path).map(|base| base.was), &file.tree) {
            // The draft removes it as well, and makes another file.
            (Some(Was::File(was)), None)
                if was.file_type() == FileType::Directory && !are_directories[0] =>
            {
                None
            }
            (Some(Was::InConflict), _) => Some(CHANGED),
            (Some(Was::Absent), tree) => tree.map(|_| CREATED),
            (Some(Was::File(_)), None) => Some(REMOVED),
            (Some(Was::File(was)), Some(tree)) => was.is_changed(file, tree)?.then_some(CHANGED),
            (None, Some(_)) if file.layer.is_none() => {
                let above = path.ancestors().skip(1).find_map(|it| self.get(it));
                match above.is_some_and(|above| above.removes_beneath) {
                    true => Some(CREATED),
                    false => conflict_by_time(file, since),
                }
            }
            (None, _) => conflict_by_time(file, since),
        })
    }
}

fn conflict_by_time(file: &Compared<'_>, since: Time) -> Option<&'static str> {
    let copied = file.is_copy.then(|| file.unseen_since(since));
    let unseen = copied.unwrap_or(since);
    match &file.tree {
        Some(tree) => (change_time(tree) > unseen).then_some(CHANGED),
        None if copied.is_some() => {
            // A file that was renamed is a copy as well.
            let above = file.tree_directory.and_then(|it| fstat(it).ok());
            let is_modified = above.is_some_and(|above| modification_time(&above) > unseen);
            (file.are_directories()[0] || is_modified).then_some(REMOVED)
        }
        None => None,
    }
}

fn change_time(stat: &Stat) -> Time {
    (stat.st_ctime, stat.st_ctime_nsec as i64)
}

fn modification_time(stat: &Stat) -> Time {
    (stat.st_mtime, stat.st_mtime_nsec as i64)
}
