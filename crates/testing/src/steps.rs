//! Calls by words: POSIX cases, random operations and storms are made of them.
//!
//! A name is a path below the root (`.` is that), `^name` one below the lower tree. `open` names a descriptor `@f`, which
//! stays open until `close`; `@f/name` is a path below it, and `@f`, where a name is expected, opens it again. X is a name
//! or `@f`. Text goes to the end.
//!
//! | call | |
//! |---|---|
//! | `file NAME TEXT` | writes a file, mode 0666 when it is new |
//! | `dir NAME [MODE]`, `fifo NAME [MODE]`, `node NAME KIND MODE [MAJOR MINOR]` | |
//! | `symlink TARGET NAME`, `link OLD NEW`, `rename OLD NEW`, `unlink NAME`, `rmdir NAME` | |
//! | `rename2 FLAG,… OLD NEW`, `linkfollow OLD NEW`, `fdlink @f NEW` | renameat2(2); linkat(2) with `AT_SYMLINK_FOLLOW`, with `AT_EMPTY_PATH` |
//! | `open [@f] NAME FLAG,… [MODE]`, `dup @copy @f`, `setfl @f FLAG,…`, `close @f` | |
//! | `write @f TEXT`, `pwrite @f OFFSET TEXT`, `read @f LENGTH`, `pread @f OFFSET LENGTH` | |
//! | `seek @f OFFSET`, `seekdata`, `seekhole`; `fsync @f`, `fdatasync`, `syncfs`, `copy @f OFFSET @g OFFSET LENGTH` | `copy` repeats copy_file_range(2) |
//! | `allocate @f OFFSET LENGTH [keep,punch,zero,collapse,insert]` | |
//! | `flock @f KIND[-wait]`, `lock @f OWNER KIND[-wait] [START LENGTH]` | `read`, `write`, `unlock`; of a `process` or `description` |
//! | `map @m @f LENGTH HOW`, `store @m AT TEXT`, `load @m AT LENGTH`, `msync @m` | HOW is `shared`, `private`, or `read` for a shared map for reading; `close` ends it |
//! | `fill X OFFSET LENGTH BYTE`, `cat X [OFFSET LENGTH]` | OFFSET `end` appends |
//! | `chmod X MODE`, `chown X UID GID`, `truncate X LENGTH`, `times X ATIME MTIME` | a time is `SECONDS.NANOSECONDS` or `now`; `-` changes nothing |
//! | `setxattr X NAME VALUE [create]`, `getxattr X NAME`, `rmxattr X NAME` | |
//! | `state X`, `stat NAME`, `readlink NAME`, `list NAME`, `listxattr NAME`, `statfs NAME`, `access NAME rwx` | `stat` is lstat(2) |

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Gid, Mode, OFlags, RenameFlags,
    SeekFrom, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::{Errno, Result};

use crate::fence::mapping::{Mapping, Sharing};
use crate::fence::record_lock::{self, Kind, Owner, Range};
use crate::fence::truncate::truncate;
use crate::user::{ALICE, BOB, MEMBER, TEAM};

/// A tree, its lower tree, and what is open.
pub struct Steps {
    root: PathBuf,
    beneath: PathBuf,
    open: HashMap<String, File>,
    maps: HashMap<String, Mapping>,
}

/// A name, or an open file.
enum Target<'a> {
    Path(PathBuf),
    Open(BorrowedFd<'a>),
}

fn open_flags(words: &str) -> OFlags {
    let flag = |word| match word {
        "r" => OFlags::RDONLY,
        "w" => OFlags::WRONLY,
        "rw" => OFlags::RDWR,
        "append" => OFlags::APPEND,
        "creat" => OFlags::CREATE,
        "direct" => OFlags::DIRECT,
        "directory" => OFlags::DIRECTORY,
        "excl" => OFlags::EXCL,
        "noatime" => OFlags::NOATIME,
        "noctty" => OFlags::NOCTTY,
        "nofollow" => OFlags::NOFOLLOW,
        "nonblock" => OFlags::NONBLOCK,
        "path" => OFlags::PATH,
        "sync" => OFlags::SYNC,
        "tmpfile" => OFlags::TMPFILE,
        "trunc" => OFlags::TRUNC,
        _ => panic!("no such flag: {word}"),
    };
    words.split(',').map(flag).collect()
}

