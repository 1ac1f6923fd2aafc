//! Finds out what a front end does with SHMEM_MAP: no message says it.

use super::abilities::Abilities;
use super::channel::{Channel, ChannelError, Part, WaitLimit};
use super::state::{WindowState, file_id};
use super::table::PAGE_BYTES;
use rustix::fs::{MemfdFlags, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use thrufs_sys::proc_fd;

#[derive(Debug, thiserror::Error)]
pub(super) enum ProbeError {
    #[error("no file to probe it with: {0}")]
    File(#[from] Errno),
    #[error(transparent)]
    Channel(#[from] ChannelError),
}

/// A page, and a byte of the next.
const FILE_BYTES: u64 = PAGE_BYTES + 1;

fn memory_file() -> rustix::io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create("thrufs-window", MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&file, FILE_BYTES)?;
    Ok(file)
}

/// The same file, open for reading.
fn read_only(file: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    proc_fd::reopen(file.as_fd(), OFlags::RDONLY | OFlags::CLOEXEC)
}

/// Has the front end map a file in memory in the ways in which front ends differ, in a window that has nothing
/// else. Each step waits for `timeout` at most.
pub(super) fn probe(
    state: &WindowState,
    channel: &mut Channel,
    timeout: Duration,
) -> Result<Abilities, ProbeError> {
    let file = memory_file()?;
    *state.probed.lock() = file_id(&file).ok();
    let probed = probe_with(&file, state, channel, timeout);
    *state.probed.lock() = None;
    probed
}

fn probe_with(
    file: &OwnedFd,
    state: &WindowState,
    channel: &mut Channel,
    timeout: Duration,
) -> Result<Abilities, ProbeError> {
    let mut maps = |file: BorrowedFd<'_>, length, writable| {
        let limit = state.wait_limit(timeout, &|| false);
        probe_map(channel, file, (length, writable), &limit)
    };
    let before = state.announced();
    if !maps(file.as_fd(), PAGE_BYTES, true)? {
        return Err(ChannelError::Refused.into());
    }
    let announces = state.announced() > before;
    let map_beyond_end = maps(file.as_fd(), 2 * PAGE_BYTES, true)?;
    let map_read_only = match read_only(file) {
        Ok(file) => maps(file.as_fd(), PAGE_BYTES, false)?,
        Err(_) => false,
    };
    Ok(Abilities {
        map_beyond_end,
        map_read_only,
        announces,
    })
}

/// Whether the front end maps it. It is unmapped again, after the front end has announced it, if it does.
fn probe_map(
    channel: &mut Channel,
    file: BorrowedFd<'_>,
    (length, writable): (u64, bool),
    limit: &WaitLimit<'_>,
) -> Result<bool, ChannelError> {
    let part = Part {
        at: 0,
        offset: 0,
        length,
    };
    // A worker that died may have left it.
    match channel.unmap(part, limit) {
        Ok(()) | Err(ChannelError::Refused) => {}
        Err(error) => return Err(error),
    }
    match channel.map(part, file, writable, limit) {
        Ok(()) => {}
        Err(ChannelError::Refused) => return Ok(false),
        Err(error) => return Err(error),
    }
    channel.wait_for_front_end(limit)?;
    channel.unmap(part, limit).map(|()| true)
}
