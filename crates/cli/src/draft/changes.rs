//! What a draft changes: its layer, as overlayfs keeps it, compared with the tree beneath.
//!
//! The layer was written by a command that is not trusted, and the tree may change at any time. So every file is
//! reached by descriptors, beneath the two directories, without following a link, and is opened only to be listed or
//! to be compared. No descriptor stays open from one directory to the next.
//!
//! What the policy hides in the tree is treated as absent, and is never opened or named.
//!
//! A change conflicts if what the tree has in its place is no longer what it was when the command changed it ([`base`]).

use super::DraftError;
use super::base::{Bases, CHANGED};
use super::beneath::{
    Time, is_temporary, is_whiteout, names, open_directory, open_in, stat_at, type_of,
};
use super::change::{Change, Kind};
use super::compared::Compared;
use super::layer::{Draft, DraftIds};
use crate::error::system;
use crate::policy::host_file::{attributes_in, head_of};
use rustix::fs::{FileType, OFlags, Stat};
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use thrufs_policy::{
    Access, AttributeSource, Attributes, Caller, HEAD_BYTES, Policy, Subject, Visibility,
};

/// Of a path from the top of the tree, in bytes. What is deeper is refused: each directory is opened from the top.
const PATH_BYTES_MAX: usize = 1 << 16;

/// A draft's layer, its tree, and what decides about them.
pub(crate) struct Sides {
    pub(super) upper: OwnedFd,
    pub(super) tree: OwnedFd,
    pub(super) bases: Bases,
    policy: Policy,
    ids: DraftIds,
    /// When the last run began.
    since: Time,
}

/// A directory that is to be walked.
#[derive(Default)]
struct Next {
    path: PathBuf,
    in_layer: bool,
    in_tree: bool,
    is_opaque: bool,
    /// For all beneath.
    refused: Option<String>,
    conflict: Option<&'static str>,
}

/// A directory that is being walked.
struct Place {
    layer: Option<OwnedFd>,
    tree: Option<OwnedFd>,
    at: Next,
}

/// What the policy says of a name.
#[derive(Default)]
struct Judgement {
    /// Why it refuses a change.
    refused: Option<String>,
    is_hidden: bool,
    /// Whether what is there is not to be read, or not as it is.
    is_withheld: bool,
}

/// Compares a draft with its tree, and records what the tree has in the place of each change. To be called while the
/// layer is not mounted: after a run, and before a further one, for one that was killed.
pub(crate) fn record_bases(draft: &Draft) -> Result<Vec<Change>, DraftError> {
    let mut sides = Sides::of(draft)?;
    let changes = sides.changes()?;
    sides.keep_bases(draft, &changes)?;
    Ok(changes)
}

impl Sides {
    pub(crate) fn of(draft: &Draft) -> Result<Sides, DraftError> {
        let (seconds, nanoseconds) = draft.record.ran;
        Ok(Sides {
            upper: draft.upper()?,
            tree: draft.tree()?,
            policy: draft.policy()?,
            ids: draft.record.ids,
            since: (seconds as i64, nanoseconds.into()),
            bases: Bases::read(draft).map_err(system("read what the tree was"))?,
        })
    }

    /// All changes, sorted: directories before what is in them.
    pub(crate) fn changes(&self) -> Result<Vec<Change>, DraftError> {
        let found = self.find();
        Ok(found.map_err(system("compare the draft with its tree"))?)
    }

    /// Records what the tree has in the place of each change that has no record, and forgets what is no longer in the
    /// layer.
    pub(super) fn keep_bases(
        &mut self,
        draft: &Draft,
        changes: &[Change],
    ) -> Result<(), DraftError> {
        let bases = changes.iter().map(|it| (it.path.as_path(), it.base));
        let kept = self.bases.keep(draft, bases);
        Ok(kept.map_err(system("record what the tree was"))?)
    }

    fn find(&self) -> io::Result<Vec<Change>> {
        let mut found: Vec<Change> = Vec::new();
        let mut kept = BTreeSet::new();
        let mut rest = vec![Next {
            in_layer: true,
            in_tree: true,
            ..Next::default()
        }];
        while let Some(next) = rest.pop() {
            let path = next.path.clone();
            let place = self.enter(next);
            let walked =
                place.and_then(|place| self.walk(&place, &mut found, &mut rest, &mut kept));
            if let Err(error) = walked {
                // The command may have made it so, or it has just gone.
                let above = found.iter_mut().rfind(|change| change.path == path);
                let above = above.ok_or(error)?;
                above.refused = Some("cannot be read".to_owned());
                if above.kind == Kind::Same {
                    above.kind = Kind::Changed;
                }
            }
        }
        found.sort_by(|one, other| one.path.cmp(&other.path));
        keep_links(&mut found);
        keep_directories(&mut found, kept);
        Ok(found)
    }