fn rename_flags(words: &str) -> RenameFlags {
    let flag = |word| match word {
        "exchange" => RenameFlags::EXCHANGE,
        "noreplace" => RenameFlags::NOREPLACE,
        "whiteout" => RenameFlags::WHITEOUT,
        number => RenameFlags::from_bits_retain(number.parse().unwrap()),
    };
    words.split(',').map(flag).collect()
}

fn allocate_flags(words: &str) -> FallocateFlags {
    let flag = |word| match word {
        "keep" => FallocateFlags::KEEP_SIZE,
        "punch" => FallocateFlags::PUNCH_HOLE,
        "zero" => FallocateFlags::ZERO_RANGE,
        "collapse" => FallocateFlags::COLLAPSE_RANGE,
        "insert" => FallocateFlags::INSERT_RANGE,
        _ => panic!("no such flag: {word}"),
    };
    words.split(',').map(flag).collect()
}

/// The type of a file by its word.
pub(crate) fn kind(word: &str) -> FileType {
    match word {
        "block" => FileType::BlockDevice,
        "char" => FileType::CharacterDevice,
        "dir" => FileType::Directory,
        "fifo" => FileType::Fifo,
        "file" => FileType::RegularFile,
        "link" => FileType::Symlink,
        "socket" => FileType::Socket,
        _ => panic!("no such kind: {word}"),
    }
}

pub(crate) fn octal(word: &str) -> u32 {
    u32::from_str_radix(word, 8).unwrap()
}

fn mode(words: &[&str], at: usize, usual: u32) -> Mode {
    Mode::from_raw_mode(words.get(at).map_or(usual, |word| octal(word)))
}

/// A user or group; `-` is none.
pub(crate) fn id(word: &str) -> Option<u32> {
    match word {
        "-" => None,
        "alice" => Some(ALICE.uid),
        "bob" => Some(BOB.uid),
        "member" => Some(MEMBER.uid),
        "team" => Some(TEAM),
        number => Some(number.parse().unwrap()),
    }
}

pub(crate) fn device(words: &[&str]) -> u64 {
    let number = |at: usize| words.get(at).map_or(0, |word| word.parse().unwrap());
    rustix::fs::makedev(number(0), number(1))
}

fn time(word: &str) -> Timespec {
    let (seconds, nanoseconds) = word.split_once('.').unwrap_or((word, "0"));
    let (tv_sec, tv_nsec) = match word {
        "now" => (0, UTIME_NOW),
        "-" => (0, UTIME_OMIT),
        _ => (seconds.parse().unwrap(), nanoseconds.parse().unwrap()),
    };
    Timespec { tv_sec, tv_nsec }
}

/// The parts of a stat that two trees have in common.
fn state(stat: &Stat) -> String {
    let is_dir = FileType::from_raw_mode(stat.st_mode).is_dir();
    let size = if is_dir { 0 } else { stat.st_size };
    let (mode, links, uid, gid) = (stat.st_mode, stat.st_nlink, stat.st_uid, stat.st_gid);
    format!("mode {mode:o} links {links} owner {uid}:{gid} size {size}")
}

fn number<T: std::str::FromStr<Err: std::fmt::Debug>>(word: &str) -> T {
    word.parse().unwrap()
}

fn io(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap()
}

impl Steps {
    /// Calls in the tree at `root`, with the lower tree at `beneath`.
    pub fn new(root: PathBuf, beneath: PathBuf) -> Self {
        Self {
            root,
            beneath,
            open: HashMap::new(),
            maps: HashMap::new(),
        }
    }

    /// Carries out a call, and returns the data that it answers with, if any.
    ///
    /// # Panics
    ///
    /// When there is no such call.
    pub fn call(&mut self, words: &[&str]) -> Result<Vec<u8>> {
        match words[0] {
            "open" => {
                let is_named = words[1].starts_with('@') && !words[1].contains('/');
                let at = 1 + usize::from(is_named);
                let flags = open_flags(words[at + 1]) | OFlags::CLOEXEC;
                let mode = mode(words, at + 2, 0o644);
                let opened = rustix::fs::open(self.path(words[at]), flags, mode)?;
                if is_named {
                    self.open.insert(words[1].to_owned(), opened.into());
                }
                Ok(Vec::new())
            }
            "close" => {
                self.open.remove(words[1]);
                self.maps.remove(words[1]);
                Ok(Vec::new())
            }
            "dup" => {
                let copy = self.file(words[2])?.try_clone().map_err(io)?;
                self.open.insert(words[1].to_owned(), copy);
                Ok(Vec::new())
            }
            "map" | "store" | "load" | "msync" => self.with_map(words),
            "write" | "pwrite" | "read" | "pread" | "seek" | "seekdata" | "seekhole" | "setfl"
            | "syncfs" | "fsync" | "fdatasync" | "allocate" | "flock" | "lock" | "copy"
            | "fdlink" => self.with_open(words),
            "fill" | "cat" => self.with_data(words),
            "chmod" | "chown" | "truncate" | "times" | "setxattr" | "getxattr" | "rmxattr"
            | "state" => self.with_either(words),
            _ => self.with_name(words),
        }
    }

