//! `thrufs draft apply`: puts the changes of a draft into its tree.
//!
//! Directories come before what is in them, removals last. If all is applied, the draft is removed, once the tree is on the
//! disk; otherwise what is applied is taken out of the layer. Whoever applies again after an interruption finds it equal
//! on both sides.

use super::base::{CHANGED, CREATED};
use super::beneath::{TEMPORARY, is_temporary, names, open_directory, open_in, stat_at, type_of};
use super::change::{Change, Kind};
use super::changes::{Sides, is_root};
use super::layer::Draft;
use super::put::{Put, PutError, set_times};
use super::selection::{Selection, is_of_git, letter, quoted};
use super::{DraftChoice, DraftError};
use crate::error::system;
use crate::output::{print, report};
use crate::run::git::GitPlaces;
use clap::Args;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, syncfs, unlinkat};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use thrufs_hostdir::printable;
use thrufs_sys::cred;

/// Apply what a draft changes to its tree
///
/// What changed in the tree meanwhile is left as it is, and reported, unless --force or --theirs is given. What the
/// rules of the draft hide, deny or protect is never applied. The exit status is 1 if something is left.
#[derive(Args)]
pub(crate) struct ApplyArguments {
    /// Files and directories of the tree [default: all]
    #[arg(id = "PATH")]
    paths: Vec<PathBuf>,
    /// Replace what changed in the tree meanwhile. What came to it is removed, and what is in .git replaced, only
    /// where a PATH names it
    #[arg(long, conflicts_with = "theirs")]
    force: bool,
    /// Keep what changed in the tree meanwhile, and drop it from the draft
    #[arg(long)]
    theirs: bool,
    /// Print what would be done
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    draft: DraftChoice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not asked for.
    Unselected,
    /// Refused, or failed.
    Kept,
    Todo,
    Done,
    /// To leave the layer without being applied.
    Dropped,
}

impl State {
    fn is_over(self) -> bool {
        matches!(self, State::Done | State::Dropped)
    }
}

pub(super) fn run(arguments: &ApplyArguments) -> Result<ExitCode, DraftError> {
    let (drafts, mut draft) = arguments.draft.open()?;
    draft.lock()?;
    let mut sides = Sides::of(&draft)?;
    let changes = sides.changes()?;
    let selection = Selection::of(&arguments.paths, draft.record.tree(), &changes)?;
    let states = states(arguments, &selection, &changes);
    let is_left = states.contains(&State::Kept);
    hint(&draft, &changes, &states);
    if arguments.dry_run {
        for (change, state) in changes.iter().zip(&states) {
            if *state == State::Todo && change.kind != Kind::Same {
                print(format!("{}\t{}\n", letter(change), quoted(&change.path)));
            }
        }
        return Ok(ExitCode::from(u8::from(is_left)));
    }
    let home = std::env::var_os("HOME");
    let git = GitPlaces::find(draft.record.tree(), home.as_deref());
    sides.keep_bases(&draft, &changes)?;
    let mut apply = Apply::new(&draft, &sides, &changes, states, arguments.theirs);
    let carried_out = as_user_of(&draft, || apply.carry_out());
    let is_left = apply.states.contains(&State::Kept);
    let is_all = carried_out
        .map_err(io::Error::other)
        .map_err(system("apply the draft"))?;
    apply.report(draft.record.tree());
    for warning in git.warnings_at_the_end(&draft.policy()?) {
        report(format_args!("thrufs: {}", printable(&warning)));
    }
    let rest = match is_all {
        true => Vec::new(),
        false => sides.changes()?,
    };
    if rest.iter().all(|change| change.kind == Kind::Same) {
        report(format_args!("thrufs: the draft {} is removed", draft.name));
        drafts.discard_held(draft)?;
    } else {
        sides.keep_bases(&draft, &rest)?;
    }
    Ok(ExitCode::from(u8::from(is_left)))
}

