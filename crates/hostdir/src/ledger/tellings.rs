//! Which audit records were written, so that an open that is replayed for want of an answer is not audited
//! twice.
//!
//! A record is noted before it is written and after. If the process died in between, it may have been
//! written: then it is written again, with `again`. Only the last ones are kept: between a record and the
//! answer to its request, fewer others are written.

use super::memory::Memory;
use super::records::{TOLD, TOLD_RECORDS, Told, USED};
use super::table::Table;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many are kept.
const TELLINGS: u32 = 1024;

/// An audit record, by its request and what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Telling {
    pub(crate) request: u64,
    pub(crate) digest: u64,
}

/// What the process before had done with an audit record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// It may have been written.
    Begun,
    Told,
}

pub(crate) struct Tellings {
    table: Table<Told>,
    next: AtomicU32,
    before: Mutex<HashMap<Telling, Before>>,
}

impl Tellings {
    pub(super) fn new(memory: &Arc<Memory>) -> Tellings {
        Tellings {
            table: Table::new(memory, TOLD_RECORDS),
            next: AtomicU32::default(),
            before: Mutex::default(),
        }
    }

    /// What the process before had done with this audit record; reported once.
    pub(crate) fn before(&self, telling: Telling) -> Option<Before> {
        self.before.lock().remove(&telling)
    }

    /// An audit record is about to be written, or was not needed again. Returns where that is noted.
    pub(crate) fn begin(&self, telling: Telling) -> Option<u32> {
        let index = self.next.fetch_add(1, Ordering::Relaxed) % TELLINGS;
        self.table.free(u64::from(index));
        self.table.commit(index, USED, |record| {
            record.request.store(telling.request);
            record.digest.store(telling.digest);
            Some(())
        })?;
        Some(index)
    }

    pub(crate) fn finish(&self, index: Option<u32>) {
        if let Some(record) = index.and_then(|index| self.table.at(index)) {
            record.state.store(USED | TOLD);
        }
    }

    pub(super) fn read(&self) -> io::Result<()> {
        let mut before = HashMap::new();
        self.table.each(|_, record, state| {
            let telling = Telling {
                request: record.request.load(),
                digest: record.digest.load(),
            };
            let became = match state & TOLD {
                0 => Before::Begun,
                _ => Before::Told,
            };
            before.insert(telling, became);
        })?;
        *self.before.lock() = before;
        Ok(())
    }
}