    /// The path of a name.
    pub fn path(&self, word: &str) -> PathBuf {
        if let Some((name, below)) = word.split_once('/').filter(|_| word.starts_with('@')) {
            return self.by_proc(name).join(below);
        }
        let (tree, name) = match word.strip_prefix('^') {
            Some(name) => (&self.beneath, name),
            None => (&self.root, word),
        };
        match name {
            "." => tree.clone(),
            _ if name.starts_with('@') => self.by_proc(name),
            _ => tree.join(name),
        }
    }

    fn by_proc(&self, name: &str) -> PathBuf {
        let number = self.open.get(name).map_or(-1, AsRawFd::as_raw_fd);
        format!("/proc/thread-self/fd/{number}").into()
    }

    /// An open file. No call answers ENOTTY.
    pub fn file(&self, word: &str) -> Result<&File> {
        self.open.get(word).ok_or(Errno::NOTTY)
    }

    /// Closes all.
    pub fn close_all(&mut self) {
        self.maps.clear();
        self.open.clear();
    }

    fn target(&self, word: &str) -> Result<Target<'_>> {
        Ok(match word.starts_with('@') && !word.contains('/') {
            true => Target::Open(self.file(word)?.as_fd()),
            false => Target::Path(self.path(word)),
        })
    }

    /// lstat(2) or fstat(2).
    pub fn stat(&self, word: &str) -> Result<Stat> {
        match self.target(word)? {
            Target::Path(path) => rustix::fs::lstat(path),
            Target::Open(file) => rustix::fs::fstat(file),
        }
    }

    fn with_open(&self, words: &[&str]) -> Result<Vec<u8>> {
        let file = self.file(words[1])?;
        let text = |from: usize| words[from..].join(" ").into_bytes();
        let flags = |at: usize| {
            words
                .get(at)
                .map_or(FallocateFlags::empty(), |it| allocate_flags(it))
        };
        let counted = |count: usize| count.to_string().into_bytes();
        let place = || -> u64 { number(words[2]) };
        match words[0] {
            "write" => return rustix::io::write(file, &text(2)).map(counted),
            "pwrite" => return rustix::io::pwrite(file, &text(3), place()).map(counted),
            "read" => {
                let mut data = vec![0; number(words[2])];
                let count = rustix::io::read(file, &mut data[..])?;
                data.truncate(count);
                return Ok(data);
            }
            "pread" => return read(file, place(), number(words[3])),
            "seek" | "seekdata" | "seekhole" => {
                let place = match words[0] {
                    "seek" => SeekFrom::Start(place()),
                    "seekdata" => SeekFrom::Data(place()),
                    _ => SeekFrom::Hole(place()),
                };
                let found = rustix::fs::seek(file, place)?;
                return Ok(found.to_string().into_bytes());
            }
            "syncfs" => rustix::fs::syncfs(file)?,
            "setfl" => rustix::fs::fcntl_setfl(file, open_flags(words[2]))?,
            "fsync" => rustix::fs::fsync(file)?,
            "fdatasync" => rustix::fs::fdatasync(file)?,
            "allocate" => rustix::fs::fallocate(file, flags(4), place(), number(words[3]))?,
            "flock" => rustix::fs::flock(file, flock(words[2]))?,
            "lock" => self.lock(file, words)?,
            "copy" => {
                let (mut from, mut to) = (place(), number(words[4]));
                let (target, mut left) = (self.file(words[3])?, number(words[5]));
                let start = from;
                while left > 0 {
                    let places = (Some(&mut from), Some(&mut to));
                    match rustix::fs::copy_file_range(file, places.0, target, places.1, left)? {
                        0 => break,
                        count => left -= count,
                    }
                }
                return Ok((from - start).to_string().into_bytes());
            }
            _ => rustix::fs::linkat(file, "", CWD, self.path(words[2]), AtFlags::EMPTY_PATH)?,
        }
        Ok(Vec::new())
    }

    fn with_map(&mut self, words: &[&str]) -> Result<Vec<u8>> {
        if words[0] == "map" {
            let sharing = match words[4] {
                "shared" => Sharing::Shared,
                "private" => Sharing::Private,
                _ => Sharing::SharedRead,
            };
            let map = Mapping::new(self.file(words[2])?, number(words[3]), sharing).map_err(io)?;
            self.maps.insert(words[1].to_owned(), map);
            return Ok(Vec::new());
        }
        let map = self.maps.get_mut(words[1]).ok_or(Errno::NOTTY)?;
        match words[0] {
            "store" => map.store(number(words[2]), words[3..].join(" ").as_bytes()),
            "load" => return Ok(map.load(number(words[2]), number(words[3]))),
            _ => map.sync().map_err(io)?,
        }
        Ok(Vec::new())
    }

    fn lock(&self, file: &File, words: &[&str]) -> Result<()> {
        let owner = match words[2] {
            "process" => Owner::Process,
            _ => Owner::Description,
        };
        let kind = match words[3].trim_end_matches("-wait") {
            "read" => Kind::Read,
            "write" => Kind::Write,
            _ => Kind::Unlock,
        };
        let at = |at: usize| words.get(at).map_or(0, |word| number(word));
        let (start, len) = (at(4), at(5));
        let waits = words[3].ends_with("-wait");
        record_lock::set(file.as_fd(), owner, kind, Range { start, len }, waits).map_err(io)
    }

    fn with_data(&self, words: &[&str]) -> Result<Vec<u8>> {
        let is_open = words[1].starts_with('@') && !words[1].contains('/');
        let appends = words.get(2) == Some(&"end");
        let opened;
        let file = if is_open {
            self.file(words[1])?
        } else {
            let flags = match (words[0], appends) {
                ("cat", _) => OFlags::RDONLY,
                (_, true) => OFlags::WRONLY | OFlags::APPEND,
                _ => OFlags::WRONLY,
            };
            opened = rustix::fs::open(self.path(words[1]), flags | OFlags::CLOEXEC, Mode::empty())?;
            &File::from(opened)
        };
        if words[0] == "fill" {
            let data = vec![number(words[4]); number(words[3])];
            let written = match appends {
                true => rustix::io::write(file, &data)?,
                false => rustix::io::pwrite(file, &data, number(words[2]))?,
            };
            return Ok(written.to_string().into_bytes());
        }
        match words.get(2) {
            Some(offset) => read(file, number(offset), number(words[3])),
            None => read(file, 0, usize::MAX),
        }
    }

    fn with_either(&self, words: &[&str]) -> Result<Vec<u8>> {
        let uid = || id(words[2]).map(Uid::from_raw);
        let gid = || id(words[3]).map(Gid::from_raw);
        match (words[0], self.target(words[1])?) {
            ("state", _) => return Ok(state(&self.stat(words[1])?).into_bytes()),
            ("chmod", Target::Path(path)) => rustix::fs::chmod(path, mode(words, 2, 0))?,
            ("chmod", Target::Open(file)) => rustix::fs::fchmod(file, mode(words, 2, 0))?,
            ("chown", Target::Path(path)) => {
                rustix::fs::chownat(CWD, path, uid(), gid(), AtFlags::SYMLINK_NOFOLLOW)?;
            }
            ("chown", Target::Open(file)) => rustix::fs::fchown(file, uid(), gid())?,
            ("truncate", Target::Path(path)) => truncate(&path, number(words[2])).map_err(io)?,
            ("truncate", Target::Open(file)) => rustix::fs::ftruncate(file, number(words[2]))?,
            ("times", target) => {
                let times = Timestamps {
                    last_access: time(words[2]),
                    last_modification: time(words[3]),
                };
                match target {
                    Target::Path(path) => {
                        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
                    }
                    Target::Open(file) => rustix::fs::futimens(file, &times)?,
                }
            }
            ("setxattr", target) => {
                let flags = match words.get(4) {
                    Some(&"create") => XattrFlags::CREATE,
                    Some(&"replace") => XattrFlags::REPLACE,
                    _ => XattrFlags::empty(),
                };
                let value = words.get(3).map_or(&b""[..], |word| word.as_bytes());
                match target {
                    Target::Path(path) => rustix::fs::lsetxattr(path, words[2], value, flags)?,
                    Target::Open(file) => rustix::fs::fsetxattr(file, words[2], value, flags)?,
                }
            }
            ("getxattr", target) => {
                let mut value = vec![0; 4096];
                let length = match target {
                    Target::Path(path) => rustix::fs::lgetxattr(path, words[2], &mut value[..]),
                    Target::Open(file) => rustix::fs::fgetxattr(file, words[2], &mut value[..]),
                }?;
                value.truncate(length);
                return Ok(value);
            }
            (_, Target::Path(path)) => rustix::fs::lremovexattr(path, words[2])?,
            (_, Target::Open(file)) => rustix::fs::fremovexattr(file, words[2])?,
        }
        Ok(Vec::new())
    }

    fn with_name(&self, words: &[&str]) -> Result<Vec<u8>> {
        let path = |at: usize| self.path(words[at]);
        match words[0] {
            "file" => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
                let file = rustix::fs::open(path(1), flags, Mode::from_raw_mode(0o666))?;
                let text = words[2..].join(" ");
                File::from(file).write_all(text.as_bytes()).map_err(io)?;
            }
            "dir" => rustix::fs::mkdir(path(1), mode(words, 2, 0o755))?,
            "fifo" => rustix::fs::mkfifoat(CWD, path(1), mode(words, 2, 0o600))?,
            "node" => {
                let (kind, device) = (kind(words[2]), device(&words[4..]));
                rustix::fs::mknodat(CWD, path(1), kind, mode(words, 3, 0), device)?;
            }
            "symlink" => rustix::fs::symlink(words[1], path(2))?,
            "link" => rustix::fs::link(path(1), path(2))?,
            // By `/proc` for an open file.
            "linkfollow" => {
                let flags = AtFlags::SYMLINK_FOLLOW;
                rustix::fs::linkat(CWD, path(1), CWD, path(2), flags)?;
            }
            "rename" => rustix::fs::rename(path(1), path(2))?,
            "rename2" => {
                let flags = rename_flags(words[1]);
                rustix::fs::renameat_with(CWD, path(2), CWD, path(3), flags)?;
            }
            "unlink" => rustix::fs::unlink(path(1))?,
            "rmdir" => rustix::fs::rmdir(path(1))?,
            "stat" => drop(rustix::fs::lstat(path(1))?),
            "readlink" => return Ok(rustix::fs::readlink(path(1), Vec::new())?.into_bytes()),
            "statfs" => drop(rustix::fs::statfs(path(1))?),
            "listxattr" => {
                let mut names = vec![0; 4096];
                let length = rustix::fs::llistxattr(path(1), &mut names[..])?;
                names.truncate(length);
                return Ok(names);
            }
            "list" => return list(&path(1)).map_err(io),
            "access" => {
                let bit = |letter| match letter {
                    'r' => Access::READ_OK,
                    'w' => Access::WRITE_OK,
                    'x' => Access::EXEC_OK,
                    _ => Access::EXISTS,
                };
                rustix::fs::access(path(1), words[2].chars().map(bit).collect())?;
            }
            verb => panic!("no such verb: {verb}"),
        }
        Ok(Vec::new())
    }
}

fn flock(word: &str) -> FlockOperation {
    match word {
        "read" => FlockOperation::NonBlockingLockShared,
        "write" => FlockOperation::NonBlockingLockExclusive,
        "read-wait" => FlockOperation::LockShared,
        "write-wait" => FlockOperation::LockExclusive,
        _ => FlockOperation::Unlock,
    }
}

/// So many bytes, or to the end.
fn read(file: &File, offset: u64, length: usize) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    while data.len() < length {
        let filled = data.len();
        data.resize(filled + (length - filled).min(1 << 17), 0);
        let count = rustix::io::pread(file, &mut data[filled..], offset + filled as u64)?;
        data.truncate(filled + count);
        if count == 0 {
            break;
        }
    }
    Ok(data)
}

/// Names and types, sorted.
fn list(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let kind: &[u8] = match entry.file_type()? {
            kind if kind.is_dir() => b" dir",
            kind if kind.is_file() => b" file",
            kind if kind.is_symlink() => b" link",
            _ => b" node",
        };
        lines.push([&entry.file_name().into_vec(), kind].concat());
    }
    lines.sort();
    Ok(lines.join(&b'\n'))
}
