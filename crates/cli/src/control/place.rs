//! Where control sockets are: a directory for each user, and a file for each mount in it.
//!
//! The file is named after the device number of the mount, which no other mount has while this one
//! lives, whatever it is bound to or covered by. That number is known when the mount stands, and the
//! worker is given its socket before. So the socket is bound under a passing name and renamed, which
//! replaces what an earlier mount with the number may have left.
//!
//! Numbers are used again at once, so a supervisor that comes to its end removes its own file only,
//! told by device and inode, and nobody renames in between: the directory is locked meanwhile. It
//! belongs to one user, and no other can write to it or lock it.

use super::server::BACKLOG;
use crate::mount_table::DeviceNumber;
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen};
use rustix::net::{connect, socket_with};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How every socket is named at the end.
const SUFFIX: &str = ".socket";

/// How often to ask for the lock of the directory, and how long to wait in between. Who has it needs
/// a few system calls; one that was stopped there is not waited for longer.
const LOCK_ATTEMPTS: usize = 100;
const LOCK_INTERVAL: Duration = Duration::from_millis(10);

/// Most names of the directory that are looked at for what others have left.
const LEFTOVERS_LOOKED_AT: usize = 1024;

/// Where the control socket of a mount is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// In the directory of the user who mounts.
    Usual,
    /// Here.
    At(PathBuf),
    /// Nowhere.
    None,
}

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    #[error("XDG_RUNTIME_DIR is not set, and there is no /run/user/{0}")]
    NoRuntimeDirectory(u32),
    #[error(
        "{path} is not a directory that belongs to user {user} and that nobody else can write to"
    )]
    NotPrivate { path: PathBuf, user: u32 },
    #[error("{0} is something else than a control socket that was left behind")]
    Occupied(PathBuf),
    #[error("a server listens at {0} already")]
    InUse(PathBuf),
    #[error("cannot {what} {path}: {source}")]
    System {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

fn system<E: Into<io::Error>>(what: &'static str, path: &Path) -> impl Fn(E) -> PlaceError {
    move |error| PlaceError::System {
        what,
        path: path.to_owned(),
        source: error.into(),
    }
}

/// What the socket of the mount with this number is called.
pub(crate) fn file_name(device: DeviceNumber) -> String {
    format!("{}-{}{SUFFIX}", device.major, device.minor)
}

/// The directory of a user's sockets, whether it is there or not.
///
/// # Errors
///
/// An ordinary user without a runtime directory.
pub(crate) fn directory_of(user: u32) -> Result<PathBuf, PlaceError> {
    if user == 0 {
        return Ok("/run/thrufs".into());
    }
    let is_own = rustix::process::geteuid().as_raw() == user;
    let said = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    if let Some(said) = said.filter(|path| is_own && path.is_absolute()) {
        return Ok(said.join("thrufs"));
    }
    let usual = PathBuf::from(format!("/run/user/{user}"));
    if is_own && !usual.is_dir() {
        return Err(PlaceError::NoRuntimeDirectory(user));
    }
    Ok(usual.join("thrufs"))
}

/// The file of a control socket, wherever it was renamed to.
#[derive(Debug)]
pub(crate) struct SocketFile(OwnedFd);

impl SocketFile {
    pub(crate) fn from_descriptor(descriptor: OwnedFd) -> SocketFile {
        SocketFile(descriptor)
    }

    pub(crate) fn try_clone(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }

    /// Removes it, if it is still there.
    pub(crate) fn remove(&self) {
        // The calls are those that the filter of the worker's watcher lets through.
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
        let _lock = Lock::of(parent.as_fd());
        let here = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW);
        let is_ours = match (here, rustix::fs::fstat(&self.0)) {
            (Ok(here), Ok(ours)) => (here.st_dev, here.st_ino) == (ours.st_dev, ours.st_ino),
            _ => false,
        };
        if is_ours && let Err(errno) = rustix::fs::unlinkat(&parent, name, AtFlags::empty()) {
            tracing::warn!(
                "cannot remove the control socket {}: {errno}",
                path.display()
            );
        }
    }
}

/// A control socket that was made and is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    directory: OwnedFd,
    /// As it is called now.
    name: OsString,
    /// The directory, for messages.
    path: PathBuf,
    /// As it was asked to be called.
    asked: Option<OsString>,
    file: SocketFile,
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.file.remove();
    }
}

impl ControlSocket {
    /// Makes a socket that listens and has a passing name. Gives also what to accept from. None
    /// where none is wanted.
    ///
    /// # Errors
    ///
    /// See [`PlaceError`].
    pub(crate) fn make(choice: &Control) -> Result<Option<(ControlSocket, OwnedFd)>, PlaceError> {
        let (path, asked) = match choice {
            Control::None => return Ok(None),
            Control::Usual => {
                let user = rustix::process::geteuid().as_raw();
                let path = directory_of(user)?;
                make_directory(&path, user)?;
                (path, None)
            }
            Control::At(path) => {
                let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                    return Err(PlaceError::Occupied(path.clone()));
                };
                (parent.to_owned(), Some(name.to_owned()))
            }
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&path, flags, Mode::empty())
            .map_err(system("open the directory", &path))?;
        must_be_private(&directory, &path, asked.is_some())?;
        let lock = Lock::of(directory.as_fd());
        match &asked {
            None => remove_leftovers(directory.as_fd(), &path),
            Some(name) => must_be_free(directory.as_fd(), name, &path)?,
        }
        let (listener, name) = listen_in(directory.as_fd(), &path)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&directory, &name, flags, Mode::empty())
            .map_err(system("open the control socket in", &path))?;
        drop(lock);
        let made = ControlSocket {
            directory,
            name,
            path,
            asked,
            file: SocketFile(file),
        };
        Ok(Some((made, listener)))
    }

    /// Its file, for whoever may have to remove it.
    pub(crate) fn file(&self) -> &SocketFile {
        &self.file
    }

    /// Gives it the name by which it is found, now that the mount has a number.
    ///
    /// # Errors
    ///
    /// See [`PlaceError`].
    pub(crate) fn publish(&mut self, device: DeviceNumber) -> Result<(), PlaceError> {
        let name = match &self.asked {
            Some(name) => name.clone(),
            None => file_name(device).into(),
        };
        let _lock = Lock::of(self.directory.as_fd());
        if self.asked.is_some() {
            must_be_free(self.directory.as_fd(), &name, &self.path)?;
        }
        rustix::fs::renameat(&self.directory, &self.name, &self.directory, &name)
            .map_err(system("name the control socket in", &self.path))?;
        self.name = name;
        Ok(())
    }
}

