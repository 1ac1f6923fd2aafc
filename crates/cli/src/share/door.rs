//! The socket that front ends connect to.
//!
//! It is made for its user alone, under a passing name; it gets its name, and perhaps a group, when
//! there is somebody to answer. Or it was made by who started this process, and comes by a number.

use crate::listening::{Lock, NamedSocket, SocketError, is_called, must_be_free, system};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketFlags, SocketType, accept_with};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

/// Most front ends that may wait to be let in.
const BACKLOG: i32 = 16;

/// Most attempts to lock a file that others may be removing.
const LOCK_ATTEMPTS: usize = 16;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listening {
    At {
        path: PathBuf,
        /// Who may connect besides the user.
        group: Option<u32>,
        /// Say the process in a file beside it, `PATH.pid`, locked as long as it lives.
        pid_file: bool,
    },
    /// At the socket with this number, which listens already.
    Inherited(RawFd),
}

impl Listening {
    /// The server works in the root directory.
    ///
    /// # Errors
    ///
    /// Without a working directory; an empty path.
    pub(crate) fn make_absolute(&mut self) -> io::Result<()> {
        if let Listening::At { path, .. } = self {
            *path = std::path::absolute(&*path)?;
        }
        Ok(())
    }

    /// For messages and lists of processes.
    pub(crate) fn name(&self) -> PathBuf {
        match self {
            Listening::At { path, .. } => path.clone(),
            Listening::Inherited(number) => format!("descriptor {number}").into(),
        }
    }
}

/// A socket that listens; removed, if it was made here, when this is dropped.
#[derive(Debug)]
pub(crate) struct Door {
    listener: OwnedFd,
    made: Option<Made>,
}

#[derive(Debug)]
struct Made {
    socket: NamedSocket,
    /// As it is to be called.
    name: OsString,
    group: Option<u32>,
    /// Locked.
    _pid_file: Option<OwnedFd>,
}

impl Door {
    /// Makes the socket, or takes the one that there is.
    ///
    /// # Errors
    ///
    /// See [`SocketError`]; a descriptor that is no listening socket is one of the system.
    pub(crate) fn open(listening: &Listening) -> Result<Door, SocketError> {
        match listening {
            Listening::Inherited(number) => {
                let listener = inherited(*number)
                    .map_err(system("listen at the inherited", &listening.name()))?;
                Ok(Door {
                    listener,
                    made: None,
                })
            }
            Listening::At {
                path,
                group,
                pid_file,
            } => make(path, *group, *pid_file),
        }
    }

    /// Gives the socket the name by which it is found.
    ///
    /// # Errors
    ///
    /// See [`SocketError`].
    pub(crate) fn publish(&mut self) -> Result<(), SocketError> {
        let Some(made) = &mut self.made else {
            return Ok(());
        };
        if let Some(group) = made.group {
            made.socket.give_to_group(group)?;
        }
        let name = made.name.clone();
        made.socket.publish(&name, true)
    }

    /// Device and inode of the socket's file, if it was made here.
    pub(crate) fn identity(&self) -> Option<(u64, u64)> {
        let file = self.made.as_ref()?.socket.file().try_clone().ok()?;
        let stat = rustix::fs::fstat(file).ok()?;
        Some((stat.st_dev, stat.st_ino))
    }

