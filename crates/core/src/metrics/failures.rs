//! Failed requests of one operation, by error number.

use super::OperationCounts;
use super::snapshot::ERRNOS;
use crate::errno::Errno;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of [`ERRNOS`], and of all others in the last.
#[derive(Debug, Default)]
pub(super) struct Failures([AtomicU64; ERRNOS.len() + 1]);

impl Failures {
    pub(super) fn record(&self, errno: Errno) {
        let place = ERRNOS.iter().position(|known| *known == errno);
        self.0[place.unwrap_or(ERRNOS.len())].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_to(&self, counts: &mut OperationCounts) {
        for (sum, count) in counts.by_errno.iter_mut().zip(&self.0) {
            let count = count.load(Ordering::Relaxed);
            *sum += count;
            counts.errors += count;
        }
    }
}
