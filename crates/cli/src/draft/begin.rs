//! Begins a draft, or goes on in one.

use super::beneath::open_in;
use super::changes::{Sides, record_bases};
use super::layer::{
    Draft, DraftIds, Drafts, LOCK, NAME_CHARS_MAX, RECORD, Record, TreeIdentity, UPPER, VERSION,
    WORK, is_name, is_usual, lock, make_directory, read_record, replace_file,
};
use super::{DraftError, remove};
use crate::error::system_at;
use rustix::fs::{Mode, OFlags, XattrFlags, fgetxattr, fsetxattr, fstat, mkdirat};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The longest that a file system keeps (ext4: a block).
const LIST_BYTES_MAX: usize = 64 << 10;

impl Drafts {
    /// Finds or makes the draft of this name for a tree, or a new one with a name of its own, for this process alone.
    ///
    /// # Errors
    ///
    /// It is of another tree, in use, or where overlayfs cannot have it.
    pub(crate) fn reserve(
        &self,
        name: Option<&str>,
        tree: &OwnedFd,
        path: &Path,
    ) -> Result<Reserved, DraftError> {
        let (step, damaged) = (
            || system_at("make a draft in", &self.path),
            DraftError::Damaged,
        );
        let name = match name {
            Some(name) if !is_name(name) => return Err(DraftError::BadName(name.to_owned())),
            Some(name) => {
                make_directory(&self.place, name).map_err(step())?;
                name.to_owned()
            }
            None => self.make_named_after(path).map_err(step())?,
        };
        let directory = self.directory(&name)?;
        let lock = lock(&name, &directory)?;
        let identity = TreeIdentity::of(tree).map_err(step())?;
        let record = match read_record(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                remove::contents(&directory, LOCK)
                    .map_err(system_at("make a draft in", &self.path))?;
                None
            }
            Err(error) => return Err(damaged(name, error.to_string())),
            Ok(record) if record.tree() != path => {
                let tree = record.tree.into();
                return Err(DraftError::OtherTree { name, tree });
            }
            Ok(record) if identity != record.identity => {
                let tree = record.tree.into();
                return Err(DraftError::TreeReplaced { name, tree });
            }
            Ok(record) => Some(record),
        };
        Ok(Reserved {
            path: self.path.join(&name),
            name,
            directory,
            lock,
            tree: (identity, path.into()),
            record,
        })
    }

    /// `project`, `project-2`, …
    fn make_named_after(&self, tree: &Path) -> rustix::io::Result<String> {
        let name = tree.file_name().unwrap_or_default().to_string_lossy();
        let usual = |it: char| if is_usual(it) { it } else { '-' };
        let name: String = name.chars().map(usual).take(NAME_CHARS_MAX - 8).collect();
        let name = match name.trim_start_matches(['.', '-']) {
            "" => "draft",
            name => name,
        };
        let numbered = (2..).map(|number: u32| format!("{name}-{number}"));
        for name in [name.to_owned()].into_iter().chain(numbered) {
            match mkdirat(&self.place, &name, Mode::RWXU) {
                Err(Errno::EXIST) => {}
                made => return made.map(|()| name),
            }
        }
        Err(Errno::EXIST)
    }
}

/// A draft that no other process uses, before its first run or before a further one.
pub(crate) struct Reserved {
    name: String,
    path: PathBuf,
    directory: OwnedFd,
    lock: OwnedFd,
    tree: (TreeIdentity, PathBuf),
    /// Of a draft that was there before.
    pub(crate) record: Option<Record>,
}

impl Reserved {
    /// Makes the layer, if it is new, and records the policy of this run.
    pub(crate) fn begin(
        self,
        tree: &OwnedFd,
        policy: &str,
        ids: DraftIds,
    ) -> Result<Draft, DraftError> {
        let step = || system_at("make the draft", &self.path);
        // Times of files are of a clock that is behind by up to a tick, in which no sandbox starts.
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let now = (now.as_secs(), now.subsec_nanos());
        let is_new = self.record.is_none();
        if is_new {
            make_layer(&self.directory, tree, ids).map_err(step())?;
        }
        let (identity, path) = self.tree;
        let mut draft = Draft {
            name: self.name,
            record: self.record.unwrap_or(Record {
                version: VERSION,
                tree: path.into_os_string(),
                identity,
                ran: now,
                policy: String::new(),
                ids,
            }),
            path: self.path.clone(),
            directory: self.directory,
            lock: Some(self.lock),
        };
        // Of a run that was killed, too.
        let before = match is_new {
            true => Vec::new(),
            false => record_bases(&draft)?,
        };
        let is_other = draft.record.policy != policy;
        policy.clone_into(&mut draft.record.policy);
        if is_other && !before.is_empty() {
            let shown = before.iter().filter(|it| !it.is_withheld);
            let shown: BTreeSet<&Path> = shown.map(|it| it.path.as_path()).collect();
            let now = Sides::of(&draft)?.changes()?;
            let mut withheld = now.iter().filter(|it| it.layer.is_some() && it.is_withheld);
            if let Some(change) = withheld.find(|it| shown.contains(it.path.as_path())) {
                return Err(DraftError::Withheld(draft.name, change.path.clone()));
            }
        }
        draft.record.ran = now;
        let record = serde_json::to_vec(&draft.record).map_err(io::Error::from);
        let written = record.and_then(|it| replace_file(&draft.directory, RECORD, &it));
        written.map_err(step())?;
        Ok(draft)
    }
}

/// The layer shows the attributes of its own top directory, not those of the tree's.
fn make_layer(directory: &OwnedFd, tree: &OwnedFd, ids: DraftIds) -> io::Result<()> {
    let stat = fstat(tree)?;
    let shown = |id: u32, own: u32, seen: u32| if id == seen { own } else { id };
    let (uid, gid) = match rustix::process::geteuid().is_root() {
        true => (
            shown(stat.st_uid, ids.uid, ids.shown_uid),
            shown(stat.st_gid, ids.gid, ids.shown_gid),
        ),
        false => (ids.uid, ids.gid),
    };
    for (name, mode) in [
        (WORK, Mode::RWXU),
        (UPPER, Mode::from_raw_mode(stat.st_mode)),
    ] {
        mkdirat(directory, name, Mode::RWXU)?;
        let made = open_in(directory, name, OFlags::RDONLY | OFlags::DIRECTORY)?;
        if rustix::process::geteuid().is_root() {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            rustix::fs::fchown(&made, Some(uid), Some(gid))?;
        }
        rustix::fs::fchmod(&made, mode)?;
        if name == UPPER {
            copy_lists(tree, &made)?;
        }
    }
    Ok(())
}

/// Access control lists, of which the default one is for what is made.
fn copy_lists(from: &OwnedFd, to: &OwnedFd) -> rustix::io::Result<()> {
    for name in ["system.posix_acl_access", "system.posix_acl_default"] {
        let mut list = vec![0; LIST_BYTES_MAX];
        match fgetxattr(from, name, &mut list) {
            Ok(length) => fsetxattr(to, name, &list[..length], XattrFlags::empty())?,
            Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
