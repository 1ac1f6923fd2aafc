//! Unix sockets at which a server listens.
//!
//! A socket is bound under a temporary name and renamed when its server is ready, which replaces a stale
//! socket atomically.
//!
//! A server removes only its own file, identified by device and inode. The directory is locked meanwhile,
//! so that no other server of ours renames in between.

use crate::error::{StartupError, system_at};
use crate::lookup::{descriptor_path, is_called};
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen};
use rustix::net::{connect, socket_with};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Attempts to lock the directory. A holder needs a few system calls; a stopped one is not waited for
/// longer.
const LOCK_ATTEMPTS: usize = 100;
const LOCK_INTERVAL: Duration = Duration::from_millis(10);

/// Connections that are not accepted yet.
const BACKLOG: i32 = 16;

#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    #[error("{0} exists and is not a stale socket: remove it, or use another path")]
    Occupied(PathBuf),
    #[error("a server listens at {0} already")]
    InUse(PathBuf),
    #[error(transparent)]
    System(#[from] StartupError),
}

/// A socket, removed on drop.
#[derive(Debug)]
pub(crate) struct NamedSocket {
    directory: OwnedFd,
    /// Current name.
    name: OsString,
    /// Directory, for messages.
    path: PathBuf,
    file: SocketFile,
}

/// The file of a socket, by descriptor and so independent of its name. Removed on drop.
#[derive(Debug)]
pub(crate) struct SocketFile(OwnedFd);

impl From<OwnedFd> for SocketFile {
    /// One that an earlier program of this process has made.
    fn from(file: OwnedFd) -> SocketFile {
        SocketFile(file)
    }
}

impl SocketFile {
    /// Device and inode.
    pub(crate) fn identity(&self) -> Option<(u64, u64)> {
        let stat = rustix::fs::fstat(&self.0).ok()?;
        Some((stat.st_dev, stat.st_ino))
    }
}

impl AsFd for SocketFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for SocketFile {
    /// Unlinks it, if it still exists.
    fn drop(&mut self) {
        let Ok(path) = rustix::fs::readlinkat(CWD, descriptor_path(&self.0), Vec::new()) else {
            return;
        };
        let path = PathBuf::from(OsString::from_vec(path.into_bytes()));
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return;
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(parent) = rustix::fs::open(parent, flags, Mode::empty()) else {
            return;
        };
        let _lock = DirectoryLock::of(parent.as_fd());
        if is_called(&self.0, parent.as_fd(), name)
            && let Err(errno) = rustix::fs::unlinkat(&parent, name, AtFlags::empty())
        {
            tracing::warn!("cannot remove the socket {}: {errno}", path.display());
        }
    }
}

impl NamedSocket {
    /// Creates a listening socket in `directory` under a temporary name of this process. Returns its listener
    /// too. `wanted`, a final name, must be free or of a stale socket.
    pub(crate) fn make(
        directory: OwnedFd,
        path: PathBuf,
        passing: &OsStr,
        wanted: Option<&OsStr>,
    ) -> Result<(NamedSocket, OwnedFd), SocketError> {
        let name = OsString::from(passing);
        let lock = DirectoryLock::of(directory.as_fd());
        if let Some(wanted) = wanted {
            must_be_free(directory.as_fd(), wanted, &path)?;
        }
        let listener = listen_in(directory.as_fd(), &path, &name)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&directory, &name, flags, Mode::empty())
            .map_err(system_at("open the socket in", &path))?;
        drop(lock);
        let made = NamedSocket {
            directory,
            name,
            path,
            file: file.into(),
        };
        Ok((made, listener))
    }

    /// Its file alone.
    pub(crate) fn into_file(self) -> SocketFile {
        self.file
    }

    /// Lets a group connect.
    ///
    /// # Errors
    ///
    /// EPERM unless root or a member of the group.
    pub(crate) fn give_to_group(&self, group: u32) -> Result<(), SocketError> {
        let failed = system_at("set the group of the socket in", &self.path);
        let group = Some(rustix::fs::Gid::from_raw(group));
        rustix::fs::chownat(&self.file, "", None, group, AtFlags::EMPTY_PATH).map_err(&failed)?;
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP;
        Ok(rustix::fs::chmod(descriptor_path(&self.file.0), mode).map_err(failed)?)
    }

    /// Renames it to its final name. With `unless_used`, only a stale socket is replaced.
    pub(crate) fn publish(&mut self, name: &OsStr, unless_used: bool) -> Result<(), SocketError> {
        let _lock = DirectoryLock::of(self.directory.as_fd());
        if unless_used {
            must_be_free(self.directory.as_fd(), name, &self.path)?;
        }
        rustix::fs::renameat(&self.directory, &self.name, &self.directory, name)
            .map_err(system_at("rename the socket in", &self.path))?;
        self.name = name.to_owned();
        Ok(())
    }
}

/// The lock of a directory, as far as available.
pub(crate) struct DirectoryLock<'a>(BorrowedFd<'a>);

impl DirectoryLock<'_> {
    pub(crate) fn of(directory: BorrowedFd<'_>) -> DirectoryLock<'_> {
        for _ in 0..LOCK_ATTEMPTS {
            match rustix::fs::flock(directory, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_INTERVAL),
                Ok(()) | Err(_) => break,
            }
        }
        DirectoryLock(directory)
    }
}

impl Drop for DirectoryLock<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(self.0, FlockOperation::Unlock);
    }
}

pub(crate) fn is_socket(stat: &Stat) -> bool {
    stat.st_mode & libc::S_IFMT == libc::S_IFSOCK
}

/// Fails unless the name is free, or of a stale socket.
fn must_be_free(directory: BorrowedFd<'_>, name: &OsStr, path: &Path) -> Result<(), SocketError> {
    let whole = path.join(name);
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(system_at("stat", &whole)(errno).into()),
        Ok(stat) if !is_socket(&stat) => Err(SocketError::Occupied(whole)),
        Ok(_) if is_left(directory, name) => Ok(()),
        Ok(_) => Err(SocketError::InUse(whole)),
    }
}

/// Whether a socket is stale: no process listens.
pub(crate) fn is_left(directory: BorrowedFd<'_>, name: &OsStr) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let address = SocketAddrUnix::new(descriptor_path(directory).join(name));
    let connected = address.and_then(|address| {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &address)
    });
    connected == Err(Errno::CONNREFUSED)
}

fn listen_in(directory: BorrowedFd<'_>, path: &Path, name: &OsStr) -> Result<OwnedFd, SocketError> {
    let step = |what| system_at::<Errno>(what, path);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(step("create a socket for"))?;
    // bind(2) takes the mode of the socket, so that other users cannot connect at any moment.
    rustix::fs::fchmod(&listener, Mode::RUSR | Mode::WUSR)
        .map_err(step("set the mode of the socket in"))?;
    // A stale socket of an earlier process with this process id.
    if is_left(directory, name) {
        let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
    }
    // Through the descriptor: an address holds 107 bytes.
    let address = SocketAddrUnix::new(descriptor_path(directory).join(name))
        .map_err(step("name a socket in"))?;
    bind(&listener, &address).map_err(step("bind the socket in"))?;
    listen(&listener, BACKLOG).map_err(|errno| {
        let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
        step("listen in")(errno)
    })?;
    Ok(listener)
}
