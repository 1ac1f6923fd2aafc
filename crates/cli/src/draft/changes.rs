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
use super::base::{Bases, Finding};
use super::beneath::{
    attributes, has_attributes, is_temporary, is_whiteout, names, open_directory, open_in, stat_at,
    target, type_of,
};
use super::change::{Change, Kind, Time};
use super::layer::{Draft, DraftIds};
use crate::error::system;
use crate::policy::host_file::{attributes_in, head_of};
use rustix::fs::{AtFlags, FileType, OFlags, Stat, StatxFlags, fstat, statx};
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use thrufs_policy::{
    Access, AttributeSource, Attributes, Caller, HEAD_BYTES, Policy, Subject, Visibility,
};

/// Of a path from the top of the tree, in bytes. What is deeper is refused: each directory is opened from the top.
const PATH_BYTES_MAX: usize = 1 << 16;

/// How old the tree may be that a command sees, in seconds: overlayfs keeps attributes for one.
const VIEW_AGE_MAX_S: i64 = 2;

const COMPARED_BYTES: usize = 1 << 17;

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

/// Compares a draft with its tree, and records what the tree has in the place of each change. To be called while the
/// layer is not mounted: after a run, and before a further one, for one that was killed.
pub(crate) fn record_bases(draft: &Draft) -> Result<Vec<Change>, DraftError> {
    let mut sides = Sides::of(draft)?;
    let changes = sides.changes()?;
    sides.keep_bases(draft, &changes, false)?;
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
        applies: bool,
    ) -> Result<(), DraftError> {
        self.bases.update(changes, applies);
        let written = self.bases.write(draft);
        Ok(written.map_err(system("record what the tree was"))?)
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
            let Some((change, is_hidden)) = self.compare(place, name, in_layer)? else {
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
                    refused: refused.filter(|_| is_hidden || !in_tree),
                    conflict: change.conflict.filter(|_| !in_tree || !in_layer),
                });
            }
            found.push(change);
        }
        Ok(())
    }

    /// Compares one name, and says whether the policy hides it. `None` for what is hidden and not in the layer.
    fn compare(
        &self,
        place: &Place,
        name: &OsStr,
        in_layer: bool,
    ) -> io::Result<Option<(Change, bool)>> {
        let path = place.at.path.join(name);
        let at = |side: &Option<OwnedFd>| side.as_ref().map_or(Ok(None), |it| stat_at(it, name));
        let layer = if in_layer { at(&place.layer)? } else { None };
        let layer = layer.filter(|stat| !is_whiteout(stat));
        let mut tree = at(&place.tree)?;
        let mut refused = place.at.refused.clone();
        let mut is_hidden = false;
        if let (Some(stat), Some(directory)) = (&tree, &place.tree) {
            let (why, hidden) = self.judge(&path, (directory, name), stat, false);
            (refused, is_hidden) = (refused.or(why), hidden);
        }
        if is_hidden {
            tree = None;
            if !in_layer {
                return Ok(None);
            }
        }
        if let (Some(stat), Some(directory)) = (&layer, &place.layer) {
            let (why, hidden) = self.judge(&path, (directory, name), stat, tree.is_none());
            (refused, is_hidden) = (refused.or(why), is_hidden || hidden);
        }
        let mut file = Compared::new(place, name, layer, tree);
        let is_opaque = file.look_at_layer()?;
        if let Some(layer) = &mut file.layer {
            self.bases.restore(&path, layer);
        }
        let kind = match (&file.layer, &file.tree) {
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
        let mut conflict = None;
        if kind != Kind::Same {
            let finding = file.finding(self.since);
            let found = || self.bases.conflict(&path, &finding);
            conflict = place.at.conflict.or_else(found);
        }
        if is_temporary(name) && file.layer.is_some() {
            refused = refused.or(Some("a name that apply uses".to_owned()));
        }
        let change = Change {
            is_protected: refused.is_some(),
            refused: refused.filter(|_| kind != Kind::Same),
            path,
            kind,
            layer: file.layer,
            tree: file.tree,
            in_layer,
            is_opaque,
            conflict,
        };
        Ok(Some((change, is_hidden)))
    }

    /// Why the policy refuses the change, and whether it hides the name.
    fn judge(
        &self,
        path: &Path,
        (directory, name): (&OwnedFd, &OsStr),
        stat: &Stat,
        is_new: bool,
    ) -> (Option<String>, bool) {
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
        let is_file = file_type == FileType::RegularFile;
        let refused = match file_type {
            _ if decision.check(Access::Change).is_err() => {
                self.policy.restrictions(&decision).pop()
            }
            // The copy has what the command could see.
            _ if is_file && !is_new && decision.file.redaction.is_some() => {
                Some("redacted in the draft".to_owned())
            }
            FileType::CharacterDevice | FileType::BlockDevice => Some("a device".to_owned()),
            _ => None,
        };
        (refused, is_hidden)
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
        if kind == FileType::Symlink {
            let target = |side: &Option<OwnedFd>| target(present(side)?, file.name);
            return Ok(target(&file.place.layer)? == target(&file.place.tree)?);
        }
        let modes = [layer.st_mode & 0o7777, self.mode_of(layer)];
        if !modes.contains(&(tree.st_mode & 0o7777)) || !file.attributes_are_same()? {
            return Ok(false);
        }
        let times = |stat: &Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
        let is_file = kind == FileType::RegularFile;
        Ok(!is_file || times(layer) == times(tree) && file.bytes_are_same()?)
    }
}

