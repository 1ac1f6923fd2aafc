//! Opens a path once, for all that is then done with it.
//!
//! Whoever may write to a directory above a name exchanges what it leads to at any moment: looked up twice, it is two
//! files. So a command asks the descriptor for the path, the owner and the device. And as root it follows no
//! symbolic link by which another user lends it what does not belong to that user: a link of a user's, or one
//! in a directory of a user's, leads to files of that user alone (as `CHASE_SAFE` of systemd).

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// As of the kernel (path_resolution(7)).
pub(crate) const LINKS_MAX: u32 = 40;

/// `linux/magic.h`
const PROC_SUPER_MAGIC: i64 = 0x9fa0;
const PIPEFS_MAGIC: i64 = 0x5049_5045;

#[derive(Debug, thiserror::Error)]
#[error(
    "a symbolic link that user {by} can change leads to what belongs to user {to}: give the path that it leads to"
)]
struct LedAstray {
    by: u32,
    to: u32,
}

/// Opens `path`, which may be a user's.
///
/// # Errors
///
/// As open(2); EACCES's kind when root is led astray.
pub(crate) fn open(path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    if !rustix::process::geteuid().is_root() {
        return Ok(rustix::fs::open(path, flags, mode)?);
    }
    match without_links(path, flags, mode) {
        // A link, or no openat2(2) (before Linux 5.6, or by a seccomp filter, old ones with EPERM).
        Err(Errno::LOOP | Errno::NOSYS | Errno::PERM) => Walk::along(path)?.open(flags, mode),
        opened => Ok(opened?),
    }
}

/// Opens a regular file, to read it. At a FIFO a user would have root wait for a writer.
///
/// # Errors
///
/// Those of [`open`], and of [`must_be_regular`]; EAGAIN when another process holds a lease.
pub(crate) fn open_regular(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK;
    let file = open(path, flags, Mode::empty())?;
    must_be_regular(&file)?;
    Ok(file)
}

pub(crate) fn must_be_regular(file: impl AsFd) -> io::Result<()> {
    match FileType::from_raw_mode(fstat(file)?.st_mode) {
        FileType::RegularFile => Ok(()),
        _ => Err(io::Error::other("it is not a regular file")),
    }
}

/// Opens a log, to append to it. By a FIFO or a socket a user would have root wait for a reader. A pipe without a name
/// is the caller's own (`/dev/fd/3`).
///
/// # Errors
///
/// Those of [`open`]; for what is neither a file, nor a character device (`/dev/stderr`), nor such a pipe.
pub(crate) fn open_log(path: &Path, mode: Mode) -> io::Result<OwnedFd> {
    let refused = || io::Error::other("it is neither a regular file nor a character device");
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOCTTY;
    let log =
        open(path, flags | OFlags::NONBLOCK, mode).map_err(|error| match error.raw_os_error() {
            Some(libc::ENXIO) => refused(),
            _ => error,
        })?;
    match FileType::from_raw_mode(fstat(&log)?.st_mode) {
        FileType::RegularFile | FileType::CharacterDevice => {}
        FileType::Fifo if rustix::fs::fstatfs(&log)?.f_type == PIPEFS_MAGIC => {}
        _ => return Err(refused()),
    }
    // Terminals and pipes wait for their readers.
    let status = rustix::fs::fcntl_getfl(&log)?;
    rustix::fs::fcntl_setfl(&log, status - OFlags::NONBLOCK)?;
    Ok(log)
}

/// Opens a path on which there is no symbolic link: one that was resolved.
pub(crate) fn without_links(path: &Path, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    rustix::fs::openat2(CWD, path, flags, mode, ResolveFlags::NO_SYMLINKS)
}

/// Opens a path that was resolved before. Who controls a directory above may have put a symbolic link there since.
pub(crate) fn open_resolved(path: &Path) -> rustix::io::Result<OwnedFd> {
    without_links(path, OFlags::PATH, Mode::empty())
}

/// The path of an open file, without symbolic links.
///
/// # Errors
///
/// ENOENT when that does not lead to the file: it was removed, or its place is covered.
pub(crate) fn path_of(file: impl AsFd) -> io::Result<PathBuf> {
    let path = rustix::fs::readlinkat(CWD, descriptor_path(&file), Vec::new())?;
    let path = PathBuf::from(OsString::from_vec(path.into_bytes()));
    match is_same(fstat(file)?, rustix::fs::lstat(&path)?) {
        true => Ok(path),
        false => Err(Errno::NOENT.into()),
    }
}

