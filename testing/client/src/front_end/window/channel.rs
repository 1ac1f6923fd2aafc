//! The thread that carries out the back end's messages, one after the other.

use super::hooks::Turn;
use super::shared::Shared;
use super::table::{Live, Refusal};
use super::wire::{self, Message, Piece};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// What a message changes, once it is checked.
enum Change {
    Map(Live, OwnedFd),
    Unmap(u64),
}

/// Takes messages until the channel ends.
pub(super) fn run(shared: &Shared) {
    // An error of the socket, or a malformed message, ends the channel as its end does.
    while take_next(shared).unwrap_or(false) {}
    let _ = shared.stream.shutdown(std::net::Shutdown::Both);
    shared.hooks.count(|counts| counts.ended = true);
}

/// Waits for a message and carries it out. False at the end of the channel.
fn take_next(shared: &Shared) -> io::Result<bool> {
    wait_readable(&shared.stream, None)?;
    let main_thread = shared.main_thread();
    match shared.hooks.begin() {
        Turn::Now => {}
        Turn::Closed => return Ok(false),
        Turn::Paused => {
            drop(main_thread);
            shared.hooks.wait_while_paused();
            return Ok(true);
        }
    }
    let taken = wire::receive(&shared.stream).and_then(|message| {
        let Some(message) = message else {
            return Ok(false);
        };
        carry_out(shared, message).map(|()| true)
    });
    shared.hooks.end();
    taken
}

fn carry_out(shared: &Shared, mut message: Message) -> io::Result<()> {
    shared.hooks.count(|counts| counts.messages += 1);
    let change = check(shared, &mut message);
    if let Err(refusal) = &change {
        let refusal = *refusal;
        shared.hooks.count(|counts| {
            counts.refused += 1;
            counts.last_refusal = Some(refusal);
        });
    }
    let result = change.as_ref().err().map_or(0, |refusal| refusal.answer());
    let answer = || match message.flags & wire::NEED_REPLY {
        0 => Ok(()),
        _ => shared.hooks.answer(&shared.stream, message.code, result),
    };
    let make_it = || change.into_iter().for_each(|change| make(shared, change));
    if shared.is_as_qemu() {
        answer()?;
        make_it();
        Ok(())
    } else {
        make_it();
        answer()
    }
}

fn make(shared: &Shared, change: Change) {
    match change {
        Change::Map(live, file) => shared.insert(live, file.as_fd()),
        Change::Unmap(offset) => shared.remove(offset),
    }
}

fn check(shared: &Shared, message: &mut Message) -> Result<Change, Refusal> {
    let files = std::mem::take(&mut message.files);
    let piece = Piece::parse(&message.body).ok_or(Refusal::Malformed)?;
    if piece.flags & !wire::WRITABLE != 0 {
        return Err(Refusal::Malformed);
    }
    match (message.code, <[OwnedFd; 1]>::try_from(files)) {
        (wire::SHMEM_MAP, Ok([file])) => check_map(shared, &piece, file),
        (wire::SHMEM_UNMAP, Err(files)) if files.is_empty() => {
            shared.table().check_live(&piece)?;
            Ok(Change::Unmap(piece.offset))
        }
        _ => Err(Refusal::Malformed),
    }
}

fn check_map(shared: &Shared, piece: &Piece, file: OwnedFd) -> Result<Change, Refusal> {
    let regions = {
        let table = shared.table();
        table.check_free(piece)?;
        1 + table.len()
    };
    let as_qemu = shared.is_as_qemu();
    if as_qemu {
        check_as_qemu(piece, &file)?;
        if regions >= shared.config.regions_max {
            return Err(Refusal::TooMany);
        }
    }
    let writable = as_qemu || piece.flags & wire::WRITABLE != 0;
    let live = Live::new(piece, &file, writable)?;
    Ok(Change::Map(live, file))
}

/// What QEMU refuses that the specification allows.
fn check_as_qemu(piece: &Piece, file: &OwnedFd) -> Result<(), Refusal> {
    let flags = rustix::fs::fcntl_getfl(file).map_err(Refusal::Kernel)?;
    if flags & OFlags::RWMODE != OFlags::RDWR {
        return Err(Refusal::ReadOnly);
    }
    let size = rustix::fs::fstat(file).map_err(Refusal::Kernel)?.st_size;
    let end = piece.file_offset.checked_add(piece.length);
    if end.is_none_or(|end| end > size as u64) {
        return Err(Refusal::BeyondEnd);
    }
    Ok(())
}

/// Waits until there is a message, or the end of the channel; false after `limit`.
pub(super) fn wait_readable(stream: &UnixStream, limit: Option<Duration>) -> io::Result<bool> {
    let deadline = limit.map(|limit| Instant::now() + limit);
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(stream, PollFlags::IN)], timeout.as_ref()) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
