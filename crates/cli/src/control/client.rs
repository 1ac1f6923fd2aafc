//! The client of a control socket.
//!
//! The server may belong to another user (root queries every server), so its replies are hostile: limited
//! in length and time, and printed without control characters.

use super::finding::Located;
use super::protocol::{Command, REPLY_BYTES_MAX, Reply};
use super::query_error::QueryError;
use super::socket::{directory_of, file_name, file_name_of_share};
use crate::listening::descriptor_path;
use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde_json::Value;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use thrufs_sys::socket::peer_user;

/// The server may have to access a source on a slow network.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Queries the server of the mount that `path` is on, through its usual socket or the given one.
pub(crate) fn ask(
    path: &Path,
    located: &Located,
    socket: Option<&Path>,
    command: &Command,
) -> Result<Value, QueryError> {
    let Some(user) = located.mount.user else {
        return Err(not_on_thrufs(path, located));
    };
    let stream = match socket {
        Some(socket) => {
            let reached = reach(socket, OFlags::empty(), user);
            reached.map_err(|errno| problem(located, user, socket, errno))?
        }
        None => reach_usual(path, located, user)?,
    };
    exchange_with(path, stream, command)
}

/// The metadata of a share's socket, if `path` is one.
pub(crate) fn share_at(path: &Path) -> Option<Stat> {
    let stat = rustix::fs::stat(path).ok();
    stat.filter(crate::listening::is_socket)
}

/// Queries the server of the share that listens at `path`, through its usual socket or the given one.
pub(crate) fn ask_share(
    path: &Path,
    share: &Stat,
    socket: Option<&Path>,
    command: &Command,
) -> Result<Value, QueryError> {
    let user = share.st_uid;
    let (socket, follow) = match socket {
        Some(socket) => (socket.to_owned(), OFlags::empty()),
        None => {
            let name = file_name_of_share(share.st_dev, share.st_ino);
            (directory_of(user)?.join(name), OFlags::NOFOLLOW)
        }
    };
    let stream = reach(&socket, follow, user).map_err(|errno| match errno {
        Errno::NOENT | Errno::CONNREFUSED => QueryError::NoSocketOfShare(path.into()),
        other => QueryError::Query {
            path: path.into(),
            source: other.into(),
        },
    })?;
    exchange_with(path, stream, command)
}

fn exchange_with(path: &Path, stream: UnixStream, command: &Command) -> Result<Value, QueryError> {
    let failed = |source| QueryError::Query {
        path: path.into(),
        source,
    };
    let line = exchange(&stream, command, TIMEOUT).map_err(failed)?;
    match Reply::decode(&line) {
        Ok(Reply::Result(value)) => Ok(value),
        Ok(Reply::Error(refusal)) => Err(QueryError::Refused {
            path: path.into(),
            why: printable(&refusal.message),
        }),
        Err(why) => Err(failed(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("malformed reply: {why}"),
        ))),
    }
}

/// Connects to the usual socket of such a mount.
fn reach_usual(path: &Path, located: &Located, user: u32) -> Result<UnixStream, QueryError> {
    let mount = &located.mount;
    let socket = match directory_of(user) {
        Ok(directory) => directory.join(file_name(mount.device)),
        Err(error) => return Err(error.into()),
    };
    match reach(&socket, OFlags::NOFOLLOW, user) {
        // Any server can set the subtype; a thrufs mount has that type or a socket.
        Err(Errno::NOENT | Errno::ACCESS) if mount.kind != "fuse.thrufs" => {
            Err(not_on_thrufs(path, located))
        }
        reached => reached.map_err(|errno| problem(located, user, &socket, errno)),
    }
}

fn not_on_thrufs(path: &Path, located: &Located) -> QueryError {
    QueryError::NotOnThrufs {
        path: path.into(),
        mountpoint: located.mount.path.clone(),
        kind: located.mount.kind.clone(),
        // A symbolic link to a file on a mount is not followed.
        hint: if path.is_symlink() {
            "; to explain the target of the symbolic link, name the target"
        } else {
            ""
        },
    }
}

/// The error for a socket of `user` that cannot be connected to.
fn problem(located: &Located, user: u32, socket: &Path, errno: Errno) -> QueryError {
    let mountpoint = located.mount.path.clone();
    let socket = socket.to_owned();
    match errno {
        Errno::NOENT => QueryError::NoSocket { mountpoint, socket },
        Errno::ACCESS | Errno::PERM => QueryError::OtherUser { mountpoint, user },
        Errno::CONNREFUSED => QueryError::NoServer { mountpoint, socket },
        other => QueryError::Query {
            path: mountpoint,
            source: other.into(),
        },
    }
}

/// Connects to a socket, which must belong to `user`, as must its server, or to root.
fn reach(socket: &Path, follow: OFlags, user: u32) -> Result<UnixStream, Errno> {
    // Opened first, then checked and connected to by descriptor: a path could be replaced in between.
    let flags = OFlags::PATH | OFlags::CLOEXEC | follow;
    let file = rustix::fs::open(socket, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    if stat.st_mode & libc::S_IFMT != libc::S_IFSOCK {
        return Err(Errno::NOTSOCK);
    }
    if stat.st_uid != user {
        return Err(Errno::PERM);
    }
    let kind = SocketType::STREAM;
    let stream = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    for timeout in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&stream, timeout, Some(TIMEOUT))?;
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
    let slow = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            let seconds = timeout.as_secs();
            io::Error::other(format!(
                "no reply within {seconds} s: the source may not respond to the server"
            ))
        }
        _ => error,
    };
    stream
        .write_all(command.encode().as_bytes())
        .map_err(slow)?;
    let deadline = Instant::now() + timeout;
    let mut line = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match stream.read(&mut chunk).map_err(slow)? {
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

/// The text with control characters escaped.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}
