//! Where control sockets are: a directory for each user, and a file for each mount in it.
//!
//! The file is named after the device number of the mount, which no other mount has while this one
//! lives, whatever it is bound to or covered by. That number is known when the mount stands, and the
//! worker is given its socket before. So the socket is bound under a passing name and renamed, which
//! replaces what an earlier mount with the number may have left.
//!
//! Numbers are used again at once, so a supervisor that comes to its end removes its own file only.
//! The directory belongs to one user, and no other can write to it or lock it.

use super::server::BACKLOG;
use crate::listening::{Lock, NamedSocket, SocketError, is_left, is_socket, must_be_free, system};
use crate::mount_table::DeviceNumber;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// How every socket is named at the end.
const SUFFIX: &str = ".socket";

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

/// Why there is no control socket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    #[error("XDG_RUNTIME_DIR is not set, and there is no /run/user/{0}")]
    NoRuntimeDirectory(u32),
    #[error("{path} must be a directory of user {user} that no other user can write to")]
    NotPrivate { path: PathBuf, user: u32 },
    #[error(transparent)]
    Socket(#[from] SocketError),
}

/// What the socket of the mount with this number is called.
pub(crate) fn file_name(device: DeviceNumber) -> String {
    format!("{}-{}{SUFFIX}", device.major, device.minor)
}

/// What the socket of the share with this socket for front ends is called.
pub(crate) fn file_name_of_share(device: u64, inode: u64) -> String {
    format!("share-{device:x}-{inode}{SUFFIX}")
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

/// A control socket that was made and is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    socket: NamedSocket,
    /// As it was asked to be called.
    asked: Option<OsString>,
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
                    return Err(SocketError::Occupied(path.clone()).into());
                };
                (parent.to_owned(), Some(name.to_owned()))
            }
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&path, flags, Mode::empty())
            .map_err(system("open the directory", &path))?;
        must_be_private(&directory, &path, asked.is_some())?;
        let locked = directory
            .try_clone()
            .map_err(system("open the directory", &path))?;
        let _lock = Lock::of(locked.as_fd());
        match &asked {
            None => remove_leftovers(directory.as_fd(), &path),
            Some(name) => must_be_free(directory.as_fd(), name, &path)?,
        }
        let passing = format!("new-{}{SUFFIX}", std::process::id());
        let (socket, listener) = NamedSocket::make(directory, path, &passing, BACKLOG)?;
        Ok(Some((ControlSocket { socket, asked }, listener)))
    }

    /// As [`make`](Self::make). Without a socket the directory is served all the same, unless a place
    /// was asked for.
    ///
    /// # Errors
    ///
    /// See [`PlaceError`].
    pub(crate) fn make_if_possible(
        choice: &Control,
    ) -> Result<Option<(ControlSocket, OwnedFd)>, PlaceError> {
        match ControlSocket::make(choice) {
            Err(error) if matches!(choice, Control::At(_)) => Err(error),
            Err(error @ PlaceError::NoRuntimeDirectory(_)) => {
                tracing::info!("no control socket: {error}");
                Ok(None)
            }
            Err(error) => {
                tracing::warn!("no control socket: {error}");
                Ok(None)
            }
            Ok(made) => Ok(made),
        }
    }

    /// Gives it the name by which it is found: this one, unless another was asked for.
    ///
    /// # Errors
    ///
    /// See [`PlaceError`].
    pub(crate) fn publish(&mut self, usual: String) -> Result<(), PlaceError> {
        let name = self.asked.clone().unwrap_or_else(|| usual.into());
        Ok(self.socket.publish(&name, self.asked.is_some())?)
    }
}

/// Root's can be walked through, so that others are told what is in their way; nobody else's can.
fn make_directory(path: &Path, user: u32) -> Result<(), PlaceError> {
    let mode = if user == 0 { 0o711 } else { 0o700 };
    match rustix::fs::mkdirat(CWD, path, Mode::from_raw_mode(mode)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(system("create the directory", path)(errno).into()),
    }
}

/// With `asked`, it is somebody's choice, and may be one like /tmp, where nobody can take away or
/// replace what belongs to others.
fn must_be_private(directory: &OwnedFd, path: &Path, asked: bool) -> Result<(), PlaceError> {
    let user = rustix::process::geteuid().as_raw();
    let stat = rustix::fs::fstat(directory).map_err(system("stat", path))?;
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

/// Removes the sockets of servers whose supervisors were killed.
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
            tracing::debug!("removing the stale socket {}", path.join(&name).display());
            let _ = rustix::fs::unlinkat(directory, &name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests;
