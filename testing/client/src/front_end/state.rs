//! Device state: SET_DEVICE_STATE_FD and CHECK_DEVICE_STATE, over a pipe.

use super::VhostLink;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::{VhostTransferStateDirection, VhostTransferStatePhase};

const STATE_BYTES_MAX: usize = 1 << 30;

/// Why a state was not transferred.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The server refused the transfer or reported an error.
    #[error("{message}: {source}")]
    Refused {
        /// The name of the message in the specification.
        message: &'static str,
        /// Its error.
        source: vhost::Error,
    },
    /// The pipe failed.
    #[error("the pipe: {0}")]
    Pipe(#[from] io::Error),
}

fn refused(message: &'static str) -> impl Fn(vhost::Error) -> StateError {
    move |source| StateError::Refused { message, source }
}

fn begin(
    link: &VhostLink,
    direction: VhostTransferStateDirection,
    theirs: OwnedFd,
    ours: OwnedFd,
) -> Result<OwnedFd, StateError> {
    let phase = VhostTransferStatePhase::STOPPED;
    let other = link.set_device_state_fd(direction, phase, theirs);
    let other = other.map_err(refused("SET_DEVICE_STATE_FD"))?;
    // The server may answer with a channel of its own.
    Ok(other.map_or(ours, OwnedFd::from))
}

fn check(link: &VhostLink) -> Result<(), StateError> {
    let checked = link.check_device_state();
    checked.map_err(refused("CHECK_DEVICE_STATE"))
}

/// Saves the state of a device with stopped queues.
pub(super) fn save(link: &VhostLink, limit: Option<Duration>) -> Result<Vec<u8>, StateError> {
    let (ours, theirs) = pipe()?;
    let ours = begin(link, VhostTransferStateDirection::SAVE, theirs, ours)?;
    let mut state = Vec::new();
    let mut part = vec![0; 64 << 10];
    let deadline = limit.map(|limit| Instant::now() + limit);
    loop {
        wait(&ours, PollFlags::IN, deadline)?;
        match rustix::io::read(&ours, &mut part) {
            Ok(0) => break,
            Ok(length) => state.extend(&part[..length]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(StateError::Pipe(errno.into())),
        }
        if state.len() > STATE_BYTES_MAX {
            return Err(StateError::Pipe(io::Error::other("it does not end")));
        }
    }
    check(link)?;
    Ok(state)
}

/// Loads `state` into a device with stopped queues.
pub(super) fn load(
    link: &VhostLink,
    state: &[u8],
    limit: Option<Duration>,
) -> Result<(), StateError> {
    let (theirs, ours) = pipe()?;
    let ours = begin(link, VhostTransferStateDirection::LOAD, theirs, ours)?;
    let deadline = limit.map(|limit| Instant::now() + limit);
    let mut rest = state;
    while !rest.is_empty() {
        wait(&ours, PollFlags::OUT, deadline)?;
        match rustix::io::write(&ours, rest) {
            Ok(length) => rest = &rest[length..],
            Err(Errno::AGAIN | Errno::INTR) => {}
            // The server stopped reading: CHECK_DEVICE_STATE reports why.
            Err(Errno::PIPE) => break,
            Err(errno) => return Err(StateError::Pipe(errno.into())),
        }
    }
    drop(ours);
    check(link)
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?)
}

fn wait(file: &OwnedFd, flags: PollFlags, deadline: Option<Instant>) -> io::Result<()> {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let timeout = left.and_then(|left| Timespec::try_from(left).ok());
    match poll(&mut [PollFd::new(file, flags)], timeout.as_ref()) {
        Ok(0) => Err(io::ErrorKind::TimedOut.into()),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
