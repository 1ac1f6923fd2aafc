//! The tables of open files and of open directories.

use super::memory::Memory;
use super::opener::OpenerIds;
use super::records::{Open, Shape, USED};
use super::route::Route;
use super::table::Table;
use super::words::{halves, join};
use crate::ids::{HandleWord, NodeWord};
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use thrufs_abi::{BackingId, FileHandle, NodeId};
use thrufs_sys::shared_memory::records::Stated;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileNote {
    #[serde(with = "HandleWord")]
    pub(crate) handle: FileHandle,
    #[serde(with = "NodeWord")]
    pub(crate) node: NodeId,
    pub(crate) flags: i32,
    /// Its data path, if a policy may have chosen it.
    pub(crate) route: Option<Route>,
    /// User and group that opened it, under a policy.
    pub(crate) opener: OpenerIds,
    /// The kernel's registration of the lower file, if the data go through that. Of this connection alone.
    #[serde(skip)]
    pub(crate) backing: Option<BackingId>,
}

/// The directory that the positions of a listing refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listing {
    pub(crate) file_system: u64,
    pub(crate) ino: u64,
}

/// A file or directory that the client has open.
#[derive(Serialize, Deserialize)]
pub(crate) struct OpenRecord {
    pub(crate) note: FileNote,
    /// The number of its `flock(2)`.
    pub(crate) flock: u8,
    /// At the moment: the last close(2) may have closed the lower file.
    pub(crate) is_open: bool,
    /// What a directory lists, if another server saved it.
    pub(crate) listing: Option<Listing>,
    /// When it was last changed through this handle.
    #[serde(skip)]
    pub(crate) left: Option<Duration>,
    /// Its recorded route does not exist.
    #[serde(skip)]
    pub(crate) has_no_route: bool,
}

pub(crate) struct Opens(Table<Open>);

impl Opens {
    pub(super) fn new(memory: &Arc<Memory>, shape: Shape<Open>) -> Opens {
        Opens(Table::new(memory, shape))
    }

    pub(crate) fn insert(&self, note: FileNote) {
        let handle = note.handle.0;
        self.0
            .commit(handle as u32, handle >> 32 << 32 | USED, |record| {
                record.node.store(note.node.0);
                record
                    .route_and_flags
                    .store(route_and_flags(note.route, note.flags));
                record.flock.store(0);
                record.left.store(0);
                record.opener.store(note.opener.word());
                let backing = note.backing.map_or(0, |id| id.0.cast_unsigned());
                record.backing.store(u64::from(backing));
                Some(())
            });
    }

    /// Frees a released one, before its slot is used again.
    pub(crate) fn remove(&self, handle: FileHandle) {
        self.0.free(handle.0);
    }

    fn change(&self, handle: FileHandle, change: impl FnOnce(&Stated<Open>)) {
        if let Some(record) = self.0.at(handle.0 as u32) {
            change(record);
        }
    }

    /// The route of a file's data.
    pub(crate) fn set_route(&self, handle: FileHandle, route: Route, flags: i32) {
        let word = route_and_flags(Some(route), flags);
        self.change(handle, |file| file.route_and_flags.store(word));
    }

    /// When a redacted file was last changed, if through this handle.
    pub(crate) fn set_left(&self, handle: FileHandle, changed: Option<Duration>) {
        let word = changed.map_or(0, |time| time.as_nanos() as u64);
        self.change(handle, |file| file.left.store(word));
    }

    /// User and group that opened it.
    pub(crate) fn set_opener(&self, handle: FileHandle, opener: OpenerIds) {
        self.change(handle, |open| open.opener.store(opener.word()));
    }

    /// The kind of lock that an open file has, as a number of the ledger.
    pub(crate) fn set_flock(&self, handle: FileHandle, kind: u8) {
        self.change(handle, |file| file.flock.store(u64::from(kind)));
    }

    /// All, and the highest generation.
    pub(super) fn read(&self) -> io::Result<(Vec<OpenRecord>, u32)> {
        let mut opens = Vec::new();
        let highest = self
            .0
            .each(|index, record, state| opens.push(open(index, record, state)))?;
        Ok((opens, highest))
    }
}

fn route_and_flags(route: Option<Route>, flags: i32) -> u64 {
    join(route.map_or(0, u32::from), flags as u32)
}

fn backing(word: u64) -> Option<BackingId> {
    let id = i32::try_from(word).ok()?;
    (id != 0).then_some(BackingId(id))
}

fn open(index: u32, record: &Open, state: u64) -> OpenRecord {
    let (route, flags) = halves(record.route_and_flags.load());
    let known = Route::try_from(route).ok();
    OpenRecord {
        note: FileNote {
            handle: FileHandle((state >> 32) << 32 | u64::from(index)),
            node: NodeId(record.node.load()),
            flags: flags.cast_signed(),
            route: known,
            opener: OpenerIds::from_word(record.opener.load()),
            backing: backing(record.backing.load()),
        },
        flock: record.flock.load() as u8,
        is_open: true,
        listing: None,
        left: Some(Duration::from_nanos(record.left.load())).filter(|time| !time.is_zero()),
        has_no_route: route != 0 && known.is_none(),
    }
}