/// As root, changes the tree of a user with the rights of that user, who may exchange what is in it meanwhile. (A tree of
/// root's is changed with root's.)
fn as_user_of<T>(draft: &Draft, work: impl FnOnce() -> Result<T, PutError>) -> Result<T, PutError> {
    let ids = draft.record.ids;
    if !is_root() || ids.uid != ids.shown_uid {
        return work();
    }
    // Leaving id zero drops the capabilities about files.
    cred::set_groups(&[ids.gid])?;
    cred::set_fsgid(ids.gid)?;
    cred::set_fsuid(ids.uid)?;
    let done = work();
    cred::set_fsuid(0)?;
    cred::set_fsgid(0)?;
    done
}

/// Says where what the rules refuse is, for whoever wants it all the same. No command line has names from the layer.
fn hint(draft: &Draft, changes: &[Change], states: &[State]) {
    let is_refused = |(change, state): (&Change, &State)| {
        *state == State::Kept && change.refused.is_some() && change.layer.is_some()
    };
    if changes.iter().zip(states).any(is_refused) {
        let layer = quoted(&draft.path().join("upper"));
        report(format_args!(
            "thrufs: what is refused is in {layer}: look at it there, and copy what you want all the same"
        ));
    }
}

/// Decides what is done with each change, and says what is not applied.
fn states(arguments: &ApplyArguments, selection: &Selection, changes: &[Change]) -> Vec<State> {
    let state = |change: &Change| {
        let say = |why: &str| {
            report(format_args!(
                "thrufs: {}: not applied: {why}",
                quoted(&change.path)
            ));
        };
        match (&change.refused, change.conflict) {
            _ if !selection.has(&change.path) => State::Unselected,
            _ if change.kind == Kind::Same => State::Done,
            (Some(why), _) => {
                say(why);
                State::Kept
            }
            (None, Some(_)) if arguments.theirs => {
                report(format_args!("thrufs: {}: dropped", quoted(&change.path)));
                State::Dropped
            }
            (None, Some(why)) if !arguments.force => {
                match change.path.ends_with(".git/index") {
                    true => say(&format!(
                        "{why} (`git reset` makes it agree with what is applied)"
                    )),
                    false => say(why),
                }
                State::Kept
            }
            // What the command has not seen, or what the history of the tree hangs on.
            (None, Some(CREATED)) if change.layer.is_none() && !selection.names(&change.path) => {
                say(&format!("{CREATED}; name it, to remove it"));
                State::Kept
            }
            (None, Some(why)) if is_of_git(&change.path) && !selection.names_git() => {
                say(&format!("{why}; name it, or .git, to replace it"));
                State::Kept
            }
            _ => State::Todo,
        }
    };
    let mut states: Vec<State> = changes.iter().map(state).collect();
    let paths = changes.iter().enumerate();
    let numbers: HashMap<&Path, usize> = paths.map(|(at, it)| (it.path.as_path(), at)).collect();
    // Directories that are needed: each directory comes before what is in it.
    for at in (0..changes.len()).rev() {
        let above = changes[at].path.parent().and_then(|it| numbers.get(it));
        if let Some(&above) = above
            && states[at] == State::Todo
            && states[above] == State::Unselected
            && changes[above].tree_type() != Some(FileType::Directory)
            && changes[above].refused.is_none()
            && changes[above].conflict.is_none()
        {
            states[above] = State::Todo;
        }
    }
    states
}

struct Apply<'a> {
    draft: &'a Draft,
    sides: &'a Sides,
    changes: &'a [Change],
    states: Vec<State>,
    keeps_theirs: bool,
    /// By the inode in the layer: a name in the tree of what was applied, and its inode.
    links: HashMap<u64, (&'a Path, u64)>,
    /// The file systems that were written to.
    written: BTreeMap<u64, OwnedFd>,
    /// The directories of the tree, by device and inode: those that were seen, and those that were made.
    directories: HashMap<&'a Path, (u64, u64)>,
    counts: BTreeMap<&'static str, usize>,
}

