//! Cases that are written as steps: calls with what they must answer, in the manner of pjdfstest's `expect`.
//!
//! Steps end with `;`. One is `[USER:] [ERRNO] VERB WORD…`: the call must succeed, or fail with that errno, by root or
//! by `alice`, `bob` or `member`, who is in the group `team`. `{a,b}` repeats a step, once with each word. At the end,
//! both trees must agree on every name.
//!
//! A name is a path in the case's directory (`.` is that). `open` names a descriptor `@f`, which stays open until
//! `close` or the end; `@f/name` is a path below it, `@f` as a path opens it again. Text goes to the end of a step, and
//! what is compared with it has its odd bytes escaped.
//!
//! | step | what it does |
//! |---|---|
//! | `file NAME TEXT`, `append NAME TEXT` | writes a file, mode 0644 when it is new |
//! | `dir NAME [MODE]`, `shared NAME` | makes a directory, `shared` one of mode 0777 |
//! | `fifo NAME [MODE]`, `node NAME KIND MODE [MAJOR MINOR]` | |
//! | `symlink TARGET NAME`, `link OLD NEW`, `rename OLD NEW`, `unlink NAME`, `rmdir NAME` | |
//! | `rename2 FLAG,… OLD NEW`, `linkfollow OLD NEW`, `fdlink @f NEW` | renameat2(2); linkat(2) with `AT_SYMLINK_FOLLOW`, with `AT_EMPTY_PATH` |
//! | `open [@f] NAME FLAG,… [MODE]`, `close @f` | |
//! | `write @f TEXT`, `pwrite @f OFFSET TEXT`, `seek @f OFFSET`, `fsync @f`, `allocate @f OFFSET LENGTH` | |
//! | `read @f TEXT`, `pread @f OFFSET TEXT` | compares so many bytes, or the end |
//! | `chmod X MODE`, `chown X UID GID`, `truncate X LENGTH`, `times X ATIME MTIME` | X is a name or `@f`, a time `SECONDS.NANOSECONDS` or `now`; `-` changes nothing |
//! | `setxattr X NAME VALUE [create]`, `rmxattr X NAME`, `getxattr X NAME VALUE` | `getxattr` compares |
//! | `stat NAME`, `follow NAME`, `readlink NAME`, `list NAME`, `access NAME rwx` | `stat` is lstat(2), `follow` stat(2) |
//! | `umask MODE`, `tick` | |
//! | `is X KEY VALUE…` | `mode`, `links`, `size`, `owner UID GID`, `type`, `rdev`, `atime`, `mtime`, `ino OTHER`; last `text`, `target`, `names` or `xattrs` |
//! | `absent NAME`, `agree`, `beneath NAME TEXT` | in both trees; now; what the lower tree has |
//! | `note X`; then `later X KEY…`, `same X KEY…`, `unlike X KEY…` | `ctime`, `mtime`, `atime`, `mode`, `owner`, `ino`, `dev` |

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::{
    Access, FallocateFlags, RenameFlags, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT,
    XattrFlags,
};
use rustix::io::Result;

use super::env::user_xattrs;
use super::prelude::*;
use crate::user::User;

/// Carries out all steps. Panics at the first that answers something else.
pub(super) fn run(env: &Env, steps: &str) {
    let mut state = State {
        env,
        open: HashMap::new(),
        noted: None,
    };
    for step in steps.split(';').flat_map(repeated) {
        let words: Vec<&str> = step.split_whitespace().collect();
        if !words.is_empty() {
            state.step(&words);
        }
    }
    drop(state);
    env.agree_everywhere();
}

/// The step once with each word in braces.
fn repeated(step: &str) -> Vec<String> {
    let Some((_, rest)) = step.split_once('{') else {
        return vec![step.to_owned()];
    };
    let (list, _) = rest.split_once('}').expect("a list ends with }");
    let words = list.split(',');
    words
        .flat_map(|word| repeated(&step.replace(&format!("{{{list}}}"), word)))
        .collect()
}

struct State<'a> {
    env: &'a Env,
    open: HashMap<String, File>,
    noted: Option<Stat>,
}

