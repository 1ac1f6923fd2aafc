//! The socket of front ends.
//!
//! It is created with mode 0600 under a temporary name, and gets its name, and perhaps a group, when a
//! worker is ready. Or it is inherited as a descriptor.

use crate::error::system_at;
use crate::foreign::Foreign;
use crate::listening::{NamedSocket, SocketError, SocketFile};
use crate::lookup::{self, is_called};
use crate::upgrade::handover::{Incoming as Handed, Outgoing, Slot};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketFlags, SocketType, accept_with};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

/// Most attempts to lock a file that may be removed concurrently.
const LOCK_ATTEMPTS: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListenAddress {
    At {
        path: PathBuf,
        /// May connect besides the user.
        group: Option<u32>,
        /// Write the process id to `PATH.pid`, locked while the process runs.
        pid_file: bool,
    },
    /// An inherited listening socket.
    Inherited(RawFd),
}

impl ListenAddress {
    /// The server's working directory is `/`.
    pub(crate) fn make_absolute(&mut self) -> io::Result<()> {
        if let ListenAddress::At { path, .. } = self {
            *path = std::path::absolute(&*path)?;
        }
        Ok(())
    }

    /// For messages and ps(1).
    pub(crate) fn name(&self) -> PathBuf {
        match self {
            ListenAddress::At { path, .. } => path.clone(),
            ListenAddress::Inherited(number) => format!("descriptor {number}").into(),
        }
    }
}

/// A listening socket; removed on drop, if created here.
#[derive(Debug)]
pub(crate) struct ShareListener {
    listener: Foreign<OwnedFd>,
    made: Option<Made>,
    /// Of what was made, once it has its name.
    file: Option<SocketFile>,
    /// Locked.
    pid_file: Option<OwnedFd>,
}

#[derive(Debug)]
struct Made {
    socket: NamedSocket,
    /// Final name.
    name: OsString,
    group: Option<u32>,
}

impl ShareListener {
    /// Creates the socket, or takes the inherited one.
    pub(crate) fn open(listening: &ListenAddress) -> Result<ShareListener, SocketError> {
        match listening {
            ListenAddress::Inherited(number) => {
                let listener = inherited(*number)
                    .map_err(system_at("listen at the inherited", &listening.name()))?;
                Ok(ShareListener {
                    listener: Foreign::new(listener),
                    made: None,
                    file: None,
                    pid_file: None,
                })
            }
            ListenAddress::At {
                path,
                group,
                pid_file,
            } => make(path, *group, *pid_file),
        }
    }

    /// Renames the socket to its final name.
    pub(crate) fn publish(&mut self) -> Result<(), SocketError> {
        let Some(mut made) = self.made.take() else {
            return Ok(());
        };
        if let Some(group) = made.group {
            made.socket.give_to_group(group)?;
        }
        made.socket.publish(&made.name, true)?;
        self.file = Some(made.socket.into_file());
        Ok(())
    }

    /// Goes on with what an earlier program of this process has [handed over](Self::hand_over).
    pub(crate) fn resume(files: &mut Handed) -> io::Result<ShareListener> {
        Ok(ShareListener {
            listener: Foreign::new(files.take(Slot::Listener)?),
            made: None,
            file: files
                .take_if_given(Slot::ListenerFile)
                .map(SocketFile::from),
            pid_file: files.take_if_given(Slot::PidFile),
        })
    }

