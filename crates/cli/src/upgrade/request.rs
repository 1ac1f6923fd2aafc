//! The socket at which a supervisor is given another program.
//!
//! Whoever may connect has the supervisor execute that program, with its rights. So it is root, or the user of the
//! supervisor outside of every sandbox: in the same mount and user namespace. No worker has this socket.

use crate::control::protocol::{Refusal, Reply};
use crate::lookup::must_be_regular;
use crate::mount_table::DeviceNumber;
use crate::waiting;
use rustix::fs::{Stat, major, minor};
use rustix::net::{RecvFlags, SocketFlags, accept_with, recv};
use serde_json::json;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thrufs_sys::fd_passing;
use thrufs_sys::socket::peer;

/// Comes with the descriptor of the program.
pub(super) const REQUEST: &[u8] = b"upgrade 1\n";

/// For the request, which a command sends at once.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// A command that waits for a reply.
#[derive(Debug)]
pub(crate) struct Request {
    program: OwnedFd,
    command: UnixStream,
}

impl Request {
    /// Accepts one; `None` if nobody, or nobody who may, asks for anything.
    pub(crate) fn accept(listener: &OwnedFd) -> Option<Request> {
        let socket = accept_with(listener, SocketFlags::CLOEXEC).ok()?;
        let command = UnixStream::from(socket);
        match receive(&command).transpose()? {
            Ok(program) => Some(Request { program, command }),
            Err(error) => {
                tracing::warn!("refused to upgrade: {error}");
                reply(&command, Err(error.to_string()));
                None
            }
        }
    }

    /// The path of the program for processes of this user, as long as this value exists.
    pub(crate) fn program(&self) -> PathBuf {
        let (process, file) = (std::process::id(), self.program.as_raw_fd());
        format!("/proc/{process}/fd/{file}").into()
    }

    /// Whether this process executes the program itself, not a program that its file names.
    pub(crate) fn is_executed_by(&self, process: u32) -> bool {
        let executed = rustix::fs::stat(format!("/proc/{process}/exe"));
        let program = rustix::fs::fstat(&self.program);
        let both = executed.and_then(|one| Ok((one, program?)));
        both.is_ok_and(|(one, other)| [one.st_dev, one.st_ino] == [other.st_dev, other.st_ino])
    }

    /// Whether the program is a file of this file system, which has no server while the program starts.
    pub(crate) fn is_on(&self, device: DeviceNumber) -> bool {
        let stat = rustix::fs::fstat(&self.program);
        let number = |stat: Stat| [major(stat.st_dev), minor(stat.st_dev)];
        stat.is_ok_and(|stat| number(stat) == [device.major, device.minor])
    }

    /// Replies, and ends the connection.
    pub(crate) fn finish(self, outcome: Result<(), String>) {
        reply(&self.command, outcome);
    }
}

/// Replies to the command of an earlier program of this process.
pub(crate) fn finish(command: OwnedFd) {
    reply(&command.into(), Ok(()));
}

impl AsFd for Request {
    /// Where the reply goes.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.command.as_fd()
    }
}

fn reply(mut command: &UnixStream, outcome: Result<(), String>) {
    let reply = match outcome {
        Ok(()) => Reply::Result(json!({ "upgraded": true })),
        Err(why) => Reply::Error(Refusal::because(
            libc::EINVAL,
            &format!("not upgraded: {why}"),
        )),
    };
    // It fits into the buffer; a command that has ended needs none.
    let _ = command.write_all(reply.encode().as_bytes());
}

/// `None` from a connection that ends without a request: whoever starts a server looks whether another listens.
fn receive(command: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let deadline = Some(Instant::now() + REQUEST_TIMEOUT);
    let other = || io::Error::other("this is no request of this version of thrufs");
    if !waiting::readable([Some(command.as_fd())], deadline)[0] {
        return Err(other());
    }
    let mut bytes = [0; 64];
    if let Err(error) = may_ask(command) {
        // Read all the same, so that the reply arrives: without the descriptor.
        let _ = recv(command, &mut bytes, RecvFlags::DONTWAIT);
        return Err(error);
    }
    let received = fd_passing::receive(command.as_fd(), &mut bytes, RecvFlags::DONTWAIT)?;
    let mut files = received.descriptors.into_iter();
    match (files.next(), files.next()) {
        (None, None) if received.bytes == 0 => Ok(None),
        (Some(program), None) if bytes.starts_with(REQUEST) => {
            must_be_regular(&program)?;
            Ok(Some(program))
        }
        _ => Err(other()),
    }
}

fn may_ask(command: &UnixStream) -> io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    let (user, process) = peer(command)?;
    if user == 0 {
        return Ok(());
    }
    // A process of this user in a sandbox must not start one outside.
    let is_near = |kind| {
        let of = |process: &str| rustix::fs::readlink(format!("/proc/{process}/ns/{kind}"), vec![]);
        matches!((of(&process.to_string()), of("self")), (Ok(its), Ok(own)) if its == own)
    };
    match user == own && is_near("mnt") && is_near("user") {
        true => Ok(()),
        false => Err(io::Error::other(
            "only root may, and its user in the mount and user namespace of its server",
        )),
    }
}
