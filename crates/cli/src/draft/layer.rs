//! Drafts on disk.
//!
//! ```text
//! $XDG_STATE_HOME/thrufs/drafts/
//!   NAME/             mode 0700
//!     draft.json      the record, written when all else is there
//!     lock            flock(2): exclusive while a run has the layer mounted, and while it is applied or discarded
//!     upper/ work/    the layer, as overlayfs has it
//!   .places           other directories that had drafts
//! ```
//!
//! What is in `upper` was written by a command that is not trusted. Whatever reads it goes by descriptors, beneath
//! them, and follows no link. Directories of other users are refused: the record says which tree is changed.

use super::beneath::{names, open_in};
use super::error::DraftError;
use super::remove;
use crate::error::{system, system_at};
use crate::lookup;
use crate::source;
use clap::{Args, ValueHint};
use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, StatxFlags, flock, fstat, fstatfs, mkdirat, renameat,
    stat, statx, unlinkat,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thrufs_policy::Policy;

pub(super) const VERSION: u32 = 1;

/// A policy may have 1 MiB, and JSON writes a byte of it as six at most.
const RECORD_BYTES_MAX: u64 = 16 << 20;

pub(super) const NAME_CHARS_MAX: usize = 64;

/// In the user's directory of state.
const IN_STATE: &str = "thrufs/drafts";

/// In the drafts of the home directory: where else drafts are or were, a path on each line.
const PLACES: &str = ".places";

pub(super) const RECORD: &str = "draft.json";
pub(super) const LOCK: &str = "lock";
pub(super) const UPPER: &str = "upper";
pub(super) const WORK: &str = "work";

/// `linux/magic.h`: FUSE, NFS, overlayfs, SMB, 9P, FAT. Overlayfs writes to none of them, nor do they keep what it needs.
const NO_UPPER: [i64; 7] = [
    0x6573_5546,
    0x6969,
    0x794c_7630,
    0xff53_4d42,
    0xfe53_4d42,
    0x0102_1997,
    0x4d44,
];

/// Where drafts are.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct DraftPlace {
    /// The directory of the drafts [default: $XDG_STATE_HOME/thrufs/drafts, or
    /// ~/.local/state/thrufs/drafts]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) draft_dir: Option<PathBuf>,
}

/// What identifies the tree of a draft. The device is left out: some have another number after a reboot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TreeIdentity {
    inode: u64,
    /// Seconds and nanoseconds.
    born: Option<(i64, u32)>,
}

impl TreeIdentity {
    pub(super) fn of(tree: impl AsFd) -> rustix::io::Result<TreeIdentity> {
        let stat = fstat(&tree)?;
        let born = statx(&tree, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME)?;
        let is_known = StatxFlags::from_bits_retain(born.stx_mask).contains(StatxFlags::BTIME);
        Ok(TreeIdentity {
            inode: stat.st_ino,
            born: is_known.then_some((born.stx_btime.tv_sec, born.stx_btime.tv_nsec)),
        })
    }
}

/// `draft.json`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(super) version: u32,
    /// Absolute, without symbolic links. An `OsString` keeps bytes that are not UTF-8.
    pub(super) tree: OsString,
    pub(super) identity: TreeIdentity,
    /// When the last run began: seconds and nanoseconds since 1970.
    pub(super) ran: (u64, u32),
    /// The composed policy.
    pub(super) policy: String,
    pub(crate) ids: DraftIds,
}

/// Of the command: what it made in the layer belongs to this user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DraftIds {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// As it sees itself: 0 for `uid` on a tree of root's.
    pub(crate) shown_uid: u32,
    pub(crate) shown_gid: u32,
}

impl Record {
    pub(crate) fn tree(&self) -> &Path {
        Path::new(&self.tree)
    }

    /// Since the last run began.
    pub(super) fn age(&self) -> String {
        let age = self.ran().elapsed().unwrap_or_default().as_secs();
        let units = [
            (86_400, "days"),
            (3600, "hours"),
            (60, "minutes"),
            (0, "seconds"),
        ];
        let (seconds, unit) = units
            .into_iter()
            .find(|(it, _)| age >= 2 * it)
            .unwrap_or((0, "seconds"));
        format!("{} {unit} ago", age / seconds.max(1))
    }

    pub(super) fn ran(&self) -> SystemTime {
        UNIX_EPOCH + Duration::new(self.ran.0, self.ran.1)
    }
}

/// The directory of the drafts.
pub(crate) struct Drafts {
    pub(super) place: OwnedFd,
    pub(super) path: PathBuf,
}

impl Drafts {
    /// `None` where nobody has begun a draft.
    pub(crate) fn open(place: &DraftPlace) -> Result<Option<Drafts>, DraftError> {
        let path = path_of(place)?;
        match lookup::open(&path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => Drafts::at(opened, &path).map(Some),
        }
    }