    pub(crate) fn hand_over<'a>(&'a self, files: &mut Outgoing<'a>) {
        files.add(Slot::Listener, self);
        files.add_if(Slot::ListenerFile, self.file.as_ref());
        files.add_if(Slot::PidFile, self.pid_file.as_ref());
    }

    /// Device and inode of the socket's file, if created here.
    pub(crate) fn identity(&self) -> Option<(u64, u64)> {
        self.file.as_ref()?.identity()
    }

    /// Accepts a connection; `None` if it was closed again.
    pub(crate) fn accept(&self) -> io::Result<Option<Foreign<OwnedFd>>> {
        match accept_with(&*self.listener, SocketFlags::CLOEXEC) {
            Ok(stream) => Ok(Some(Foreign::new(stream))),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for ShareListener {
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

fn make(path: &Path, group: Option<u32>, pid_file: bool) -> Result<ShareListener, SocketError> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(SocketError::Occupied(path.to_owned()));
    };
    let directory = lookup::open(parent, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
        .map_err(system_at("open the directory of the socket,", parent))?;
    // Before connecting to a socket to see whether it is stale: a server for one front end would take
    // that for its front end.
    let pid_file = lock_pid_file(directory.as_fd(), name, path, pid_file)?;
    let passing = format!("share-{}.new", std::process::id());
    let directory_path = parent.to_owned();
    let (socket, listener) =
        NamedSocket::make(directory, directory_path, passing.as_ref(), Some(name))?;
    let made = Made {
        socket,
        name: name.to_owned(),
        group,
    };
    Ok(ShareListener {
        listener: Foreign::new(listener),
        made: Some(made),
        file: None,
        pid_file,
    })
}

/// Fails if another process holds the pid file; with `make`, writes and locks it.
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
    // At a FIFO, open(2) would wait for a reader.
    flags |= OFlags::NONBLOCK;
    flags.set(OFlags::CREATE, make);
    let mode = Mode::RUSR | Mode::WUSR;
    let open = || -> io::Result<OwnedFd> {
        let file = rustix::fs::openat(directory, &file_name, flags, mode)?;
        lookup::must_be_regular(&file)?;
        Ok(file)
    };
    for _ in 0..LOCK_ATTEMPTS {
        let file = match open() {
            Ok(file) => file,
            // Missing, not readable, or no file: not of a server of this user.
            Err(_) if !make => return Ok(None),
            Err(error) => return Err(system_at("make", &whole)(error).into()),
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(SocketError::InUse(path.to_owned())),
            Err(errno) => return Err(system_at("lock", &whole)(errno).into()),
        }
        if !make {
            return Ok(None);
        }
        if is_called(&file, directory, &file_name) {
            let text = format!("{}\n", std::process::id());
            rustix::fs::ftruncate(&file, 0)
                .and_then(|()| rustix::io::write(&file, text.as_bytes()))
                .map_err(system_at("write", &whole))?;
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

    fn at(path: &Path) -> ListenAddress {
        ListenAddress::At {
            path: path.to_owned(),
            group: None,
            pid_file: false,
        }
    }

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn socket_has_its_name_once_published() {
        let place = TempDir::new().unwrap();
        let path = place.path().join("socket");
        let mut listener = ShareListener::open(&at(&path)).unwrap();
        assert!(!path.exists());
        listener.publish().unwrap();
        assert_eq!(mode(&path), 0o600);
        assert!(
            listener.accept().unwrap().is_none(),
            "no incoming connection"
        );
        let _front_end = UnixStream::connect(&path).unwrap();
        assert!(listener.accept().unwrap().is_some());
        let stat = std::fs::symlink_metadata(&path).unwrap();
        assert_eq!(listener.identity(), Some((stat.dev(), stat.ino())));
        drop(listener);
        let left = std::fs::read_dir(place.path()).unwrap().count();
        assert_eq!(left, 0);
    }

    #[test]
    fn socket_group_may_connect() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let place = TempDir::new().unwrap();
        let path = place.path().join("socket");
        let mut listening = at(&path);
        if let ListenAddress::At { group, .. } = &mut listening {
            *group = Some(54_321);
        }
        let mut listener = ShareListener::open(&listening).unwrap();
        listener.publish().unwrap();
        assert_eq!(mode(&path), 0o660);
        assert_eq!(std::fs::symlink_metadata(&path).unwrap().gid(), 54_321);
    }

    #[test]
    fn socket_in_use_is_not_replaced() {
        let place = TempDir::new().unwrap();
        let path = place.path().join("socket");
        let living = UnixListener::bind(&path).unwrap();
        assert!(matches!(
            ShareListener::open(&at(&path)),
            Err(SocketError::InUse(_))
        ));
        drop(living);
        assert!(
            ShareListener::open(&at(&path)).unwrap().publish().is_ok(),
            "it was left"
        );
        let is_occupied = || {
            let opened = ShareListener::open(&at(&path));
            matches!(opened, Err(SocketError::Occupied(_)))
        };
        std::fs::write(&path, "precious").unwrap();
        assert!(is_occupied());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        assert!(is_occupied());
        assert!(ShareListener::open(&at(&path.join("deeper"))).is_err());
    }

    #[test]
    fn locked_pid_file_means_in_use() {
        let place = TempDir::new().unwrap();
        let path = place.path().join("socket");
        let pid = place.path().join("socket.pid");
        // Longer than the new content.
        std::fs::write(&pid, "12345678901234567890\n").unwrap();
        std::fs::set_permissions(&pid, std::fs::Permissions::from_mode(0o600)).unwrap();
        let mut listening = at(&path);
        if let ListenAddress::At { pid_file, .. } = &mut listening {
            *pid_file = true;
        }
        let living = UnixListener::bind(&path).unwrap();
        living.set_nonblocking(true).unwrap();
        let holder = std::fs::File::open(&pid).unwrap();
        rustix::fs::flock(&holder, FlockOperation::LockExclusive).unwrap();
        for listening in [&listening, &at(&path)] {
            assert!(matches!(
                ShareListener::open(listening),
                Err(SocketError::InUse(_))
            ));
        }
        assert!(living.accept().is_err(), "without a connection");
        drop((holder, living));
        let listener = ShareListener::open(&listening).unwrap();
        let text = std::fs::read_to_string(&pid).unwrap();
        assert_eq!(text, format!("{}\n", std::process::id()));
        assert!(matches!(
            ShareListener::open(&listening),
            Err(SocketError::InUse(_))
        ));
        drop(listener);
        assert!(
            ShareListener::open(&listening).is_ok(),
            "the lock went with it"
        );
    }

    #[test]
    fn descriptors_that_do_not_listen_are_refused() {
        use std::os::fd::AsRawFd;
        let place = TempDir::new().unwrap();
        let listener = UnixListener::bind(place.path().join("socket")).unwrap();
        let (connected, _other) = UnixStream::pair().unwrap();
        let file = std::fs::File::open("/").unwrap();
        let open = |number| ShareListener::open(&ListenAddress::Inherited(number));
        assert!(open(listener.as_raw_fd()).is_ok());
        assert!(open(connected.as_raw_fd()).is_err());
        assert!(open(file.as_raw_fd()).is_err());
        let error = open(9999).unwrap_err().to_string();
        assert!(error.contains("descriptor 9999"), "{error}");
    }
}