pub(crate) fn is_same(one: Stat, other: Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// The names on a path, the last first.
pub(crate) fn names_from_last(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().rev().filter_map(|it| match it {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    })
}

/// Leads to an open file, where a call takes a path.
pub(crate) fn descriptor_path(descriptor: impl AsFd) -> PathBuf {
    let number = descriptor.as_fd().as_raw_fd();
    PathBuf::from(format!("/proc/self/fd/{number}"))
}

/// Whether an open file has this name.
pub(crate) fn is_called(file: impl AsFd, directory: impl AsFd, name: &OsStr) -> bool {
    let named = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    named.is_ok_and(|named| fstat(file).is_ok_and(|file| is_same(named, file)))
}

/// A lookup, name by name.
struct Walk {
    /// The directory that it has reached.
    at: OwnedFd,
    /// The names to come, last first.
    rest: Vec<OsString>,
    links: u32,
    /// The last user other than root through whose directories it has come.
    through: Option<u32>,
    /// The users, other than root, who could choose where a followed link leads.
    led_by: Vec<u32>,
}

impl Walk {
    fn along(path: &Path) -> io::Result<Walk> {
        let mut walk = Walk {
            at: directory(".")?,
            rest: Vec::new(),
            links: 0,
            through: None,
            led_by: Vec::new(),
        };
        walk.enter(directory(".")?)?;
        walk.push(path)?;
        Ok(walk)
    }

    /// Puts the names of `path` before those to come.
    fn push(&mut self, path: &Path) -> io::Result<()> {
        if path.as_os_str().is_empty() {
            return Err(Errno::NOENT.into());
        }
        if path.is_absolute() {
            self.through = None;
            self.enter(directory("/")?)?;
        }
        self.rest.extend(names_from_last(path));
        Ok(())
    }

    /// Notes whose directory the one reached is.
    fn enter(&mut self, next: OwnedFd) -> io::Result<()> {
        let owner = fstat(&next)?.st_uid;
        self.at = next;
        self.through = Some(owner).filter(|owner| *owner != 0).or(self.through);
        Ok(())
    }

    fn open(mut self, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        while let Some(name) = self.rest.pop() {
            if self.follow(&name)? {
                continue;
            }
            if self.rest.is_empty() {
                return self.open_last(&name, flags, mode);
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | self.no_follow()?;
            let next = rustix::fs::openat(&self.at, &name, flags, Mode::empty())?;
            self.enter(next)?;
        }
        self.open_last(OsStr::new("."), flags - OFlags::CREATE, Mode::empty())
    }

    /// Whether the name is a link, whose path is then walked next.
    fn follow(&mut self, name: &OsStr) -> io::Result<bool> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let link = match rustix::fs::openat(&self.at, name, flags, Mode::empty()) {
            Ok(link) => link,
            Err(Errno::NOENT) if self.rest.is_empty() => return Ok(false),
            Err(errno) => return Err(errno.into()),
        };
        let stat = fstat(&link)?;
        let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        if !is_link || rustix::fs::fstatfs(&link)?.f_type == PROC_SUPER_MAGIC {
            return Ok(false);
        }
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        let owner = Some(stat.st_uid).filter(|owner| *owner != 0);
        self.led_by.extend(owner.into_iter().chain(self.through));
        let target = rustix::fs::readlinkat(&link, "", Vec::new())?;
        self.push(Path::new(&OsString::from_vec(target.into_bytes())))?;
        Ok(true)
    }

    fn open_last(&self, name: &OsStr, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let flags = flags | self.no_follow()?;
        let at = |flags, mode| rustix::fs::openat(&self.at, name, flags, mode);
        let file = match at(flags - OFlags::CREATE, Mode::empty()) {
            Err(Errno::NOENT) if flags.contains(OFlags::CREATE) => {
                // It would be root's.
                self.check(0)?;
                at(flags, mode)?
            }
            opened => opened?,
        };
        self.check(fstat(&file)?.st_uid)?;
        Ok(file)
    }

    /// Links of procfs are followed by the kernel: some have no path.
    fn no_follow(&self) -> rustix::io::Result<OFlags> {
        let is_proc = rustix::fs::fstatfs(&self.at)?.f_type == PROC_SUPER_MAGIC;
        let flags = OFlags::CLOEXEC;
        Ok(if is_proc {
            flags
        } else {
            flags | OFlags::NOFOLLOW
        })
    }

    fn check(&self, to: u32) -> io::Result<()> {
        match self.led_by.iter().find(|by| **by != to) {
            Some(&by) => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                LedAstray { by, to },
            )),
            None => Ok(()),
        }
    }
}

fn directory(path: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::mknodat;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    #[test]
    fn log_is_no_fifo_by_which_a_user_has_root_wait() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let mode = Mode::RUSR | Mode::WUSR;
        for fifo in ["fifo", "read"] {
            mknodat(CWD, at(fifo), FileType::Fifo, mode, 0).unwrap();
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let _reader = rustix::fs::open(at("read"), flags, Mode::empty()).unwrap();
        let _listener = UnixListener::bind(at("socket")).unwrap();
        for name in ["fifo", "read", "socket"] {
            let error = open_log(&at(name), mode).unwrap_err().to_string();
            assert!(error.contains("neither a regular file"), "{name}: {error}");
        }
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let own = format!("/dev/fd/{}", writer.as_raw_fd());
        for log in [at("new"), "/dev/null".into(), own.into()] {
            let log = open_log(&log, mode).unwrap();
            assert!(
                !rustix::fs::fcntl_getfl(&log)
                    .unwrap()
                    .contains(OFlags::NONBLOCK)
            );
            std::fs::File::from(log).write_all(b"line").unwrap();
        }
        assert_eq!(std::fs::read(at("new")).unwrap(), b"line");
        let mut line = [0; 4];
        std::fs::File::from(reader).read_exact(&mut line).unwrap();
        assert_eq!(&line, b"line");
    }
}