/// The lock of a directory, as far as it could be had.
struct Lock<'a>(BorrowedFd<'a>);

impl Lock<'_> {
    fn of(directory: BorrowedFd<'_>) -> Lock<'_> {
        for _ in 0..LOCK_ATTEMPTS {
            match rustix::fs::flock(directory, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_INTERVAL),
                Ok(()) | Err(_) => break,
            }
        }
        Lock(directory)
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(self.0, FlockOperation::Unlock);
    }
}

/// Root's can be walked through, so that others are told what is in their way; nobody else's can.
fn make_directory(path: &Path, user: u32) -> Result<(), PlaceError> {
    let mode = if user == 0 { 0o711 } else { 0o700 };
    match rustix::fs::mkdirat(CWD, path, Mode::from_raw_mode(mode)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(system("make the directory", path)(errno)),
    }
}

/// With `asked`, it is somebody's choice, and may be one like /tmp, where nobody can take away or
/// replace what belongs to others.
fn must_be_private(directory: &OwnedFd, path: &Path, asked: bool) -> Result<(), PlaceError> {
    let user = rustix::process::geteuid().as_raw();
    let stat = rustix::fs::fstat(directory).map_err(system("look at", path))?;
    let ours = stat.st_uid == user || (asked && stat.st_uid == 0);
    let sticky = asked && stat.st_mode & libc::S_ISVTX != 0;
    if ours && (stat.st_mode & 0o022 == 0 || sticky) {
        return Ok(());
    }
    Err(PlaceError::NotPrivate {
        path: path.to_owned(),
        user,
    })
}

fn is_socket(stat: &Stat) -> bool {
    stat.st_mode & libc::S_IFMT == libc::S_IFSOCK
}

/// Nothing is there, or a socket where nobody listens any more.
fn must_be_free(directory: BorrowedFd<'_>, name: &OsStr, path: &Path) -> Result<(), PlaceError> {
    let whole = path.join(name);
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(system("look at", &whole)(errno)),
        Ok(stat) if !is_socket(&stat) => Err(PlaceError::Occupied(whole)),
        Ok(_) if is_left(directory, name) => Ok(()),
        Ok(_) => Err(PlaceError::InUse(whole)),
    }
}

/// Whether nobody listens at this socket.
fn is_left(directory: BorrowedFd<'_>, name: &OsStr) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let address = SocketAddrUnix::new(descriptor_path(directory).join(name));
    let connected = address.and_then(|address| {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &address)
    });
    connected == Err(Errno::CONNREFUSED)
}

/// Removes the sockets of servers that were killed, supervisor and worker at once.
fn remove_leftovers(directory: BorrowedFd<'_>, path: &Path) {
    let Ok(entries) = std::fs::read_dir(path) else {
        return;
    };
    for entry in entries.take(LEFTOVERS_LOOKED_AT).filter_map(Result::ok) {
        let name = entry.file_name();
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let is_one = name.as_encoded_bytes().ends_with(SUFFIX.as_bytes())
            && rustix::fs::statat(directory, &name, flags).is_ok_and(|stat| is_socket(&stat));
        if is_one && is_left(directory, &name) {
            tracing::debug!(
                "removing {}, where nobody listens",
                path.join(&name).display()
            );
            let _ = rustix::fs::unlinkat(directory, &name, AtFlags::empty());
        }
    }
}

/// A socket that listens, and what it is called.
fn listen_in(directory: BorrowedFd<'_>, path: &Path) -> Result<(OwnedFd, OsString), PlaceError> {
    let step = |what| system::<Errno>(what, path);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(step("make a socket for"))?;
    // The file takes on the mode of the socket: there is no moment in which others could connect.
    rustix::fs::fchmod(&listener, Mode::RUSR | Mode::WUSR)
        .map_err(step("close to others the control socket in"))?;
    // A process makes one. What has the name was left by another with its number.
    let name = OsString::from(format!("new-{}{SUFFIX}", std::process::id()));
    if is_left(directory, &name) {
        let _ = rustix::fs::unlinkat(directory, &name, AtFlags::empty());
    }
    // By the descriptor: an address has room for 107 bytes.
    let address = SocketAddrUnix::new(descriptor_path(directory).join(&name))
        .map_err(step("name a socket in"))?;
    bind(&listener, &address).map_err(step("make the control socket in"))?;
    listen(&listener, BACKLOG).map_err(|errno| {
        let _ = rustix::fs::unlinkat(directory, &name, AtFlags::empty());
        step("listen in")(errno)
    })?;
    Ok((listener, name))
}

/// A path that leads to what a descriptor stands for.
pub(crate) fn descriptor_path(descriptor: impl AsFd) -> PathBuf {
    let number = descriptor.as_fd().as_raw_fd();
    PathBuf::from(format!("/proc/self/fd/{number}"))
}

#[cfg(test)]
mod tests;
