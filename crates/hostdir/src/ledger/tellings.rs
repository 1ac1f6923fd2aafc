//! Which audit records were written, so that an open that is replayed for want of an answer is not audited
//! twice.
//!
//! A record is noted before it is written and after. If the process died in between, it may have been
//! written: then it is written again, with `again`. Only the last ones are kept: between a record and the
//! answer to its request, fewer others are written.

use super::notes::Notes;
use super::records::{TOLD, USED};
use super::telling::{Before, Telling};
use std::collections::HashMap;
use std::io;
use std::sync::atomic::Ordering;

/// How many are kept.
const TELLINGS: u32 = 1024;

impl Notes {
    /// What the process before had done with this audit record; reported once.
    pub(crate) fn told_before(&self, telling: Telling) -> Option<Before> {
        self.tellings.before.lock().remove(&telling)
    }

    /// An audit record is about to be written, or was not needed again. Returns where that is noted.
    pub(crate) fn begin_telling(&self, telling: Telling) -> Option<u32> {
        let index = self.tellings.next.fetch_add(1, Ordering::Relaxed) % TELLINGS;
        self.told.free(u64::from(index));
        self.told.commit(index, USED, |record| {
            record.request.store(telling.request);
            record.digest.store(telling.digest);
            Some(())
        })?;
        Some(index)
    }

    pub(crate) fn told(&self, index: Option<u32>) {
        if let Some(record) = index.and_then(|index| self.told.at(index)) {
            record.state.store(USED | TOLD);
        }
    }

    pub(super) fn read_tellings(&self) -> io::Result<()> {
        let mut before = HashMap::new();
        self.told.each(|_, record, state| {
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
        *self.tellings.before.lock() = before;
        Ok(())
    }
}