impl<'a> Apply<'a> {
    fn new(
        draft: &'a Draft,
        sides: &'a Sides,
        changes: &'a [Change],
        states: Vec<State>,
        keeps_theirs: bool,
    ) -> Apply<'a> {
        let (mut links, mut directories) = (HashMap::new(), HashMap::new());
        for change in changes {
            let Some(tree) = &change.tree else { continue };
            if type_of(tree) == FileType::Directory {
                directories.insert(change.path.as_path(), identity(tree));
            }
            // A further name of what is protected would be a way to it.
            if let (Kind::Same, Some(layer), false) =
                (change.kind, &change.layer, change.is_protected)
            {
                links.insert(layer.st_ino, (change.path.as_path(), tree.st_ino));
            }
        }
        Apply {
            draft,
            sides,
            changes,
            states,
            keeps_theirs,
            links,
            written: BTreeMap::new(),
            directories,
            counts: BTreeMap::new(),
        }
    }

    /// Returns whether all was applied. If not, what was leaves the layer.
    fn carry_out(&mut self) -> Result<bool, PutError> {
        self.clean();
        let all = 0..self.changes.len();
        for at in all.clone().filter(|at| self.changes[*at].layer.is_some()) {
            self.apply(at);
        }
        for at in all.clone().rev() {
            self.apply(at);
        }
        for at in all.clone().rev() {
            let is_directory = self.changes[at].layer_type() == Some(FileType::Directory);
            if self.states[at] == State::Done && is_directory {
                self.finish_directory(at)
                    .unwrap_or_else(|error| self.fail(at, &error));
            }
        }
        for written in self.written.values() {
            syncfs(written)?;
        }
        let is_all = self.states.iter().all(|state| state.is_over());
        if !is_all {
            self.take_out_all()?;
            for at in all.rev() {
                self.remove_emptied(at);
            }
        }
        Ok(is_all)
    }

    /// The places of a change, by its directories.
    fn put_in<'b>(&'b self, at: usize, upper: &'b OwnedFd, tree: &'b OwnedFd) -> Put<'b> {
        let path = &self.changes[at].path;
        let mut hasher = DefaultHasher::new();
        (&self.draft.name, path).hash(&mut hasher);
        Put {
            sides: self.sides,
            upper,
            tree,
            name: split(path).1,
            temporary: format!("{TEMPORARY}{:016x}", hasher.finish()),
        }
    }

    /// Removes what an apply left in the tree that was interrupted. What cannot be removed is none of ours.
    fn clean(&self) {
        for (at, change) in self.changes.iter().enumerate() {
            let (above, name) = split(&change.path);
            if let Ok(tree) = open_directory(&self.sides.tree, above) {
                let mut put = self.put_in(at, &tree, &tree);
                if let Some(name) = name.to_str().filter(|it| is_temporary(it.as_ref()))
                    && change.layer.is_none()
                {
                    put.temporary = name.to_owned();
                }
                let _ = put.clean();
            }
        }
    }

    fn fail(&mut self, at: usize, error: &PutError) {
        let path = quoted(&self.changes[at].path);
        report(format_args!("thrufs: {path}: not applied: {error}"));
        self.states[at] = State::Kept;
    }

    /// Applies a change, if it is to be. What is beneath a directory that goes comes before it.
    fn apply(&mut self, at: usize) {
        if self.states[at] != State::Todo {
            return;
        }
        if self.changes[at].removes_directory() {
            for beneath in self.beneath(at).rev() {
                self.apply(beneath);
            }
        }
        match self.put(at) {
            Ok(()) => {
                self.states[at] = State::Done;
                let kind = match self.changes[at].kind {
                    Kind::Created => "created",
                    Kind::Removed => "removed",
                    _ => "changed",
                };
                *self.counts.entry(kind).or_default() += 1;
            }
            // Of a directory, which has files that are dropped from the draft.
            Err(error)
                if self.keeps_theirs
                    && error.is_not_empty()
                    && self.beneath(at).all(|it| self.states[it].is_over()) =>
            {
                self.states[at] = State::Dropped;
            }
            Err(error) => self.fail(at, &error),
        }
    }

    fn put(&mut self, at: usize) -> Result<(), PutError> {
        let change = &self.changes[at];
        let (above, name) = split(&change.path);
        let tree = open_directory(&self.sides.tree, above)?;
        let stat = fstat(&tree)?;
        self.must_be(above, &stat)?;
        let device = stat.st_dev;
        if !self.written.contains_key(&device)
            && let Ok(directory) = open_in(&tree, ".", OFlags::RDONLY)
        {
            self.written.insert(device, directory);
        }
        let (Some(layer), false) = (&change.layer, is_directory_on_both(change)) else {
            return match &change.tree {
                Some(seen) if change.layer.is_none() => self.put_in(at, &tree, &tree).remove(seen),
                _ => Ok(()),
            };
        };
        let upper = open_directory(&self.sides.upper, above)?;
        let linked = self.links.get(&layer.st_ino).filter(|_| is_linked(change));
        let linked = linked.and_then(|(path, inode)| {
            let (above, name) = split(path);
            let directory = open_directory(&self.sides.tree, above).ok()?;
            Some((directory, name, *inode))
        });
        let linked = linked
            .as_ref()
            .map(|(directory, name, inode)| (directory, *name, *inode));
        self.put_in(at, &upper, &tree).put(change, layer, linked)?;
        if type_of(layer) == FileType::Directory {
            let made = open_in(&tree, name, OFlags::PATH | OFlags::DIRECTORY)?;
            // Just made, and not given away.
            if !names(&made)?.is_empty() {
                return Err(PutError::Conflict(CHANGED));
            }
            self.directories
                .insert(&change.path, identity(&fstat(&made)?));
        }
        if is_linked(change)
            && let Some(made) = stat_at(&tree, name)?
        {
            self.links.insert(layer.st_ino, (&change.path, made.st_ino));
        }
        Ok(())
    }

    /// Whoever may write to the tree may have put another directory in the place of one.
    fn must_be(&self, path: &Path, now: &Stat) -> Result<(), PutError> {
        let expected = self.directories.get(path);
        match expected.is_none_or(|expected| *expected == identity(now)) {
            true => Ok(()),
            false => Err(PutError::Conflict(CHANGED)),
        }
    }

    /// What is beneath.
    fn beneath(&self, at: usize) -> std::ops::Range<usize> {
        let path = &self.changes[at].path;
        let beneath = self.changes[at + 1..].iter();
        let count = beneath.take_while(|it| it.path.starts_with(path)).count();
        at + 1..at + 1 + count
    }

    /// Gives a directory its attributes, mode and times, once what is in it is there.
    fn finish_directory(&self, at: usize) -> Result<(), PutError> {
        let change = &self.changes[at];
        let Some(layer) = &change.layer else {
            return Ok(());
        };
        let (above, name) = split(&change.path);
        let tree = open_directory(&self.sides.tree, above)?;
        let flags = match change.kind {
            Kind::Same => OFlags::PATH,
            _ => OFlags::RDONLY,
        };
        let flags = flags | OFlags::DIRECTORY;
        let directory = open_in(&tree, name, flags)?;
        if change.kind != Kind::Same {
            self.must_be(&change.path, &fstat(&directory)?)?;
            let upper = open_directory(&self.sides.upper, above)?;
            let seen = change.tree.as_ref();
            let seen = seen.filter(|_| is_directory_on_both(change));
            let from = open_in(&upper, name, flags)?;
            self.put_in(at, &upper, &tree)
                .give_attributes(&from, &directory, layer, seen)?;
            let mode = Mode::from_raw_mode(self.sides.mode_of(layer));
            rustix::fs::fchmod(&directory, mode)?;
        }
        let modified = |stat: &Stat| (stat.st_mtime, stat.st_mtime_nsec);
        // Of an apply that was interrupted, the tree's is the time of that.
        let is_older = |tree: &Stat| modified(tree) < modified(layer);
        let is_newer = change.tree.as_ref().is_none_or(is_older) || change.base.was_absent();
        if is_newer && self.beneath(at).all(|it| self.states[it] == State::Done) {
            set_times(&directory, layer)?;
        }
        Ok(())
    }

    /// Takes out of the layer what is on the disk. Names of one file leave it together, so that they stay that. In an
    /// opaque directory all stays: what is not there, the draft removes.
    fn take_out_all(&self) -> io::Result<()> {
        let changes = self.changes.iter().zip(&self.states);
        let left = changes.filter(|(it, state)| is_linked(it) && !state.is_over());
        let left: BTreeSet<u64> = left.filter_map(|(it, _)| Some(it.layer?.st_ino)).collect();
        let opaque = self.changes.iter().filter(|it| it.is_opaque);
        let opaque: BTreeSet<&Path> = opaque.map(|it| it.path.as_path()).collect();
        for (change, state) in self.changes.iter().zip(&self.states) {
            let (above, name) = split(&change.path);
            let is_left = change.layer.is_some_and(|it| left.contains(&it.st_ino));
            if !state.is_over()
                || !change.in_layer
                || is_left
                || opaque.contains(above)
                || change.layer_type() == Some(FileType::Directory)
            {
                continue;
            }
            let directory = open_directory(&self.sides.upper, above)?;
            writable(&directory, || {
                match unlinkat(&directory, name, AtFlags::empty()) {
                    Err(Errno::NOENT) => Ok(()),
                    removed => removed,
                }
            })?;
        }
        Ok(())
    }

    /// Removes a directory of the layer, if nothing is left in it.
    fn remove_emptied(&self, at: usize) {
        let change = &self.changes[at];
        let is_directory = change.layer_type() == Some(FileType::Directory);
        if !is_directory || !self.states[at].is_over() {
            return;
        }
        let (above, name) = split(&change.path);
        if let Ok(directory) = open_directory(&self.sides.upper, above) {
            let _ = writable(&directory, || {
                unlinkat(&directory, name, AtFlags::REMOVEDIR)
            });
        }
    }

    fn report(&self, tree: &Path) {
        let counts = self.counts.iter();
        let counts: Vec<String> = counts
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect();
        let counts = match counts.is_empty() {
            true => "nothing".to_owned(),
            false => counts.join(", "),
        };
        print(format!("applied to {}: {counts}\n", tree.display()));
    }
}

/// Changes what is in a directory of the layer, of which mode and times stay: the tree's will have them.
fn writable(
    directory: &OwnedFd,
    change: impl FnOnce() -> rustix::io::Result<()>,
) -> io::Result<()> {
    let stat = fstat(directory)?;
    let is_writable = stat.st_mode & 0o700 == 0o700;
    if !is_writable {
        thrufs_sys::attr::chmod(directory, stat.st_mode | 0o700)?;
    }
    let changed = change();
    if !is_writable {
        thrufs_sys::attr::chmod(directory, stat.st_mode)?;
    }
    set_times(directory, &stat)?;
    Ok(changed?)
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Whether the file has other names in the layer, too.
fn is_linked(change: &Change) -> bool {
    let has_more = change.layer.is_some_and(|layer| layer.st_nlink > 1);
    has_more && change.layer_type() != Some(FileType::Directory)
}

fn is_directory_on_both(change: &Change) -> bool {
    let directory = Some(FileType::Directory);
    change.layer_type() == directory && change.tree_type() == directory
}

/// The directory, and the name in it.
fn split(path: &Path) -> (&Path, &OsStr) {
    let above = path.parent().unwrap_or(Path::new(""));
    (above, path.file_name().unwrap_or_default())
}
