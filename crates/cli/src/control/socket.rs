//! Control sockets: a directory per user (for a user without a runtime directory, in `/tmp`), and in it a file per
//! mount.
//!
//! The file is named after the device number of the mount, which is unique while the mount exists,
//! wherever it is bound or covered. The number is known after mounting, but the worker gets its socket
//! before. So the socket is bound under a temporary name and renamed, which also replaces a stale socket.
//!
//! The kernel reuses numbers at once, so a supervisor removes only its own file. The directory belongs to
//! one user, and no other can write to it or lock it.

use crate::config::ControlLocation;
use crate::error::{StartupError, system_at};
use crate::listening::{DirectoryLock, NamedSocket, SocketError, SocketFile, is_left, is_socket};
use crate::lookup;
use crate::mount_table::{self, DeviceNumber};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::cmp::Reverse;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const SUFFIX: &str = ".socket";

/// Most directory entries checked for stale sockets.
const LEFTOVERS_LOOKED_AT: usize = 1024;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlSocketError {
    #[error("{path} must be a directory of user {user} that no other user can write to")]
    NotPrivate { path: PathBuf, user: u32 },
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    System(#[from] StartupError),
}

pub(crate) fn file_name(device: DeviceNumber) -> String {
    format!("{}-{}{SUFFIX}", device.major, device.minor)
}

/// What a server listens for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// Queries, which a worker answers.
    Queries,
    /// Another program for the server ([`upgrade`](crate::upgrade)), which the supervisor receives.
    Upgrades,
}

impl Purpose {
    /// The name of the socket, beside the one for queries.
    pub(crate) fn name(self, of_queries: &OsStr) -> OsString {
        let mut name = OsString::from(match self {
            Purpose::Queries => "",
            Purpose::Upgrades => "upgrade-",
        });
        name.push(of_queries);
        name
    }
}

/// The file name for the share with this listening socket.
pub(crate) fn file_name_of_share(device: u64, inode: u64) -> String {
    format!("share-{device:x}-{inode}{SUFFIX}")
}

/// Where the sockets of a user may be: new ones in the first directory whose parent is the user's, the last without one.
/// Without a session (cron, su) a user has no runtime directory, or the variable names another user's.
fn directories_of(user: u32) -> Vec<PathBuf> {
    if user == 0 {
        return vec!["/run/thrufs".into()];
    }
    let is_own = rustix::process::geteuid().as_raw() == user;
    let said = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let said = said.filter(|path| is_own && path.is_absolute());
    let in_session = said.into_iter().chain([format!("/run/user/{user}").into()]);
    let mut all: Vec<_> = in_session.map(|path| path.join("thrufs")).collect();
    all.push(format!("/tmp/thrufs-{user}").into());
    all
}

/// The directory for a user's new socket, which may not exist.
fn directory_for(user: u32) -> PathBuf {
    let mut all = directories_of(user);
    let last = all.pop().expect("there is one for each user");
    let parent = |path: &PathBuf| path.parent().and_then(|it| it.metadata().ok());
    let is_own = |path: &PathBuf| parent(path).is_some_and(|it| it.is_dir() && it.uid() == user);
    all.into_iter().find(is_own).unwrap_or(last)
}

/// The path of a user's socket of this name, whether it exists or not: the newest, because killed servers leave theirs.
pub(crate) fn find(user: u32, name: &str) -> PathBuf {
    let paths = directories_of(user);
    let mut paths: Vec<_> = paths.into_iter().map(|path| path.join(name)).collect();
    let age = |path: &PathBuf| {
        let made = path.symlink_metadata().ok();
        Reverse(made.map(|it| (it.ctime(), it.ctime_nsec())))
    };
    paths.sort_by_cached_key(age);
    paths.swap_remove(0)
}

/// The control sockets of shares, with their users: those of the calling user, and as root of every user.
pub(crate) fn of_shares() -> Vec<(u32, PathBuf)> {
    let own = rustix::process::geteuid().as_raw();
    let mut users: Vec<u32> = vec![own];
    if own == 0 {
        let named = |directory, prefix| {
            let names = std::fs::read_dir(directory).into_iter().flatten().flatten();
            let names = names.take(LEFTOVERS_LOOKED_AT).map(|it| it.file_name());
            names.filter_map(move |it| it.to_str()?.strip_prefix(prefix)?.parse::<u32>().ok())
        };
        users.extend(named("/run/user", ""));
        users.extend(named("/tmp", "thrufs-"));
        users.sort_unstable();
        users.dedup();
    }
    let in_directory = |(user, directory): (u32, PathBuf)| {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let entries = entries.take(LEFTOVERS_LOOKED_AT);
        let is_share = |it: &std::fs::DirEntry| {
            let name = it.file_name().into_string().unwrap_or_default();
            name.starts_with("share-") && name.ends_with(SUFFIX)
        };
        entries.filter(is_share).map(move |it| (user, it.path()))
    };
    let directories = users.into_iter().flat_map(|user| {
        let all = directories_of(user).into_iter();
        all.filter(|it| !may_hang(it)).map(move |it| (user, it))
    });
    directories.flat_map(in_directory).collect()
}

