//! The client of a control socket.
//!
//! The server may belong to another user (root queries every server), so its replies are hostile: limited
//! in length and time, and printed without control characters.

use super::finding::Located;
use super::protocol::{Command, REPLY_BYTES_MAX, Reply};
use super::query_error::QueryError;
use super::socket::{self, Purpose, file_name, file_name_of_share};
use crate::listening::is_socket;
use crate::lookup::descriptor_path;
use crate::mount_table::Mount;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxFlags, makedev};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde_json::Value;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thrufs_hostdir::printable;
use thrufs_sys::socket::{peer, peer_user};

/// The server may have to access a source on a slow network.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// Queries the server of the mount that `path` is on, through its usual socket or the given one.
pub(crate) fn ask(
    path: &Path,
    located: &Located,
    socket: Option<&Path>,
    command: &Command,
) -> Result<Value, QueryError> {
    ask_within(path, located, socket, command, TIMEOUT)
}

/// As [`ask`]; connecting and the reply may each take `time`.
pub(crate) fn ask_within(
    path: &Path,
    located: &Located,
    socket: Option<&Path>,
    command: &Command,
    time: Duration,
) -> Result<Value, QueryError> {
    let mount = &located.mount;
    let Some(user) = mount.user else {
        return Err(not_on_thrufs(path, located));
    };
    let (place, follow) = place_of(socket, user, &file_name(mount.device));
    let stream = reach(&place, follow, user, time).map_err(|errno| {
        let (mountpoint, socket_path) = (mount.path.clone(), place.clone());
        match errno {
            // Any server can set the subtype; a thrufs mount has that type or a socket.
            Errno::NOENT | Errno::ACCESS if socket.is_none() && mount.kind != "fuse.thrufs" => {
                not_on_thrufs(path, located)
            }
            Errno::NOENT => QueryError::NoSocket(mountpoint, socket_path),
            Errno::ACCESS | Errno::PERM => QueryError::OtherUser(mountpoint, user),
            Errno::CONNREFUSED => QueryError::NoServer(mountpoint, socket_path),
            other => QueryError::query(&mountpoint)(other),
        }
    })?;
    exchange_with(path, &stream, command, time)
}

/// A socket that may be a share's.
pub(crate) struct ShareSocket<'a> {
    pub(crate) path: &'a Path,
    user: u32,
    /// Device and inode.
    identity: (u64, u64),
}

/// The socket at `path`, if there is one.
pub(crate) fn share_at(path: &Path) -> Option<ShareSocket<'_>> {
    // A mount there is not asked: its server may be stuck.
    let flags = AtFlags::STATX_DONT_SYNC;
    let wanted = StatxFlags::TYPE | StatxFlags::UID | StatxFlags::INO;
    let found = rustix::fs::statx(CWD, path, flags, wanted).ok()?;
    let is_socket = FileType::from_raw_mode(found.stx_mode.into()) == FileType::Socket;
    let device = makedev(found.stx_dev_major, found.stx_dev_minor);
    is_socket.then_some(ShareSocket {
        path,
        user: found.stx_uid,
        identity: (device, found.stx_ino),
    })
}

/// Queries the server of a share about `path`, through its usual socket or the given one.
pub(crate) fn ask_share(
    path: &Path,
    share: &ShareSocket<'_>,
    socket: Option<&Path>,
    command: &Command,
) -> Result<Value, QueryError> {
    let user = share.user;
    let name = file_name_of_share(share.identity.0, share.identity.1);
    let (socket, follow) = place_of(socket, user, &name);
    let stream = reach(&socket, follow, user, TIMEOUT).map_err(|errno| match errno {
        Errno::NOENT | Errno::CONNREFUSED => QueryError::NoSocketOfShare(share.path.into()),
        other => QueryError::query(share.path)(other),
    })?;
    exchange_with(path, &stream, command, TIMEOUT)
}

/// The given socket, or the usual one with this name, and how to open it.
fn place_of(socket: Option<&Path>, user: u32, usual: &str) -> (PathBuf, OFlags) {
    match socket {
        Some(socket) => (socket.to_owned(), OFlags::empty()),
        None => (socket::find(user, usual), OFlags::NOFOLLOW),
    }
}

fn exchange_with(
    path: &Path,
    stream: &UnixStream,
    command: &Command,
    time: Duration,
) -> Result<Value, QueryError> {
    let line = exchange(stream, command, time).map_err(QueryError::query(path))?;
    result(path, &line)
}

/// The result in a reply.
pub(crate) fn result(path: &Path, line: &[u8]) -> Result<Value, QueryError> {
    match Reply::decode(line) {
        Ok(Reply::Result(value)) => Ok(value),
        Ok(Reply::Error(refusal)) => Err(QueryError::Refused {
            path: path.into(),
            why: printable(&refusal.message),
        }),
        Err(why) => {
            let malformed = io::Error::other(format!("malformed reply: {why}"));
            Err(QueryError::query(path)(malformed))
        }
    }
}

/// What the server at a usual control socket of a user is and says.
#[derive(Default)]
pub(crate) struct Met {
    /// Which process listens; `None` in another PID namespace.
    pub(crate) process: Option<i32>,
    /// `None` if it does not answer in time.
    pub(crate) statistics: Option<Value>,
}