    /// Where drafts of this user, and of another with this home directory, are or were; each with device and inode.
    pub(crate) fn places(place: &DraftPlace, home: Option<&OsStr>) -> Vec<(PathBuf, [u64; 2])> {
        let usual = || state_of("HOME", ".local/state");
        let paths = [
            place.draft_dir.clone(),
            path_of(&DraftPlace::default()).ok(),
            usual(),
        ];
        let of_home = home.map(|home| Path::new(home).join(".local/state").join(IN_STATE));
        let paths = paths.into_iter().chain([of_home]).flatten();
        let recorded = usual().map(|usual| recorded_places(&usual));
        let found = paths
            .chain(recorded.unwrap_or_default())
            .filter_map(|path| {
                let path = path.canonicalize().ok()?;
                let stat = stat(&path).ok()?;
                Some((path, [stat.st_dev, stat.st_ino]))
            });
        let mut found: Vec<_> = found.collect();
        found.sort();
        found.dedup();
        found
    }

    /// The directory for drafts of this tree, which is made if it is missing, and recorded: later sandboxes cover it.
    ///
    /// # Errors
    ///
    /// It is in the tree or around it, another user's, or where overlayfs cannot have a layer: nothing is made then.
    pub(crate) fn open_or_make(place: &DraftPlace, tree: &Path) -> Result<Drafts, DraftError> {
        let path = path_of(place)?;
        let step = || system_at("make the directory of drafts", &path);
        let mut above = path.ancestors();
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let (above, found) = above
            .find_map(|above| match lookup::open(above, flags, Mode::empty()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                opened => Some((above, opened)),
            })
            .ok_or(DraftError::NoPlace)?;
        let found = found.map_err(step())?;
        let real = lookup::path_of(&found).map_err(step())?;
        let real = real.join(path.strip_prefix(above).unwrap_or(&path));
        if real.starts_with(tree) || tree.starts_with(&real) {
            return Err(DraftError::InTree(real));
        }
        let kind = fstatfs(&found)
            .map_err(|errno| step()(errno.into()))?
            .f_type;
        if NO_UPPER.contains(&kind) {
            return Err(DraftError::FileSystem(real));
        }
        let drafts = Drafts::at(make(&path), &path)?;
        drafts.record().map_err(system_at(
            "record, so that later sandboxes cover it,",
            &path,
        ))?;
        Ok(drafts)
    }

    /// Adds it to the places of this user. That of the home directory is always covered, and has the list. No command
    /// can write to those of root.
    fn record(&self) -> io::Result<()> {
        let usual = state_of("HOME", ".local/state");
        let Some(usual) = usual.filter(|_| !rustix::process::geteuid().is_root()) else {
            return Ok(());
        };
        let place = make(&usual)?;
        let known = recorded_places(&usual);
        if known.contains(&self.path) || lookup::is_same(fstat(&place)?, fstat(&self.place)?) {
            return Ok(());
        }
        // Those that are gone are left out.
        let all = known
            .into_iter()
            .filter(|it| it.exists())
            .chain([self.path.clone()]);
        let all: Vec<OsString> = all.map(PathBuf::into_os_string).collect();
        replace_file(&place, PLACES, &all.join(OsStr::new("\n")).into_vec())
    }

    fn at(opened: io::Result<OwnedFd>, path: &Path) -> Result<Drafts, DraftError> {
        let step = || system_at("open the directory of drafts", path);
        let place = opened.map_err(step())?;
        if !is_own(&place, 0o022) {
            return Err(DraftError::NotOwn(path.into()));
        }
        let path = lookup::path_of(&place).map_err(step())?;
        Ok(Drafts { place, path })
    }

    pub(crate) fn names(&self) -> Result<Vec<String>, DraftError> {
        let found = names(&self.place).map_err(system_at("list the drafts in", &self.path))?;
        let found = found.into_iter().filter_map(|name| name.into_string().ok());
        Ok(found.filter(|name| is_name(name)).collect())
    }

