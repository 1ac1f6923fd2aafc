//! Which audit records were written, so that an open that is replayed for want of an answer is not audited
//! twice.
//!
//! A record is noted before it is written and after. If the process died in between, it may have been
//! written: then it is written again, with `again`. Only the last ones are kept: between a record and the
//! answer to its request, fewer others are written.

use super::memory::Memory;
use super::records::{AUDIT_RECORDS, Audited, USED, WRITTEN};
use super::table::Table;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many are kept.
const AUDIT_RECORDS_MAX: u32 = 1024;

/// An audit record, by its request and what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AuditId {
    pub(crate) request: u64,
    pub(crate) digest: u64,
}

/// What the process before had done with an audit record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// It may have been written.
    Begun,
    Written,
}

pub(crate) struct AuditRecords {
    table: Table<Audited>,
    next: AtomicU32,
    before: Mutex<HashMap<AuditId, Before>>,
}

impl AuditRecords {
    pub(super) fn new(memory: &Arc<Memory>) -> AuditRecords {
        AuditRecords {
            table: Table::new(memory, AUDIT_RECORDS),
            next: AtomicU32::default(),
            before: Mutex::default(),
        }
    }

    /// What the process before had done with this audit record; reported once.
    pub(crate) fn before(&self, audit_id: AuditId) -> Option<Before> {
        self.before.lock().remove(&audit_id)
    }

    /// An audit record is about to be written, or was not needed again. Returns where that is noted.
    pub(crate) fn begin(&self, audit_id: AuditId) -> Option<u32> {
        let index = self.next.fetch_add(1, Ordering::Relaxed) % AUDIT_RECORDS_MAX;
        self.table.free(u64::from(index));
        self.table.commit(index, USED, |record| {
            record.request.store(audit_id.request);
            record.digest.store(audit_id.digest);
            Some(())
        })?;
        Some(index)
    }

    pub(crate) fn finish(&self, index: Option<u32>) {
        if let Some(record) = index.and_then(|index| self.table.at(index)) {
            record.state.store(USED | WRITTEN);
        }
    }

    pub(super) fn read(&self) -> io::Result<()> {
        let mut before = HashMap::new();
        self.table.each(|_, record, state| {
            let audit_id = AuditId {
                request: record.request.load(),
                digest: record.digest.load(),
            };
            let became = match state & WRITTEN {
                0 => Before::Begun,
                _ => Before::Written,
            };
            before.insert(audit_id, became);
        })?;
        *self.before.lock() = before;
        Ok(())
    }
}
