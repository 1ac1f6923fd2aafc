//! The environment of a case: its directory in the tree under test and in the lower tree, and calls on
//! both.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Debug;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;

use crate::fence::clock::at_latest_tick;
use crate::setup::{Need, Setup, Tree};

/// A fresh directory of one case in the tree under test.
///
/// Names that the methods take are relative to that directory.
pub struct Env {
    tree: Arc<dyn Tree>,
    setup: Arc<dyn Setup>,
    dir: PathBuf,
}

impl Env {
    /// Makes the directory of the case called `name`, owned by root, mode 0755.
    pub fn new(tree: Arc<dyn Tree>, setup: Arc<dyn Setup>, name: &str) -> io::Result<Self> {
        let dir = PathBuf::from(name.replace("::", "."));
        fs::create_dir(tree.root().join(&dir))?;
        Ok(Self { tree, setup, dir })
    }

    /// Removes the directory of the case, through the tree under test.
    pub fn clean_up(&self) -> io::Result<()> {
        fs::remove_dir_all(self.tree.root().join(&self.dir))
    }

    /// The path of `name` in the tree under test.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.tree.root().join(&self.dir).join(name)
    }

    /// The path of `name` in the tree beneath.
    pub fn beneath(&self, name: impl AsRef<Path>) -> PathBuf {
        self.tree.beneath().join(&self.dir).join(name)
    }

    /// Writes a regular file, mode 0644 when it is new.
    #[track_caller]
    pub fn file(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// Makes a directory, mode 0755.
    #[track_caller]
    pub fn dir(&self, name: impl AsRef<Path>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir(&path).unwrap();
        path
    }

    /// Makes a directory of mode 0777.
    #[track_caller]
    pub fn shared_dir(&self, name: impl AsRef<Path>) -> PathBuf {
        let path = self.dir(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        path
    }

    /// Opens a name.
    pub fn try_open(&self, name: impl AsRef<Path>, flags: OFlags) -> rustix::io::Result<File> {
        open(&self.path(name), flags)
    }

    /// Opens a name that must open.
    #[track_caller]
    pub fn open(&self, name: impl AsRef<Path>, flags: OFlags) -> File {
        self.try_open(name, flags).unwrap()
    }

    /// Creates a regular file, mode 0644, and opens it for reading and writing.
    #[track_caller]
    pub fn create(&self, name: impl AsRef<Path>) -> File {
        self.open(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    /// The content of a file.
    #[track_caller]
    pub fn read(&self, name: impl AsRef<Path>) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// `lstat` of a name.
    #[track_caller]
    pub fn stat(&self, name: impl AsRef<Path>) -> Stat {
        rustix::fs::lstat(self.path(name)).unwrap()
    }

    /// The permission bits of a name: 0o7777 at most.
    #[track_caller]
    pub fn mode(&self, name: impl AsRef<Path>) -> u32 {
        self.stat(name).st_mode & 0o7777
    }

    /// Changes the permission bits.
    #[track_caller]
    pub fn chmod(&self, name: impl AsRef<Path>, mode: u32) {
        rustix::fs::chmod(self.path(name), Mode::from_raw_mode(mode)).unwrap();
    }

    /// Sets the ctime of a file of mode 0644 by the clock that stamps later changes: with a writeback cache that
    /// is the guest kernel's, while creation uses the host's.
    #[track_caller]
    pub fn stamp(&self, name: impl AsRef<Path>) {
        self.chmod(&name, 0o640);
        self.chmod(&name, 0o644);
    }

    /// Changes owner and group, symbolic links not followed.
    #[track_caller]
    pub fn chown(&self, name: impl AsRef<Path>, uid: u32, gid: u32) {
        chown(&self.path(name), Some(uid), Some(gid)).unwrap();
    }

    /// The names in a directory, sorted.
    #[track_caller]
    pub fn names(&self, name: impl AsRef<Path>) -> Vec<OsString> {
        let mut names: Vec<OsString> = fs::read_dir(self.path(name))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names
    }

    /// Asserts that both trees agree on a name: type, mode, owner, device number, links, size, mtime, content.
    /// With a writeback cache, a file is flushed first.
    #[track_caller]
    pub fn agree(&self, name: impl AsRef<Path>) {
        let (above, below) = (self.path(&name), self.beneath(&name));
        let kind = FileType::from_raw_mode(self.stat(&name).st_mode);
        if kind.is_file() {
            rustix::fs::fsync(open(&above, OFlags::RDONLY).unwrap()).unwrap();
        }
        let (mut seen, mut real) = (facts(&above), facts(&below));
        if self.setup.lacks(Need::WriteThrough).is_some() {
            // The kernel caches the time of the write; the lower file has that of the write-back.
            (seen.modified, real.modified) = Default::default();
        }
        assert_eq!(
            seen,
            real,
            "{}: left as seen, right as it is beneath",
            above.display()
        );
        if kind.is_file() {
            assert!(
                fs::read(&above).unwrap() == fs::read(&below).unwrap(),
                "content differs beneath"
            );
        } else if kind.is_symlink() {
            assert_eq!(
                fs::read_link(&above).unwrap(),
                fs::read_link(&below).unwrap()
            );
        }
    }

    /// Asserts that both trees agree on every name in the case's directory.
    pub fn agree_everywhere(&self) {
        let mut left = vec![PathBuf::new()];
        while let Some(directory) = left.pop() {
            let names = self.names(&directory);
            let beneath = fs::read_dir(self.beneath(&directory)).unwrap();
            assert_eq!(beneath.count(), names.len(), "{}", directory.display());
            for name in names {
                let name = directory.join(name);
                self.agree(&name);
                let (above, beneath) = (self.path(&name), self.beneath(&name));
                assert_eq!(
                    shared_xattrs(&above),
                    shared_xattrs(&beneath),
                    "{}",
                    name.display()
                );
                if FileType::from_raw_mode(self.stat(&name).st_mode).is_dir() {
                    left.push(name);
                }
            }
        }
    }

    /// Asserts that a name exists in neither tree.
    #[track_caller]
    pub fn absent(&self, name: impl AsRef<Path>) {
        fails(rustix::fs::lstat(self.path(&name)), Errno::NOENT);
        fails(rustix::fs::lstat(self.beneath(&name)), Errno::NOENT);
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Facts {
    mode: u32,
    uid: u32,
    gid: u32,
    rdev: u64,
    links: u64,
    size: Option<i64>,
    modified: (i64, u64),
}

#[track_caller]
fn facts(path: &Path) -> Facts {
    let stat = rustix::fs::lstat(path).unwrap();
    Facts {
        mode: stat.st_mode,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev,
        links: stat.st_nlink,
        // The lower file system decides the size of a directory; the server must report it unchanged.
        size: Some(stat.st_size),
        modified: (stat.st_mtime, stat.st_mtime_nsec),
    }
}

/// The extended attributes that both trees show: those of the class `user`, and access control lists.
pub fn shared_xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = crate::xattrs(path).unwrap();
    found.retain(|name, _| name.starts_with(b"user.") || name.starts_with(b"system.posix_acl"));
    found
}

/// Waits until a change gets a later time than those before. Times advance with the kernel's ticks, which are
/// late in a guest without CPU time.
pub fn tick() {
    let start = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    // The host's clock, if it stamps.
    thread::sleep(Duration::from_millis(12));
    while at_latest_tick() <= start {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Opens a path; created files get mode 0644.
pub fn open(path: &Path, flags: OFlags) -> rustix::io::Result<File> {
    open_mode(path, flags, 0o644)
}

/// Opens a path; created files get `mode`.
fn open_mode(path: &Path, flags: OFlags, mode: u32) -> rustix::io::Result<File> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::from_raw_mode(mode)).map(File::from)
}

/// `lchown` with the ids that change.
pub fn chown(path: &Path, uid: Option<u32>, gid: Option<u32>) -> rustix::io::Result<()> {
    let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
    rustix::fs::chownat(CWD, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
}

/// `mkdir` of a path.
pub fn mkdir(path: &Path, mode: u32) -> rustix::io::Result<()> {
    rustix::fs::mkdir(path, Mode::from_raw_mode(mode))
}

/// An error that may carry an errno.
pub trait HasErrno: Debug {
    fn errno(&self) -> Option<Errno>;
}

impl HasErrno for Errno {
    fn errno(&self) -> Option<Errno> {
        Some(*self)
    }
}

impl HasErrno for io::Error {
    fn errno(&self) -> Option<Errno> {
        Errno::from_io_error(self)
    }
}

/// Asserts that a call failed, and with which errno.
#[track_caller]
pub fn fails<T, E: HasErrno>(result: Result<T, E>, expected: Errno) {
    match result {
        Ok(_) => panic!("must fail with {expected:?}, but succeeded"),
        Err(error) => match error.errno() {
            Some(errno) if errno == expected => {}
            other => panic!("must fail with {expected:?}, but failed with {other:?} ({error:?})"),
        },
    }
}