    /// # Errors
    ///
    /// None of this name, or it is not complete.
    pub(crate) fn named(&self, name: &str) -> Result<Draft, DraftError> {
        let directory = self.directory(name)?;
        let record = match read_record(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(DraftError::Incomplete(name.to_owned()));
            }
            Err(error) => return Err(DraftError::Damaged(name.to_owned(), error.to_string())),
            Ok(record) => record,
        };
        Ok(Draft {
            name: name.to_owned(),
            path: self.path.join(name),
            record,
            directory,
            lock: None,
        })
    }

    /// The only draft of a tree around the working directory; or the only one, if that is beneath the working
    /// directory.
    pub(crate) fn only(&self) -> Result<Draft, DraftError> {
        let here = std::env::current_dir().unwrap_or_default();
        let names = self.names()?;
        let trees = |name: &String| Some(self.named(name).ok()?.record.tree().to_owned());
        let mut fitting = names.clone();
        fitting.retain(|name| trees(name).is_some_and(|tree| here.starts_with(tree)));
        if let ([], [only]) = (&fitting[..], &names[..])
            && trees(only).is_none_or(|tree| tree.starts_with(&here))
        {
            fitting.push(only.clone());
        }
        match &fitting[..] {
            [name] => self.named(name),
            [] if names.is_empty() => Err(DraftError::None),
            [] => Err(DraftError::Elsewhere(names.join(", "))),
            several => Err(DraftError::Several(several.join(", "))),
        }
    }

    /// Removes a draft that no other process uses, also one that is not complete.
    pub(crate) fn discard(&self, name: &str) -> Result<(), DraftError> {
        let directory = self.directory(name)?;
        let _lock = lock(name, &directory)?;
        self.remove(name, &directory)
    }

    /// Removes a draft that this process has locked.
    pub(crate) fn discard_held(&self, draft: Draft) -> Result<(), DraftError> {
        self.remove(&draft.name, &draft.directory)
    }

    fn remove(&self, name: &str, directory: &OwnedFd) -> Result<(), DraftError> {
        let remove = || -> io::Result<()> {
            // Whoever finds it without a record knows that it is not complete.
            match unlinkat(directory, RECORD, AtFlags::empty()) {
                Err(Errno::NOENT) => {}
                removed => removed?,
            }
            remove::contents(directory, LOCK)?;
            unlinkat(directory, LOCK, AtFlags::empty())?;
            Ok(unlinkat(&self.place, name, AtFlags::REMOVEDIR)?)
        };
        Ok(remove().map_err(system_at("remove", &self.path.join(name)))?)
    }

    pub(super) fn directory(&self, name: &str) -> Result<OwnedFd, DraftError> {
        if !is_name(name) {
            return Err(DraftError::BadName(name.to_owned()));
        }
        let path = self.path.join(name);
        let step = || system_at("open the draft", &path);
        let opened = open_in(&self.place, name, OFlags::PATH | OFlags::DIRECTORY);
        let directory = match opened {
            Err(Errno::NOENT) => return Err(DraftError::NotFound(name.to_owned())),
            opened => opened.map_err(step())?,
        };
        match is_own(&directory, 0o077) {
            true => Ok(directory),
            false => Err(DraftError::NotOwn(path)),
        }
    }
}

/// A layer, and whose it is.
pub(crate) struct Draft {
    pub(crate) name: String,
    pub(crate) record: Record,
    pub(super) path: PathBuf,
    pub(super) directory: OwnedFd,
    pub(super) lock: Option<OwnedFd>,
}

impl Draft {
    /// Keeps it from other processes until this is dropped.
    pub(crate) fn lock(&mut self) -> Result<(), DraftError> {
        if self.lock.is_none() {
            self.lock = Some(lock(&self.name, &self.directory)?);
        }
        Ok(())
    }

    pub(crate) fn is_in_use(&self) -> bool {
        self.lock.is_none()
            && matches!(lock(&self.name, &self.directory), Err(DraftError::InUse(_)))
    }

    /// The directory `NAME`.
    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its directory and its lock, which the sandbox has until its end.
    pub(crate) fn for_sandbox(&self) -> Result<Vec<OwnedFd>, DraftError> {
        let both = [Some(&self.directory), self.lock.as_ref()]
            .into_iter()
            .flatten();
        let copies = both.map(OwnedFd::try_clone).collect::<io::Result<_>>();
        Ok(copies.map_err(system("duplicate the draft"))?)
    }

    /// What the command has written, as overlayfs keeps it.
    pub(crate) fn upper(&self) -> Result<OwnedFd, DraftError> {
        let opened = open_in(&self.directory, UPPER, OFlags::RDONLY | OFlags::DIRECTORY);
        Ok(opened.map_err(system_at("open the layer of", &self.path))?)
    }

    /// The tree that it changes.
    ///
    /// # Errors
    ///
    /// Another directory is there.
    pub(crate) fn tree(&self) -> Result<OwnedFd, DraftError> {
        let (tree, path) = source::open(self.record.tree())?;
        let identity = TreeIdentity::of(&tree).map_err(source::unusable(&path))?;
        match path == self.record.tree() && identity == self.record.identity {
            true => Ok(tree),
            false => Err(DraftError::TreeReplaced {
                name: self.name.clone(),
                tree: self.record.tree().into(),
            }),
        }
    }

    /// The policy under which the command saw the tree.
    pub(crate) fn policy(&self) -> Result<Policy, DraftError> {
        let policy = Policy::of_file(&self.path.join(RECORD), self.record.policy.as_bytes());
        policy.map_err(|error| DraftError::Damaged(self.name.clone(), error.to_string()))
    }
}