/// Whether a path leads to a FUSE mount, whose server can leave it without an answer: any user's own, in `/tmp`.
pub(crate) fn may_hang(path: &Path) -> bool {
    let mounts = mount_table::all().unwrap_or_default();
    mount_table::holding(&mounts, path).is_some_and(|mount| mount.fuse().is_some())
}

/// A control socket, removed on drop.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    socket: NamedSocket,
    /// The name of the option `control`.
    asked: Option<OsString>,
    purpose: Purpose,
}

impl ControlSocket {
    /// Creates a listening socket under a temporary name, and returns its listener too; `None` for
    /// `control=none`.
    pub(crate) fn make(
        choice: &ControlLocation,
        purpose: Purpose,
    ) -> Result<Option<(ControlSocket, OwnedFd)>, ControlSocketError> {
        let (path, asked) = match choice {
            ControlLocation::None => return Ok(None),
            ControlLocation::Usual => {
                let user = rustix::process::geteuid().as_raw();
                let path = directory_for(user);
                make_directory(&path, user)?;
                (path, None)
            }
            ControlLocation::At(path) => {
                let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                    return Err(SocketError::Occupied(path.clone()).into());
                };
                (parent.to_owned(), Some(name.to_owned()))
            }
        };
        // In /tmp, another user may have made a link of this name.
        let follow = match asked {
            Some(_) => OFlags::empty(),
            None => OFlags::NOFOLLOW,
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | follow;
        let directory = lookup::open(&path, flags, Mode::empty())
            .map_err(system_at("open the directory", &path))?;
        must_be_private(&directory, &path, asked.is_some())?;
        if asked.is_none() {
            remove_leftovers(directory.as_fd(), &path);
        }
        let asked = asked.map(|name| purpose.name(&name));
        let passing = purpose.name(format!("new-{}{SUFFIX}", std::process::id()).as_ref());
        let (socket, listener) = NamedSocket::make(directory, path, &passing, asked.as_deref())?;
        let made = ControlSocket {
            socket,
            asked,
            purpose,
        };
        Ok(Some((made, listener)))
    }

    /// As [`make`](Self::make), but a failure is logged unless a path was given.
    pub(crate) fn make_if_possible(
        choice: &ControlLocation,
        purpose: Purpose,
    ) -> Result<Option<(ControlSocket, OwnedFd)>, ControlSocketError> {
        match ControlSocket::make(choice, purpose) {
            Err(error) if matches!(choice, ControlLocation::At(_)) => Err(error),
            Err(error) => {
                tracing::warn!("no control socket: {error}");
                Ok(None)
            }
            Ok(made) => Ok(made),
        }
    }

    /// Renames it to its final name: `usual`, unless a path was given. A failure is logged, and removes it.
    pub(crate) fn published(mut self, usual: String) -> Option<ControlSocket> {
        let published = self.publish(usual);
        let published = published.inspect_err(|error| tracing::warn!("no control socket: {error}"));
        published.is_ok().then_some(self)
    }

    /// Its file alone, once it is published.
    pub(crate) fn into_file(self) -> SocketFile {
        self.socket.into_file()
    }

    fn publish(&mut self, usual: String) -> Result<(), ControlSocketError> {
        let usual = || self.purpose.name(usual.as_ref());
        let name = self.asked.clone().unwrap_or_else(usual);
        Ok(self.socket.publish(&name, self.asked.is_some())?)
    }
}

/// Root's is searchable, so that other users get EACCES for the socket instead of the directory; other
/// users' are private.
fn make_directory(path: &Path, user: u32) -> Result<(), ControlSocketError> {
    let mode = if user == 0 { 0o711 } else { 0o700 };
    match rustix::fs::mkdirat(CWD, path, Mode::from_raw_mode(mode)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(system_at("create the directory", path)(errno).into()),
    }
}

/// With `asked`, a directory like /tmp is allowed: root's and sticky, so that no other user can replace
/// the file.
fn must_be_private(
    directory: &OwnedFd,
    path: &Path,
    asked: bool,
) -> Result<(), ControlSocketError> {
    let user = rustix::process::geteuid().as_raw();
    let stat = rustix::fs::fstat(directory).map_err(system_at("stat", path))?;
    let ours = stat.st_uid == user || (asked && stat.st_uid == 0);
    let sticky = asked && stat.st_mode & libc::S_ISVTX != 0;
    if ours && (stat.st_mode & 0o022 == 0 || sticky) {
        return Ok(());
    }
    Err(ControlSocketError::NotPrivate {
        path: path.to_owned(),
        user,
    })
}

/// Removes stale sockets of killed supervisors.
fn remove_leftovers(directory: BorrowedFd<'_>, path: &Path) {
    let _lock = DirectoryLock::of(directory);
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