/// A name, or an open file.
enum Target<'a> {
    Path(PathBuf),
    Open(BorrowedFd<'a>),
}

fn user(name: &str) -> Option<User> {
    match name {
        "alice:" => Some(ALICE),
        "bob:" => Some(BOB),
        "member:" => Some(MEMBER),
        _ => None,
    }
}

fn errno(name: &str) -> Option<Errno> {
    Some(match name {
        "EACCES" => Errno::ACCESS,
        "EAGAIN" => Errno::AGAIN,
        "EBADF" => Errno::BADF,
        "EBUSY" => Errno::BUSY,
        "EEXIST" => Errno::EXIST,
        "EINVAL" => Errno::INVAL,
        "EISDIR" => Errno::ISDIR,
        "ELOOP" => Errno::LOOP,
        "ENODATA" => Errno::NODATA,
        "ENOENT" => Errno::NOENT,
        "ENOTDIR" => Errno::NOTDIR,
        "ENOTEMPTY" => Errno::NOTEMPTY,
        "ENXIO" => Errno::NXIO,
        "EOPNOTSUPP" => Errno::OPNOTSUPP,
        "EPERM" => Errno::PERM,
        "EXDEV" => Errno::XDEV,
        _ => return None,
    })
}

fn open_flags(words: &str) -> OFlags {
    let flag = |word| match word {
        "r" => OFlags::RDONLY,
        "w" => OFlags::WRONLY,
        "rw" => OFlags::RDWR,
        "append" => OFlags::APPEND,
        "creat" => OFlags::CREATE,
        "directory" => OFlags::DIRECTORY,
        "dsync" => OFlags::DSYNC,
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

fn kind(word: &str) -> FileType {
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

fn octal(word: &str) -> u32 {
    u32::from_str_radix(word, 8).unwrap()
}

fn mode(words: &[&str], at: usize, usual: u32) -> Mode {
    Mode::from_raw_mode(words.get(at).map_or(usual, |word| octal(word)))
}

fn id(word: &str) -> Option<u32> {
    match word {
        "-" => None,
        "alice" => Some(ALICE.uid),
        "bob" => Some(BOB.uid),
        "member" => Some(MEMBER.uid),
        "team" => Some(TEAM),
        number => Some(number.parse().unwrap()),
    }
}

fn device(words: &[&str], at: usize) -> u64 {
    let number = |at: usize| words.get(at).map_or(0, |word| word.parse().unwrap());
    rustix::fs::makedev(number(at), number(at + 1))
}

/// `SECONDS[.NANOSECONDS]`, `now`, or `-`.
fn time(word: &str) -> Timespec {
    let (seconds, nanoseconds) = word.split_once('.').unwrap_or((word, "0"));
    let (tv_sec, tv_nsec) = match word {
        "now" => (0, UTIME_NOW),
        "-" => (0, UTIME_OMIT),
        _ => (seconds.parse().unwrap(), nanoseconds.parse().unwrap()),
    };
    Timespec { tv_sec, tv_nsec }
}

impl State<'_> {
    #[track_caller]
    fn step(&mut self, words: &[&str]) {
        let (caller, rest) = match user(words[0]) {
            Some(caller) => (Some(caller), &words[1..]),
            None => (None, words),
        };
        let (expected, call) = match errno(rest[0]) {
            Some(errno) => (Err(errno), &rest[1..]),
            None => (Ok(()), rest),
        };
        let answer = match caller {
            Some(caller) => caller.run(|| self.call(call)),
            None => self.call(call),
        };
        assert_eq!(answer, expected, "`{}`", words.join(" "));
    }

    fn path(&self, word: &str) -> PathBuf {
        if let Some((name, below)) = word.split_once('/').filter(|_| word.starts_with('@')) {
            return self.by_proc(name).join(below);
        }
        match word {
            "." => self.env.path(""),
            _ if word.starts_with('@') => self.by_proc(word),
            _ => self.env.path(word),
        }
    }

    fn by_proc(&self, name: &str) -> PathBuf {
        format!("/proc/thread-self/fd/{}", self.file(name).as_raw_fd()).into()
    }

    fn file(&self, word: &str) -> &File {
        self.open.get(word).expect("opened before")
    }

    fn target(&self, word: &str) -> Target<'_> {
        match word.starts_with('@') && !word.contains('/') {
            true => Target::Open(self.file(word).as_fd()),
            false => Target::Path(self.path(word)),
        }
    }

    fn stat(&self, word: &str) -> Stat {
        match self.target(word) {
            Target::Path(path) => rustix::fs::lstat(path).unwrap(),
            Target::Open(file) => rustix::fs::fstat(file).unwrap(),
        }
    }

    fn call(&mut self, words: &[&str]) -> Result<()> {
        let text = |from: usize| words[from..].join(" ");
        match words[0] {
            "is" => self.is(words[1], &words[2..]),
            "absent" => self.env.absent(words[1]),
            "agree" => self.env.agree_everywhere(),
            "tick" => tick(),
            "stamp" => self.env.stamp(words[1]),
            "shared" => drop(self.env.shared_dir(words[1])),
            "note" => self.noted = Some(self.stat(words[1])),
            "later" | "same" | "unlike" => self.compare(words),
            "umask" => drop(rustix::process::umask(mode(words, 1, 0))),
            "beneath" => {
                let found = fs::read(self.env.beneath(words[1])).unwrap();
                assert_eq!(found, text(2).as_bytes(), "{}", text(0));
            }
            "open" => {
                let is_named = words[1].starts_with('@') && !words[1].contains('/');
                let (name, at) = if is_named {
                    (Some(words[1]), 2)
                } else {
                    (None, 1)
                };
                let mode = words.get(at + 2).map_or(0o644, |word| octal(word));
                let opened = open_mode(&self.path(words[at]), open_flags(words[at + 1]), mode)?;
                if let Some(name) = name {
                    self.open.insert(name.to_owned(), opened);
                }
            }
            "close" => drop(self.open.remove(words[1]).expect("opened before")),
            "write" | "pwrite" | "read" | "pread" | "seek" | "fsync" | "allocate" => {
                return self.use_open(words);
            }
            "chmod" | "chown" | "truncate" | "times" | "setxattr" | "getxattr" | "rmxattr" => {
                return self.change(words);
            }
            _ => return self.use_name(words),
        }
        Ok(())
    }

    fn use_open(&self, words: &[&str]) -> Result<()> {
        let mut file = self.file(words[1]);
        let number = |at: usize| words[at].parse().unwrap();
        let text = |from: usize| words[from..].join(" ").into_bytes();
        let written = |text: Vec<u8>, result: Result<usize>| {
            result.map(|count| assert_eq!(count, text.len(), "{words:?}"))
        };
        let read = |text: Vec<u8>, result: Result<usize>, mut buffer: Vec<u8>| {
            buffer.truncate(result?);
            assert_eq!(
                buffer.escape_ascii().to_string(),
                String::from_utf8(text).unwrap()
            );
            Ok(())
        };
        match words[0] {
            "write" => written(text(2), rustix::io::write(file, &text(2))),
            "pwrite" => written(text(3), rustix::io::pwrite(file, &text(3), number(2))),
            // More than nothing at the end of the file.
            "read" => {
                let mut buffer = vec![0; text(2).len().max(1)];
                let result = rustix::io::read(file, &mut buffer[..]);
                read(text(2), result, buffer)
            }
            "pread" => {
                let mut buffer = vec![0; text(3).len().max(1)];
                let result = rustix::io::pread(file, &mut buffer[..], number(2));
                read(text(3), result, buffer)
            }
            "seek" => {
                file.seek(SeekFrom::Start(number(2))).unwrap();
                Ok(())
            }
            "fsync" => rustix::fs::fsync(file),
            _ => rustix::fs::fallocate(file, FallocateFlags::empty(), number(2), number(3)),
        }
    }

    fn change(&self, words: &[&str]) -> Result<()> {
        match (words[0], self.target(words[1])) {
            ("chmod", Target::Path(path)) => rustix::fs::chmod(path, mode(words, 2, 0)),
            ("chmod", Target::Open(file)) => rustix::fs::fchmod(file, mode(words, 2, 0)),
            ("chown", Target::Path(path)) => chown(&path, id(words[2]), id(words[3])),
            ("chown", Target::Open(file)) => {
                let changed = std::os::unix::fs::fchown(file, id(words[2]), id(words[3]));
                changed.map_err(|error| Errno::from_io_error(&error).unwrap())
            }
            ("truncate", Target::Path(path)) => {
                let cut = crate::fence::truncate::truncate(&path, words[2].parse().unwrap());
                cut.map_err(|error| Errno::from_io_error(&error).unwrap())
            }
            ("truncate", Target::Open(file)) => {
                rustix::fs::ftruncate(file, words[2].parse().unwrap())
            }
            ("times", target) => {
                let times = Timestamps {
                    last_access: time(words[2]),
                    last_modification: time(words[3]),
                };
                match target {
                    Target::Path(path) => {
                        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
                    }
                    Target::Open(file) => rustix::fs::futimens(file, &times),
                }
            }
            ("setxattr", target) => {
                let flags = match words.get(4) {
                    Some(&"create") => XattrFlags::CREATE,
                    Some(&"replace") => XattrFlags::REPLACE,
                    _ => XattrFlags::empty(),
                };
                let (name, value) = (
                    words[2],
                    words.get(3).map_or(&b""[..], |word| word.as_bytes()),
                );
                match target {
                    Target::Path(path) => rustix::fs::lsetxattr(path, name, value, flags),
                    Target::Open(file) => rustix::fs::fsetxattr(file, name, value, flags),
                }
            }
            ("getxattr", target) => {
                let mut value = vec![0; 4096];
                let length = match target {
                    Target::Path(path) => rustix::fs::lgetxattr(path, words[2], &mut value[..]),
                    Target::Open(file) => rustix::fs::fgetxattr(file, words[2], &mut value[..]),
                }?;
                let expected = words.get(3).map_or(&b""[..], |word| word.as_bytes());
                assert_eq!(&value[..length], expected, "{words:?}");
                Ok(())
            }
            (_, Target::Path(path)) => rustix::fs::lremovexattr(path, words[2]),
            (_, Target::Open(file)) => rustix::fs::fremovexattr(file, words[2]),
        }
    }

    fn use_name(&self, words: &[&str]) -> Result<()> {
        let path = |at: usize| self.path(words[at]);
        match words[0] {
            "file" => drop(self.written(words, OFlags::TRUNC)?),
            "append" => drop(self.written(words, OFlags::APPEND)?),
            "dir" => rustix::fs::mkdir(path(1), mode(words, 2, 0o755))?,
            "fifo" => rustix::fs::mkfifoat(CWD, path(1), mode(words, 2, 0o600))?,
            "node" => {
                let (kind, device) = (kind(words[2]), device(words, 4));
                rustix::fs::mknodat(CWD, path(1), kind, mode(words, 3, 0), device)?;
            }
            "symlink" => rustix::fs::symlink(words[1], path(2))?,
            "link" => rustix::fs::link(path(1), path(2))?,
            // By `/proc` for an open file.
            "linkfollow" => {
                let flags = AtFlags::SYMLINK_FOLLOW;
                rustix::fs::linkat(CWD, path(1), CWD, path(2), flags)?;
            }
            "fdlink" => {
                let file = self.file(words[1]);
                rustix::fs::linkat(file, "", CWD, path(2), AtFlags::EMPTY_PATH)?;
            }
            "rename" => rustix::fs::rename(path(1), path(2))?,
            "rename2" => {
                let flags = rename_flags(words[1]);
                rustix::fs::renameat_with(CWD, path(2), CWD, path(3), flags)?;
            }
            "unlink" => rustix::fs::unlink(path(1))?,
            "rmdir" => rustix::fs::rmdir(path(1))?,
            "stat" => drop(rustix::fs::lstat(path(1))?),
            "follow" => drop(rustix::fs::stat(path(1))?),
            "readlink" => drop(rustix::fs::readlink(path(1), Vec::new())?),
            "list" => drop(open(&path(1), OFlags::RDONLY | OFlags::DIRECTORY)?),
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
        Ok(())
    }

    fn written(&self, words: &[&str], how: OFlags) -> Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | how;
        let mut file = open(&self.path(words[1]), flags)?;
        file.write_all(words[2..].join(" ").as_bytes()).unwrap();
        Ok(file)
    }

    #[track_caller]
    fn is(&self, name: &str, words: &[&str]) {
        let mut words = words.iter();
        let mut rest = None;
        while let Some(&key) = words.next() {
            let stat = self.stat(name);
            let mut word = || *words.next().expect("a value");
            let times = |(seconds, nanoseconds): (i64, u64)| format!("{seconds}.{nanoseconds}");
            let with_nanoseconds = |word: &str| match word.contains('.') {
                true => word.to_owned(),
                false => format!("{word}.0"),
            };
            let (found, expected) = match key {
                "mode" => (
                    format!("{:o}", stat.st_mode & 0o7777),
                    format!("{:o}", octal(word())),
                ),
                "links" => (stat.st_nlink.to_string(), word().to_owned()),
                "size" => (stat.st_size.to_string(), word().to_owned()),
                "owner" => (
                    format!("{} {}", stat.st_uid, stat.st_gid),
                    format!("{} {}", id(word()).unwrap(), id(word()).unwrap()),
                ),
                "type" => (
                    format!("{:?}", FileType::from_raw_mode(stat.st_mode)),
                    format!("{:?}", kind(word())),
                ),
                "rdev" => (
                    stat.st_rdev.to_string(),
                    device(&[word(), word()], 0).to_string(),
                ),
                "ino" => (
                    stat.st_ino.to_string(),
                    self.stat(word()).st_ino.to_string(),
                ),
                "atime" => (
                    times((stat.st_atime, stat.st_atime_nsec)),
                    with_nanoseconds(word()),
                ),
                "mtime" => (
                    times((stat.st_mtime, stat.st_mtime_nsec)),
                    with_nanoseconds(word()),
                ),
                _ => {
                    rest = Some(key);
                    break;
                }
            };
            assert_eq!(found, expected, "{key} of {name}");
        }
        let Some(key) = rest else { return };
        let expected = words.copied().collect::<Vec<_>>().join(" ");
        let found = match key {
            "text" => fs::read(self.path(name)).unwrap(),
            "target" => fs::read_link(self.path(name))
                .unwrap()
                .as_os_str()
                .as_bytes()
                .to_vec(),
            "names" => {
                let path = if name == "." { "" } else { name };
                self.env.names(path).join(" ".as_ref()).as_bytes().to_vec()
            }
            "xattrs" => user_xattrs(&self.path(name))
                .into_keys()
                .collect::<Vec<_>>()
                .join(&b' '),
            _ => panic!("no such key: {key}"),
        };
        assert_eq!(
            found.escape_ascii().to_string(),
            expected,
            "{key} of {name}"
        );
    }

    #[track_caller]
    fn compare(&self, words: &[&str]) {
        let (noted, now) = (self.noted.unwrap(), self.stat(words[1]));
        let value = |stat: &Stat, key: &str| match key {
            "ctime" => (stat.st_ctime, stat.st_ctime_nsec),
            "mtime" => (stat.st_mtime, stat.st_mtime_nsec),
            "atime" => (stat.st_atime, stat.st_atime_nsec),
            "mode" => (stat.st_mode.into(), 0),
            "owner" => (stat.st_uid.into(), stat.st_gid.into()),
            "ino" => (0, stat.st_ino),
            "dev" => (0, stat.st_dev),
            _ => panic!("no such key: {key}"),
        };
        for key in &words[2..] {
            let (before, after) = (value(&noted, key), value(&now, key));
            match words[0] {
                "later" => assert!(
                    after > before,
                    "{key} of {}: {before:?}, {after:?}",
                    words[1]
                ),
                "unlike" => assert_ne!(before, after, "{key} of {}", words[1]),
                _ => assert_eq!(before, after, "{key} of {}", words[1]),
            }
        }
    }
}