/// Asks it for its statistics, for little longer than `time`.
///
/// # Errors
///
/// Of connecting: ECONNREFUSED where no server listens any more.
pub(crate) fn meet(socket: &Path, user: u32, time: Duration) -> Result<Met, Errno> {
    let stream = match reach(socket, OFlags::NOFOLLOW, user, time) {
        // As many wait to be accepted as may.
        Err(Errno::AGAIN) => return Ok(Met::default()),
        reached => reached?,
    };
    let line = exchange(&stream, &Command::Statistics, time).ok();
    let reply = line.and_then(|line| Reply::decode(&line).ok());
    Ok(Met {
        process: peer(&stream).ok().map(|it| it.1).filter(|it| *it > 0),
        statistics: match reply {
            Some(Reply::Result(value)) => Some(value),
            Some(Reply::Error(_)) | None => None,
        },
    })
}

fn not_on_thrufs(path: &Path, located: &Located) -> QueryError {
    QueryError::NotOnThrufs {
        path: path.into(),
        mountpoint: located.mount.path.clone(),
        kind: located.mount.kind.clone(),
        // A symbolic link to a file on a mount is not followed.
        hint: match path.symlink_metadata().map(|it| it.file_type()) {
            Ok(it) if it.is_symlink() => {
                "; to explain the target of the symbolic link, name the target"
            }
            Ok(it) if it.is_socket() => "; to explain a file of a share, give --share SOCKET",
            _ => "",
        },
    }
}

/// The socket beside that for queries, at which the supervisor of a mount is given another program; and its owner.
pub(crate) fn upgrades_of(mount: &Mount, control: Option<&Path>) -> Option<(PathBuf, u32)> {
    let user = mount.user?;
    let place = match control {
        Some(path) => upgrades_beside(path)?,
        None => usual_for_upgrades(user, &file_name(mount.device)),
    };
    Some((place, user))
}

/// The same of a share.
pub(crate) fn upgrades_of_share(
    share: &ShareSocket<'_>,
    control: Option<&Path>,
) -> Option<(PathBuf, u32)> {
    let name = file_name_of_share(share.identity.0, share.identity.1);
    let place = match control {
        Some(path) => upgrades_beside(path)?,
        None => usual_for_upgrades(share.user, &name),
    };
    Some((place, share.user))
}

/// Beside a control socket.
pub(crate) fn upgrades_beside(control: &Path) -> Option<PathBuf> {
    Some(control.with_file_name(Purpose::Upgrades.name(control.file_name()?)))
}

fn usual_for_upgrades(user: u32, of_queries: &str) -> PathBuf {
    let name = Purpose::Upgrades.name(of_queries.as_ref());
    socket::find(user, &name.to_string_lossy())
}

/// Connects to a socket, which must belong to `user`, as must its server, or to root.
pub(crate) fn reach(
    socket: &Path,
    follow: OFlags,
    user: u32,
    time: Duration,
) -> Result<UnixStream, Errno> {
    // Opened first, then checked and connected to by descriptor: a path could be replaced in between.
    let flags = OFlags::PATH | OFlags::CLOEXEC | follow;
    let file = rustix::fs::open(socket, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    if !is_socket(&stat) {
        return Err(Errno::NOTSOCK);
    }
    if stat.st_uid != user {
        return Err(Errno::PERM);
    }
    let kind = SocketType::STREAM;
    let stream = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    for timeout in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&stream, timeout, Some(time))?;
    }
    connect(&stream, &SocketAddrUnix::new(descriptor_path(&file))?)?;
    match peer_user(&stream)? {
        peer if peer == 0 || peer == user => {}
        _ => return Err(Errno::PERM),
    }
    Ok(UnixStream::from(stream))
}

/// Sends a command and receives a line. The socket has the same timeout.
pub(crate) fn exchange(
    mut stream: &UnixStream,
    command: &Command,
    timeout: Duration,
) -> io::Result<Vec<u8>> {
    let slow = slow_after(timeout);
    stream
        .write_all(command.encode().as_bytes())
        .map_err(slow)?;
    receive_line(stream, timeout)
}

/// Receives a line, or the rest of one. The socket has the same timeout.
pub(crate) fn receive_line(mut stream: &UnixStream, timeout: Duration) -> io::Result<Vec<u8>> {
    let slow = slow_after(timeout);
    let deadline = Instant::now() + timeout;
    let mut line = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match stream.read(&mut chunk).map_err(&slow)? {
            0 => return Err(io::Error::other("the server closed the connection")),
            count => line.extend_from_slice(&chunk[..count]),
        }
        if let Some(end) = line.iter().position(|byte| *byte == b'\n') {
            line.truncate(end);
            return Ok(line);
        }
        if line.len() > REPLY_BYTES_MAX {
            return Err(io::Error::other("the reply is too long"));
        }
        if Instant::now() > deadline {
            return Err(slow(io::ErrorKind::WouldBlock.into()));
        }
    }
}

fn slow_after(timeout: Duration) -> impl Fn(io::Error) -> io::Error {
    move |error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            let seconds = timeout.as_secs();
            let why = "the source may not respond to the server";
            io::Error::other(format!("no reply within {seconds} s: {why}"))
        }
        _ => error,
    }
}