    /// Lets in who knocks; `None` when it has gone away again.
    ///
    /// # Errors
    ///
    /// No descriptors, no memory.
    pub(crate) fn let_in(&self) -> io::Result<Option<OwnedFd>> {
        match accept_with(&self.listener, SocketFlags::CLOEXEC) {
            Ok(stream) => Ok(Some(stream)),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

fn inherited(number: RawFd) -> Result<OwnedFd, Errno> {
    let listener = thrufs_sys::inherited::take(number)?;
    let listens = socket_domain(&listener)? == AddressFamily::UNIX
        && socket_type(&listener)? == SocketType::STREAM
        && socket_acceptconn(&listener)?;
    if !listens {
        return Err(Errno::INVAL);
    }
    rustix::io::ioctl_fionbio(&listener, true)?;
    Ok(listener)
}

fn make(path: &Path, group: Option<u32>, pid_file: bool) -> Result<Door, SocketError> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(SocketError::Occupied(path.to_owned()));
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(parent, flags, Mode::empty())
        .map_err(system("open the directory of the socket,", parent))?;
    // Before anybody is asked by connecting: a server that serves one front end takes that for it.
    let pid_file = lock_pid_file(directory.as_fd(), name, path, pid_file)?;
    let locked = directory
        .try_clone()
        .map_err(system("open the directory", parent))?;
    let _lock = Lock::of(locked.as_fd());
    must_be_free(directory.as_fd(), name, parent)?;
    let passing = format!("share-{}.new", std::process::id());
    let (socket, listener) = NamedSocket::make(directory, parent.to_owned(), &passing, BACKLOG)?;
    let made = Made {
        socket,
        name: name.to_owned(),
        group,
        _pid_file: pid_file,
    };
    Ok(Door {
        listener,
        made: Some(made),
    })
}

/// Looks whether somebody says with a file that the socket is in use, and with `make` says so.
fn lock_pid_file(
    directory: BorrowedFd<'_>,
    name: &OsStr,
    path: &Path,
    make: bool,
) -> Result<Option<OwnedFd>, SocketError> {
    let mut file_name = name.to_owned();
    file_name.push(".pid");
    let whole = path.with_file_name(&file_name);
    let mut flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NOFOLLOW;
    flags.set(OFlags::CREATE, make);
    let mode = Mode::RUSR | Mode::WUSR;
    for _ in 0..LOCK_ATTEMPTS {
        let file = match rustix::fs::openat(directory, &file_name, flags, mode) {
            Ok(file) => file,
            // Nobody's, or not for this user to see: then it is no server of this user's.
            Err(_) if !make => return Ok(None),
            Err(errno) => return Err(system("make", &whole)(errno)),
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(SocketError::InUse(path.to_owned())),
            Err(errno) => return Err(system("lock", &whole)(errno)),
        }
        if !make {
            return Ok(None);
        }
        if is_called(&file, directory, &file_name) {
            let text = format!("{}\n", std::process::id());
            rustix::fs::ftruncate(&file, 0)
                .and_then(|()| rustix::io::write(&file, text.as_bytes()))
                .map_err(system("write", &whole))?;
            return Ok(Some(file));
        }
    }
    Err(SocketError::InUse(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::net::{UnixListener, UnixStream};
    use tempfile::TempDir;

    fn at(path: &Path) -> Listening {
        Listening::At {
            path: path.to_owned(),
            group: None,
            pid_file: false,
        }
    }

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn it_has_its_name_when_there_is_somebody_to_answer() {
        let place = TempDir::new().unwrap();
        let path = place.path().join("socket");
        let mut door = Door::open(&at(&path)).unwrap();
        assert!(!path.exists());
        door.publish().unwrap();
        assert_eq!(mode(&path), 0o600);
        assert!(door.let_in().unwrap().is_none(), "nobody knocks");
        let _front_end = UnixStream::connect(&path).unwrap();
        assert!(door.let_in().unwrap().is_some());
        let stat = std::fs::symlink_metadata(&path).unwrap();
        assert_eq!(door.identity(), Some((stat.dev(), stat.ino())));
        drop(door);
        let left = std::fs::read_dir(place.path()).unwrap().count();
        assert_eq!(left, 0);
    }

    #[test]
    fn a_group_is_let_in_too() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let place = TempDir::new().unwrap();
        let path = place.path().join("socket");
        let mut listening = at(&path);
        if let Listening::At { group, .. } = &mut listening {
            *group = Some(54_321);
        }
        let mut door = Door::open(&listening).unwrap();
        door.publish().unwrap();
        assert_eq!(mode(&path), 0o660);
        assert_eq!(std::fs::symlink_metadata(&path).unwrap().gid(), 54_321);
    }

    #[test]
    fn what_is_in_use_is_left_alone() {
        let place = TempDir::new().unwrap();
        let path = place.path().join("socket");
        let living = UnixListener::bind(&path).unwrap();
        assert!(matches!(Door::open(&at(&path)), Err(SocketError::InUse(_))));
        drop(living);
        assert!(
            Door::open(&at(&path)).unwrap().publish().is_ok(),
            "it was left"
        );
        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(
            Door::open(&at(&path)),
            Err(SocketError::Occupied(_))
        ));
        assert!(Door::open(&at(&path.join("deeper"))).is_err());
    }

    #[test]
    fn a_locked_pid_file_says_that_it_is_in_use() {
        let place = TempDir::new().unwrap();
        let path = place.path().join("socket");
        let pid = place.path().join("socket.pid");
        // Longer than ours.
        std::fs::write(&pid, "12345678901234567890\n").unwrap();
        std::fs::set_permissions(&pid, std::fs::Permissions::from_mode(0o600)).unwrap();
        let mut listening = at(&path);
        if let Listening::At { pid_file, .. } = &mut listening {
            *pid_file = true;
        }
        let living = UnixListener::bind(&path).unwrap();
        living.set_nonblocking(true).unwrap();
        let holder = std::fs::File::open(&pid).unwrap();
        rustix::fs::flock(&holder, FlockOperation::LockExclusive).unwrap();
        for listening in [&listening, &at(&path)] {
            assert!(matches!(Door::open(listening), Err(SocketError::InUse(_))));
        }
        assert!(living.accept().is_err(), "and nobody was asked");
        drop((holder, living));
        let door = Door::open(&listening).unwrap();
        let text = std::fs::read_to_string(&pid).unwrap();
        assert_eq!(text, format!("{}\n", std::process::id()));
        assert!(matches!(Door::open(&listening), Err(SocketError::InUse(_))));
        drop(door);
        assert!(Door::open(&listening).is_ok(), "the lock went with it");
    }

    #[test]
    fn descriptors_that_do_not_listen_are_refused() {
        use std::os::fd::AsRawFd;
        let place = TempDir::new().unwrap();
        let listener = UnixListener::bind(place.path().join("socket")).unwrap();
        let (connected, _other) = UnixStream::pair().unwrap();
        let file = std::fs::File::open("/").unwrap();
        let open = |number| Door::open(&Listening::Inherited(number));
        assert!(open(listener.as_raw_fd()).is_ok());
        assert!(open(connected.as_raw_fd()).is_err());
        assert!(open(file.as_raw_fd()).is_err());
        let error = open(9999).unwrap_err().to_string();
        assert!(error.contains("descriptor 9999"), "{error}");
    }
}
