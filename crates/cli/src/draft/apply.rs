//! `thrufs draft apply`: puts the changes of a draft into its tree.
//!
//! Directories come before what is in them, removals last. What is applied is taken out of the layer, once it is on the
//! disk: whoever applies again after an interruption finds it equal on both sides. So that the rest of the draft still
//! means the same, a directory that hides what the tree has beneath gets whiteouts instead before.

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
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, XattrFlags, fremovexattr, fsetxattr, fstat, mknodat,
    syncfs, unlinkat,
};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use thrufs_hostdir::printable;
use thrufs_sys::cred;

/// Changes that are applied before what is on the disk leaves the layer.
const BATCH: usize = 8192;

const OPAQUE: &str = "user.overlay.opaque";

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

pub(super) fn run(arguments: &ApplyArguments) -> Result<ExitCode, DraftError> {
    let (drafts, mut draft) = arguments.draft.open()?;
    draft.lock()?;
    let mut sides = Sides::of(&draft)?;
    let changes = sides.changes()?;
    let selection = Selection::of(&arguments.paths, draft.record.tree(), &changes)?;
    let states = states(arguments, &selection, &changes);
    let is_left = states.contains(&State::Kept);
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
    sides.keep_bases(&draft, &changes, true)?;
    let mut apply = Apply::new(&draft, &sides, &changes, states, arguments.theirs);
    let carried_out = as_user_of(&draft, || apply.carry_out());
    let is_left = apply.states.contains(&State::Kept);
    carried_out
        .map_err(io::Error::other)
        .map_err(system("apply the draft"))?;
    apply.report(draft.record.tree());
    let name = draft.name.clone();
    for warning in git.warnings_at_the_end(&draft.policy()?) {
        report(format_args!("thrufs: {}", printable(&warning)));
    }
    let rest = sides.changes()?;
    if rest.iter().all(|change| change.kind == Kind::Same) {
        drafts.discard_held(draft)?;
        report(format_args!("thrufs: the draft {name} is removed"));
    } else {
        sides.keep_bases(&draft, &rest, false)?;
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
    // Directories that are needed.
    for at in 0..changes.len() {
        let above = changes[at].path.ancestors().skip(1);
        for above in above.filter_map(|path| numbers.get(path)) {
            let is_missing = changes[*above].tree_type() != Some(FileType::Directory);
            let is_free = changes[*above].refused.is_none() && changes[*above].conflict.is_none();
            if states[at] == State::Todo
                && states[*above] == State::Unselected
                && is_missing
                && is_free
            {
                states[*above] = State::Todo;
            }
        }
    }
    states
}

/// A directory that was opened last.
#[derive(Default)]
struct Opened(Option<(PathBuf, Rc<OwnedFd>)>);

impl Opened {
    fn get(&mut self, top: &OwnedFd, path: &Path) -> io::Result<Rc<OwnedFd>> {
        if let Some((_, directory)) = self.0.as_ref().filter(|opened| opened.0 == path) {
            return Ok(Rc::clone(directory));
        }
        let directory = Rc::new(open_directory(top, path)?);
        self.0 = Some((path.to_owned(), Rc::clone(&directory)));
        Ok(directory)
    }
}

struct Apply<'a> {
    draft: &'a Draft,
    sides: &'a Sides,
    changes: &'a [Change],
    states: Vec<State>,
    keeps_theirs: bool,
    upper: Opened,
    tree: Opened,
    /// By the inode in the layer: a name in the tree of what was applied, and its inode.
    links: HashMap<u64, (&'a Path, u64)>,
    /// The file systems that were written to.
    written: BTreeMap<u64, OwnedFd>,
    /// By the directory: what the tree has in it and the draft has not.
    covered: HashMap<&'a Path, Vec<usize>>,
    /// Opaque directories that have got whiteouts instead.
    opened: BTreeSet<&'a Path>,
    /// The directories of the tree, by device and inode: those that were seen, and those that were made.
    directories: HashMap<&'a Path, (u64, u64)>,
    /// What is applied and in the layer.
    applied: Vec<usize>,
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
        let mut covered: HashMap<&Path, Vec<usize>> = HashMap::new();
        let (mut links, mut directories) = (HashMap::new(), HashMap::new());
        for (at, change) in changes.iter().enumerate() {
            if let (Some(FileType::Directory), Some(tree)) = (change.tree_type(), &change.tree) {
                directories.insert(change.path.as_path(), identity(tree));
            }
            if let Some(above) = change.path.parent().filter(|_| !change.in_layer) {
                covered.entry(above).or_default().push(at);
            }
            // A further name of what is protected would be a way to it.
            if let (Kind::Same, Some(layer), Some(tree), false) = (
                change.kind,
                &change.layer,
                &change.tree,
                change.is_protected,
            ) {
                links.insert(layer.st_ino, (change.path.as_path(), tree.st_ino));
            }
        }
        Apply {
            draft,
            sides,
            changes,
            states,
            keeps_theirs,
            upper: Opened::default(),
            tree: Opened::default(),
            links,
            written: BTreeMap::new(),
            covered,
            opened: BTreeSet::new(),
            directories,
            applied: Vec::new(),
            counts: BTreeMap::new(),
        }
    }

    fn carry_out(&mut self) -> Result<(), PutError> {
        self.clean()?;
        let all = 0..self.changes.len();
        let taken_out = |state: &State| matches!(state, State::Done | State::Dropped);
        self.applied = all
            .clone()
            .filter(|at| taken_out(&self.states[*at]))
            .collect();
        // What is beneath directories that become files.
        let becomes_file = |change: &&Change| change.removes_directory() && change.layer.is_some();
        let files: BTreeSet<&Path> = self
            .changes
            .iter()
            .filter(becomes_file)
            .map(|it| it.path.as_path())
            .collect();
        for at in all.clone().rev() {
            let mut above = self.changes[at].path.ancestors().skip(1);
            if !files.is_empty() && above.any(|path| files.contains(path)) {
                self.apply(at)?;
            }
        }
        for at in all.clone().filter(|at| self.changes[*at].layer.is_some()) {
            self.apply(at)?;
        }
        for at in all.clone().rev() {
            self.apply(at)?;
        }
        for at in all.clone().rev() {
            let is_directory = self.changes[at].layer_type() == Some(FileType::Directory);
            if self.states[at] == State::Done && is_directory {
                self.finish_directory(at)
                    .unwrap_or_else(|error| self.fail(at, &error));
            }
        }
        self.flush(true)?;
        for at in all.rev() {
            self.remove_emptied(at);
        }
        Ok(())
    }

    /// Removes what an apply left in the tree that was interrupted.
    fn clean(&mut self) -> Result<(), PutError> {
        for change in self.changes {
            let (above, name) = split(&change.path);
            let Ok(tree) = self.tree.get(&self.sides.tree, above) else {
                continue;
            };
            let own = name.to_str().filter(|name| is_temporary(name.as_ref()));
            let temporary = match own.filter(|_| change.layer.is_none()) {
                Some(own) => own.to_owned(),
                None => self.temporary(&change.path),
            };
            let put = Put {
                sides: self.sides,
                upper: &tree,
                tree: &tree,
                name,
                temporary: &temporary,
            };
            put.clean()?;
        }
        Ok(())
    }

    fn fail(&mut self, at: usize, error: &PutError) {
        let path = quoted(&self.changes[at].path);
        report(format_args!("thrufs: {path}: not applied: {error}"));
        self.states[at] = State::Kept;
    }

    /// Applies a change, if it is to be.
    fn apply(&mut self, at: usize) -> io::Result<()> {
        if self.states[at] != State::Todo {
            return Ok(());
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
            Err(error) if self.keeps_theirs && error.is_not_empty() && !self.has_kept(at) => {
                self.states[at] = State::Dropped;
            }
            Err(error) => {
                self.fail(at, &error);
                return Ok(());
            }
        }
        self.applied.push(at);
        match self.applied.len() < BATCH {
            true => Ok(()),
            false => self.flush(false),
        }
    }

    fn put(&mut self, at: usize) -> Result<(), PutError> {
        let change = &self.changes[at];
        let (above, name) = split(&change.path);
        let tree = self.tree.get(&self.sides.tree, above)?;
        let stat = fstat(&tree)?;
        self.must_be(above, &stat)?;
        let device = stat.st_dev;
        if !self.written.contains_key(&device)
            && let Ok(directory) = open_in(&tree, ".".as_ref(), OFlags::RDONLY)
        {
            self.written.insert(device, directory);
        }
        let temporary = self.temporary(&change.path);
        let put = |upper| Put {
            sides: self.sides,
            upper,
            tree: &tree,
            name,
            temporary: &temporary,
        };
        let (Some(layer), false) = (&change.layer, is_directory_on_both(change)) else {
            return match &change.tree {
                Some(seen) if change.layer.is_none() => put(&tree).remove(seen),
                _ => Ok(()),
            };
        };
        let upper = self.upper.get(&self.sides.upper, above)?;
        let linked = self.links.get(&layer.st_ino).filter(|_| is_linked(change));
        let linked = linked.and_then(|(path, inode)| {
            let (above, name) = split(path);
            let directory = open_directory(&self.sides.tree, above).ok()?;
            Some((directory, name, *inode))
        });
        let linked = linked
            .as_ref()
            .map(|(directory, name, inode)| (directory, *name, *inode));
        put(&upper).put(change, layer, linked)?;
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

    /// The states of what is beneath.
    fn beneath(&self, at: usize) -> impl Iterator<Item = State> {
        let beneath = self.changes[at + 1..].iter().zip(&self.states[at + 1..]);
        let path = &self.changes[at].path;
        let beneath = beneath.take_while(move |(change, _)| change.path.starts_with(path));
        beneath.map(|(_, state)| *state)
    }

    fn has_kept(&self, at: usize) -> bool {
        self.beneath(at)
            .any(|state| !matches!(state, State::Done | State::Dropped))
    }

    fn temporary(&self, path: &Path) -> String {
        let mut hasher = DefaultHasher::new();
        (&self.draft.name, path).hash(&mut hasher);
        format!("{TEMPORARY}{:016x}", hasher.finish())
    }

    /// Gives a directory its attributes, mode and times, once what is in it is there.
    fn finish_directory(&mut self, at: usize) -> Result<(), PutError> {
        let change = &self.changes[at];
        let Some(layer) = &change.layer else {
            return Ok(());
        };
        let (above, name) = split(&change.path);
        let tree = self.tree.get(&self.sides.tree, above)?;
        let flags = match change.kind {
            Kind::Same => OFlags::PATH,
            _ => OFlags::RDONLY,
        };
        let flags = flags | OFlags::DIRECTORY;
        let directory = open_in(&tree, name, flags)?;
        if change.kind != Kind::Same {
            let upper = self.upper.get(&self.sides.upper, above)?;
            let put = Put {
                sides: self.sides,
                upper: &upper,
                tree: &tree,
                name,
                temporary: "",
            };
            let seen = change
                .tree
                .as_ref()
                .filter(|_| is_directory_on_both(change));
            self.must_be(&change.path, &fstat(&directory)?)?;
            put.give_attributes(&open_in(&upper, name, flags)?, &directory, layer, seen)?;
            let mode = Mode::from_raw_mode(self.sides.mode_of(layer));
            rustix::fs::fchmod(&directory, mode)?;
        }
        let modified = |stat: &Stat| (stat.st_mtime, stat.st_mtime_nsec);
        // Of an apply that was interrupted, the tree's is the time of that.
        let is_older = |tree: &Stat| modified(tree) < modified(layer);
        let is_newer =
            change.tree.as_ref().is_none_or(is_older) || self.sides.bases.is_absent(&change.path);
        if is_newer && self.beneath(at).all(|state| state == State::Done) {
            set_times(&directory, layer)?;
        }
        Ok(())
    }

    /// Takes out of the layer what is on the disk. Names of one file leave it together, so that they stay that: at the
    /// end, those of which none is left.
    fn flush(&mut self, is_last: bool) -> io::Result<()> {
        for written in self.written.values() {
            syncfs(written)?;
        }
        let inode = |change: &Change| {
            change
                .layer
                .map(|it| it.st_ino)
                .filter(|_| is_linked(change))
        };
        let left = |(change, state): (&Change, &State)| {
            inode(change).filter(|_| !matches!(state, State::Done | State::Dropped))
        };
        let mut left_inodes = BTreeSet::new();
        if is_last {
            left_inodes.extend(self.changes.iter().zip(&self.states).filter_map(left));
        }
        let mut later = Vec::new();
        for at in std::mem::take(&mut self.applied) {
            let change = &self.changes[at];
            if change.layer_type() == Some(FileType::Directory) {
                continue;
            }
            match inode(change) {
                Some(inode) if !is_last || left_inodes.contains(&inode) => later.push(at),
                _ => self.take_out(at)?,
            }
        }
        self.applied = later;
        Ok(())
    }

    fn take_out(&mut self, at: usize) -> io::Result<()> {
        let change = &self.changes[at];
        let (above, name) = split(&change.path);
        self.open_opaque(above)?;
        let directory = match self.upper.get(&self.sides.upper, above) {
            // Beneath a directory that was removed.
            Err(error) if is_absent(&error) && !change.in_layer => return Ok(()),
            directory => directory?,
        };
        let stat = fstat(&directory)?;
        if stat.st_mode & 0o700 != 0o700 {
            thrufs_sys::attr::chmod(&directory, stat.st_mode | 0o700)?;
        }
        match unlinkat(&directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        // The tree's directory will have that time.
        Ok(set_times(&directory, &stat)?)
    }

    /// Puts whiteouts into the opaque directories above something, instead of the mark: what leaves the layer would be
    /// removed from the draft otherwise.
    fn open_opaque(&mut self, path: &Path) -> io::Result<()> {
        let changes = self.changes;
        let above: Vec<&Path> = path.ancestors().collect();
        for above in above.into_iter().rev() {
            let found = changes.binary_search_by(|change| change.path.as_path().cmp(above));
            let Some(change) = found.ok().map(|at| &changes[at]).filter(|it| it.is_opaque) else {
                continue;
            };
            if !self.opened.insert(change.path.as_path()) {
                continue;
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let directory = open_directory(&self.sides.upper, above)?;
            let stat = fstat(&directory)?;
            thrufs_sys::attr::chmod(&directory, stat.st_mode | 0o700)?;
            for name in names(&directory)? {
                if let Ok(inner) = open_in(&directory, &name, flags) {
                    fsetxattr(&inner, OPAQUE, b"y", XattrFlags::empty())?;
                }
            }
            for at in self.covered.get(above).into_iter().flatten() {
                if !matches!(self.states[*at], State::Done | State::Dropped) {
                    let name = split(&changes[*at].path).1;
                    match mknodat(
                        &directory,
                        name,
                        FileType::CharacterDevice,
                        Mode::empty(),
                        0,
                    ) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                }
            }
            let marked = open_in(&directory, ".".as_ref(), flags)?;
            match fremovexattr(&marked, OPAQUE) {
                Ok(()) | Err(Errno::NODATA) => {}
                Err(errno) => return Err(errno.into()),
            }
            set_times(&directory, &stat)?;
        }
        Ok(())
    }

    /// Removes a directory of the layer, if nothing is left in it, and otherwise gives it the mode that it had.
    fn remove_emptied(&mut self, at: usize) {
        let change = &self.changes[at];
        let Some(layer) = change
            .layer
            .as_ref()
            .filter(|_| change.layer_type() == Some(FileType::Directory))
        else {
            return;
        };
        let (above, name) = split(&change.path);
        let Ok(directory) = self.upper.get(&self.sides.upper, above) else {
            return;
        };
        let is_applied = matches!(self.states[at], State::Done | State::Dropped);
        let stat = fstat(&directory);
        let is_removed = is_applied && unlinkat(&directory, name, AtFlags::REMOVEDIR).is_ok();
        if is_removed && let Ok(stat) = stat {
            let _ = set_times(&directory, &stat);
        } else if let Ok(inner) = open_in(&directory, name, OFlags::PATH | OFlags::DIRECTORY)
            && layer.st_mode & 0o700 != 0o700
        {
            let _ = thrufs_sys::attr::chmod(inner, layer.st_mode);
        }
    }

    fn report(&self, tree: &Path) {
        let counts = self
            .counts
            .iter()
            .map(|(kind, count)| format!("{count} {kind}"));
        let counts: Vec<String> = counts.collect();
        let counts = match counts.is_empty() {
            true => "nothing".to_owned(),
            false => counts.join(", "),
        };
        print(format!("applied to {}: {counts}\n", tree.display()));
    }
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Whether the file has other names in the layer, too.
fn is_linked(change: &Change) -> bool {
    let has_more = change
        .layer
        .as_ref()
        .is_some_and(|layer| layer.st_nlink > 1);
    has_more && change.layer_type() != Some(FileType::Directory)
}

fn is_directory_on_both(change: &Change) -> bool {
    let directory = Some(FileType::Directory);
    change.layer_type() == directory && change.tree_type() == directory
}

/// A link is no directory, either.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP)
    )
}

/// The directory, and the name in it.
fn split(path: &Path) -> (&Path, &OsStr) {
    let above = path.parent().unwrap_or(Path::new(""));
    (above, path.file_name().unwrap_or_default())
}