    fn enter(&self, at: Next) -> io::Result<Place> {
        if at.path.as_os_str().len() > PATH_BYTES_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        let open = |top: &OwnedFd, is_there: bool| {
            let opened = is_there.then(|| open_directory(top, &at.path));
            opened.transpose()
        };
        Ok(Place {
            layer: open(&self.upper, at.in_layer)?,
            tree: open(&self.tree, at.in_tree)?,
            at,
        })
    }

    /// Compares what is in a directory. `kept` gets it where something is hidden that would be removed.
    fn walk(
        &self,
        place: &Place,
        found: &mut Vec<Change>,
        rest: &mut Vec<Next>,
        kept: &mut BTreeSet<PathBuf>,
    ) -> io::Result<()> {
        let listed = place.layer.as_ref().map(names).transpose()?;
        let listed = listed.unwrap_or_default();
        let beneath = match &place.tree {
            Some(tree) if place.at.is_opaque => names(tree)?,
            _ => BTreeSet::new(),
        };
        let covered = beneath.difference(&listed);
        for name in listed.iter().chain(covered) {
            let in_layer = listed.contains(name);
            let Some(change) = self.compare(place, name, in_layer)? else {
                kept.insert(place.at.path.clone());
                continue;
            };
            let is_directory = |file_type| file_type == Some(FileType::Directory);
            let in_layer = is_directory(change.layer_type());
            let in_tree = is_directory(change.tree_type());
            if in_layer || in_tree {
                let refused = change.refused.clone();
                rest.push(Next {
                    path: change.path.clone(),
                    in_layer,
                    in_tree,
                    is_opaque: change.is_opaque || !in_layer,
                    refused: refused.filter(|_| change.is_hidden || !in_tree),
                    conflict: change.conflict.filter(|_| !in_tree || !in_layer),
                });
            }
            found.push(change);
        }
        Ok(())
    }

    /// Compares one name. `None` for what is hidden and not in the layer.
    fn compare(&self, place: &Place, name: &OsStr, in_layer: bool) -> io::Result<Option<Change>> {
        let path = place.at.path.join(name);
        let at = |side: &Option<OwnedFd>| side.as_ref().map_or(Ok(None), |it| stat_at(it, name));
        let layer = if in_layer { at(&place.layer)? } else { None };
        let layer = layer.filter(|stat| !is_whiteout(stat));
        let mut tree = at(&place.tree)?;
        let judge = |stat: &Option<Stat>, directory: &Option<OwnedFd>, is_new| {
            let found = stat.as_ref().zip(directory.as_ref());
            found.map(|(stat, directory)| self.judge(&path, (directory, name), stat, is_new))
        };
        let of_tree = judge(&tree, &place.tree, false).unwrap_or_default();
        if of_tree.is_hidden {
            tree = None;
            if !in_layer {
                return Ok(None);
            }
        }
        let of_layer = judge(&layer, &place.layer, tree.is_none()).unwrap_or_default();
        let refused = place.at.refused.clone().or(of_tree.refused);
        let mut refused = refused.or(of_layer.refused);
        let mut file = Compared {
            name,
            layer,
            tree,
            layer_directory: place.layer.as_ref(),
            tree_directory: place.tree.as_ref(),
            is_copy: false,
            contents: Default::default(),
        };
        let is_marked = file.look_at_layer()?;
        let is_opaque = is_marked || place.at.is_opaque && file.are_directories()[0];
        let is_unchanged = self.bases.merge(&path, &mut file);
        let kind = match (&file.layer, &file.tree) {
            _ if is_unchanged => Kind::Same,
            (None, None) => Kind::Same,
            (Some(_), None) => Kind::Created,
            (None, Some(_)) if is_temporary(name) => Kind::Same,
            (None, Some(_)) => Kind::Removed,
            (Some(layer), Some(tree)) => match self.are_same(&file, layer, tree) {
                Ok(true) => Kind::Same,
                Ok(false) => Kind::Changed,
                Err(error) => {
                    refused = refused.or(Some(format!("cannot be compared: {error}")));
                    Kind::Changed
                }
            },
        };
        let mut conflict = place.at.conflict.filter(|_| kind != Kind::Same);
        if conflict.is_none() && kind != Kind::Same {
            conflict = self
                .bases
                .conflict(&path, &file, self.since)
                .unwrap_or(Some(CHANGED));
        }
        if is_temporary(name) && file.layer.is_some() {
            refused = refused.or(Some("a name that apply uses".to_owned()));
        }
        let [in_layer_directory, in_tree_directory] = file.are_directories();
        let removes_beneath = is_opaque || in_tree_directory && !in_layer_directory;
        let base = self.bases.base(&path, &file, conflict, removes_beneath);
        Ok(Some(Change {
            is_protected: refused.is_some(),
            refused: refused.filter(|_| kind != Kind::Same),
            is_hidden: of_tree.is_hidden || of_layer.is_hidden,
            is_withheld: of_layer.is_withheld,
            layer: file.layer,
            tree: file.tree,
            path,
            kind,
            in_layer,
            is_opaque,
            conflict,
            base,
        }))
    }