/// One name on both sides.
struct Compared<'a> {
    place: &'a Place,
    name: &'a OsStr,
    layer: Option<Stat>,
    tree: Option<Stat>,
    /// Whether overlayfs copied it from the tree, which it notes for files with one link.
    is_copy: bool,
}

impl<'a> Compared<'a> {
    fn new(place: &'a Place, name: &'a OsStr, layer: Option<Stat>, tree: Option<Stat>) -> Self {
        let is_copy = false;
        Compared {
            place,
            name,
            layer,
            tree,
            is_copy,
        }
    }

    /// Reads what overlayfs noted of it; returns whether it is an opaque directory.
    fn look_at_layer(&mut self) -> io::Result<bool> {
        let file_type = self.layer.as_ref().map(type_of);
        if !file_type.is_some_and(has_attributes) {
            return Ok(false);
        }
        let file = open_in(present(&self.place.layer)?, self.name, OFlags::PATH)?;
        let has = |name| thrufs_sys::xattr::get(&file, name, &mut []).is_ok();
        self.is_copy = has(c"user.overlay.origin");
        let is_directory = file_type == Some(FileType::Directory);
        Ok(is_directory && (self.place.at.is_opaque || has(c"user.overlay.opaque")))
    }

    fn finding(&self, since: Time) -> Finding<'_> {
        let above = self.place.tree.as_ref();
        Finding {
            layer: self.layer.as_ref(),
            tree: self.tree.as_ref(),
            above: above.and_then(|it| fstat(it).ok()),
            copied: self.is_copy.then(|| self.unseen_since(since)),
            since,
            has_same_attributes: self.attributes_are_same().unwrap_or(false),
        }
    }

    /// From when on the command may not have seen what changed in the tree, for a copy of overlayfs's: what was written in
    /// place shows within [`VIEW_AGE_MAX_S`], but another file of the same name may not show before the next run.
    fn unseen_since(&self, since: Time) -> Time {
        let born = |side: &Option<OwnedFd>| {
            let file = open_in(present(side).ok()?, self.name, OFlags::PATH).ok()?;
            let times = statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok()?;
            let is_known = StatxFlags::from_bits_retain(times.stx_mask).contains(StatxFlags::BTIME);
            is_known.then_some((times.stx_btime.tv_sec, times.stx_btime.tv_nsec.into()))
        };
        let is_written = |stat: &Stat| {
            (stat.st_mtime, stat.st_mtime_nsec) == (stat.st_ctime, stat.st_ctime_nsec)
        };
        let is_in_place = self.tree.as_ref().is_some_and(is_written)
            && born(&self.place.tree).is_some_and(|born| born <= since);
        match born(&self.place.layer).filter(|_| is_in_place) {
            Some((seconds, nanoseconds)) => since.max((seconds - VIEW_AGE_MAX_S, nanoseconds)),
            None => since,
        }
    }

    fn attributes_are_same(&self) -> io::Result<bool> {
        let file_type =
            |stat: &Option<Stat>| stat.as_ref().map(type_of).filter(|it| has_attributes(*it));
        let types = [&self.layer, &self.tree].map(file_type);
        if types.contains(&None) {
            return Ok(types[0] == types[1]);
        }
        let layer = attributes(&self.open(&self.place.layer)?, true)?;
        Ok(layer == attributes(&self.open(&self.place.tree)?, false)?)
    }

    fn open(&self, side: &Option<OwnedFd>) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        Ok(open_in(present(side)?, self.name, flags)?)
    }

    fn bytes_are_same(&self) -> io::Result<bool> {
        let one = File::from(self.open(&self.place.layer)?);
        let other = File::from(self.open(&self.place.tree)?);
        let [mut mine, mut theirs] = [(); 2].map(|()| vec![0; COMPARED_BYTES]);
        let mut at = 0;
        loop {
            let length = one.read_at(&mut mine, at)?;
            if length == 0 {
                return Ok(other.read_at(&mut theirs, at)? == 0);
            }
            let read = other.read_exact_at(&mut theirs[..length], at);
            if read.is_err() || mine[..length] != theirs[..length] {
                return Ok(false);
            }
            at += length as u64;
        }
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

fn present(side: &Option<OwnedFd>) -> io::Result<&OwnedFd> {
    side.as_ref().ok_or_else(|| Errno::NOENT.into())
}