/// `upper` or `work` in a draft's directory.
pub(crate) fn layer_directory(draft: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    open_in(draft, name, OFlags::PATH | OFlags::DIRECTORY)
}

fn path_of(place: &DraftPlace) -> Result<PathBuf, DraftError> {
    if let Some(given) = &place.draft_dir {
        return Ok(std::path::absolute(given).map_err(system_at("find", given))?);
    }
    let given = state_of("XDG_STATE_HOME", "");
    given
        .or_else(|| state_of("HOME", ".local/state"))
        .ok_or(DraftError::NoPlace)
}

/// The directory of drafts in the user's directory of state, which is in that of an environment variable.
fn state_of(variable: &str, beneath: &str) -> Option<PathBuf> {
    let directory = PathBuf::from(std::env::var_os(variable)?);
    directory
        .is_absolute()
        .then(|| directory.join(beneath).join(IN_STATE))
}

/// The directories that had drafts of this user.
fn recorded_places(usual: &Path) -> Vec<PathBuf> {
    let list = lookup::open(usual, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
        .ok()
        .filter(|place| is_own(place, 0o022))
        .and_then(|place| read_file(&place, PLACES, RECORD_BYTES_MAX).ok());
    let list = list.unwrap_or_default();
    let lines = list.split(|byte| *byte == b'\n').map(OsStr::from_bytes);
    lines
        .map(PathBuf::from)
        .filter(|it| it.is_absolute())
        .collect()
}

/// Makes what is missing on the path to it; as root, in directories of root's alone.
fn make(path: &Path) -> io::Result<OwnedFd> {
    let opened = lookup::open(path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
    match (opened, path.parent(), path.file_name()) {
        (Err(error), Some(parent), Some(name)) if error.kind() == io::ErrorKind::NotFound => {
            let parent = make(parent)?;
            if rustix::process::geteuid().is_root() && fstat(&parent)?.st_uid != 0 {
                return Err(io::Error::other(
                    "it would be in a directory that is not root's: say where drafts are to be, with \
                     --draft-dir DIR",
                ));
            }
            make_directory(&parent, name)?;
            Ok(open_in(&parent, name, OFlags::PATH | OFlags::DIRECTORY)?)
        }
        (opened, ..) => opened,
    }
}

pub(super) fn make_directory(parent: impl AsFd, name: impl AsRef<OsStr>) -> rustix::io::Result<()> {
    match mkdirat(parent, name.as_ref(), Mode::RWXU) {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}

/// Whether it belongs to this user, and to nobody of `others`, bits of its mode.
fn is_own(file: impl AsFd, others: u32) -> bool {
    let own = rustix::process::geteuid().as_raw();
    fstat(file).is_ok_and(|it| it.st_uid == own && it.st_mode & others == 0)
}

pub(super) fn lock(name: &str, directory: &OwnedFd) -> Result<OwnedFd, DraftError> {
    let step = || system("lock the draft");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NONBLOCK;
    let lock = open_in(directory, LOCK, flags).map_err(step())?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Err(DraftError::InUse(name.to_owned())),
        locked => locked.map_err(step())?,
    }
    // Whoever had it before may have removed the draft.
    match lookup::is_called(&lock, directory, OsStr::new(LOCK)) {
        true => Ok(lock),
        false => Err(DraftError::NotFound(name.to_owned())),
    }
}

pub(super) fn read_record(directory: &OwnedFd) -> io::Result<Record> {
    let record: Record = serde_json::from_slice(&read_file(directory, RECORD, RECORD_BYTES_MAX)?)?;
    match record.version {
        VERSION => Ok(record),
        other => Err(io::Error::other(format!("its version is {other}"))),
    }
}

/// Reads a file of ours.
pub(super) fn read_file(directory: &OwnedFd, name: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = open_in(directory, name, OFlags::RDONLY | OFlags::NONBLOCK)?;
    lookup::must_be_regular(&file)?;
    let mut bytes = Vec::new();
    File::from(file).take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Makes a file of ours, or replaces it at a stroke.
pub(super) fn replace_file(directory: &OwnedFd, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = format!("{name}.new");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
    let mut file = File::from(open_in(directory, &new, flags)?);
    file.write_all(bytes)?;
    // Without it, a crash leaves a draft that cannot be read. What the tree was may be missing: times decide then.
    if name == RECORD {
        file.sync_all()?;
    }
    Ok(renameat(directory, new, directory, name)?)
}

pub(super) fn is_usual(it: char) -> bool {
    it.is_ascii_alphanumeric() || "._-".contains(it)
}

/// A file name that needs no quotes, and is no option.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= NAME_CHARS_MAX
        && !name.starts_with(['.', '-'])
        && name.chars().all(is_usual)
}