    /// What the policy says of a name, which is new or not.
    fn judge(
        &self,
        path: &Path,
        (directory, name): (&OwnedFd, &OsStr),
        stat: &Stat,
        is_new: bool,
    ) -> Judgement {
        let file_type = type_of(stat);
        let subject = Subject {
            path: path.as_os_str().as_bytes(),
            file_type,
            source: &Candidate {
                directory,
                name,
                stat,
            },
        };
        let caller = Caller {
            uid: self.ids.uid,
            gid: self.ids.gid,
            executable: &|| None,
        };
        let is_hidden = matches!(self.policy.visibility(&subject), Visibility::Hidden(_));
        let decision = self.policy.decide(&subject, &caller);
        let is_redacted = file_type == FileType::RegularFile && decision.file.redaction.is_some();
        let refused = match file_type {
            _ if decision.check(Access::Change).is_err() => {
                self.policy.restrictions(&decision).pop()
            }
            // The copy has what the command could see.
            _ if is_redacted && !is_new => Some("redacted in the draft".to_owned()),
            FileType::CharacterDevice | FileType::BlockDevice => Some("a device".to_owned()),
            _ => None,
        };
        Judgement {
            refused,
            is_hidden,
            is_withheld: is_hidden || is_redacted || decision.check(Access::Read).is_err(),
        }
    }

    /// Owner and group that root gives to a file in the tree. An ordinary user keeps those that are there.
    pub(super) fn owner_of(&self, layer: &Stat) -> (u32, u32) {
        let ids = &self.ids;
        let shown = |id, own, shown| if id == own { shown } else { id };
        (
            shown(layer.st_uid, ids.uid, ids.shown_uid),
            shown(layer.st_gid, ids.gid, ids.shown_gid),
        )
    }

    /// The mode that a file gets in the tree. No command of a draft gives a program the rights of root by root's apply.
    pub(super) fn mode_of(&self, layer: &Stat) -> u32 {
        let mode = layer.st_mode & 0o7777;
        if !is_root() || type_of(layer) == FileType::Directory {
            return mode;
        }
        match self.owner_of(layer) {
            (0, _) => mode & !(libc::S_ISUID | libc::S_ISGID),
            (_, 0) => mode & !libc::S_ISGID,
            _ => mode,
        }
    }

    fn are_same(&self, file: &Compared<'_>, layer: &Stat, tree: &Stat) -> io::Result<bool> {
        let is_owned = !is_root() || self.owner_of(layer) == (tree.st_uid, tree.st_gid);
        let kind = type_of(layer);
        if kind != type_of(tree) || !is_owned {
            return Ok(false);
        }
        let modes = [layer.st_mode & 0o7777, self.mode_of(layer)];
        let has_mode = kind == FileType::Symlink || modes.contains(&(tree.st_mode & 0o7777));
        // Its times are none of its content.
        let is_alike = has_mode && (kind != FileType::RegularFile || layer.st_size == tree.st_size);
        Ok(is_alike && file.layer_content()? == file.tree_content()?)
    }
}

/// A file, for the policy.
struct Candidate<'a> {
    directory: &'a OwnedFd,
    name: &'a OsStr,
    stat: &'a Stat,
}

impl AttributeSource for Candidate<'_> {
    fn attributes(&self) -> Option<Attributes> {
        Some(attributes_in(self.stat))
    }

    fn head(&self, buffer: &mut [u8; HEAD_BYTES]) -> Option<usize> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        head_of(
            open_in(self.directory, self.name, flags).ok()?.into(),
            buffer,
        )
    }
}

/// Names of one file in the draft must be names of one file in the tree.
fn keep_links(found: &mut [Change]) {
    let mut inodes = HashMap::new();
    for change in found.iter_mut().filter(|it| it.kind == Kind::Same) {
        let (Some(layer), Some(tree)) = (&change.layer, &change.tree) else {
            continue;
        };
        let is_linked = type_of(layer) != FileType::Directory && layer.st_nlink > 1;
        if is_linked && *inodes.entry(layer.st_ino).or_insert(tree.st_ino) != tree.st_ino {
            change.kind = Kind::Changed;
        }
    }
}

/// A directory stays in which something is refused or hidden.
fn keep_directories(found: &mut [Change], mut kept: BTreeSet<PathBuf>) {
    for change in found.iter_mut().rev() {
        if change.removes_directory() && kept.contains(&change.path) {
            let why = || "it has files that the policy hides or protects".to_owned();
            change.refused.get_or_insert_with(why);
        }
        if change.refused.is_some() && change.layer.is_none() {
            kept.extend(change.path.parent().map(Path::to_owned));
        }
    }
}

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
