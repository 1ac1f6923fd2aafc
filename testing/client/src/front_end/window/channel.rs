//! The thread that carries out the back end's messages, one after the other.

use super::shared::Shared;
use super::table::{Live, Refusal};
use super::wire::{self, Message, Piece};
use rustix::fs::OFlags;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Regions of memory, with the one of the guest's RAM: QEMU aborts above.
const REGIONS_MAX: usize = 512;

/// What a message changes, once it is checked.
enum Change {
    Map(Live, OwnedFd),
    Unmap(u64),
}

/// Takes messages until the channel ends. An error of the socket, or a malformed message, ends it as well.
pub(super) fn run(shared: &Shared) {
    while let Ok(Some(message)) = wire::receive(&shared.stream) {
        if carry_out(shared, message).is_err() {
            break;
        }
    }
    let _ = shared.stream.shutdown(std::net::Shutdown::Both);
}

fn carry_out(shared: &Shared, mut message: Message) -> io::Result<()> {
    let change = check(shared, &mut message);
    if let Err(refusal) = &change {
        let refusal = *refusal;
        shared.count(|counts| {
            counts.refused += 1;
            counts.last_refusal = Some(refusal);
        });
    }
    let result = change.as_ref().err().map_or(0, |refusal| refusal.answer());
    let answer = || match message.flags & wire::NEED_REPLY {
        0 => Ok(()),
        _ => shared.answer(message.code, result),
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
        if regions >= REGIONS_MAX {
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
