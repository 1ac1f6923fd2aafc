//! Counts and latencies of each operation, without locks.
//!
//! Each thread counts in one of sixteen shards, so that threads do not compete for cache lines; a snapshot
//! adds the shards up. A request costs two reads of the clock and one or two atomic additions: one for its latency,
//! and one for its bytes or its error.
//!
//! Latencies are counts in buckets whose width is a quarter of their power of two: a value read from them
//! is at most 25 % above the true one.

mod failures;
mod histogram;
mod snapshot;

pub use histogram::Latencies;
pub use snapshot::{OperationCounts, Snapshot};

use crate::errno::Errno;
use failures::Failures;
use histogram::Histogram;
use snapshot::Figures;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use thrufs_abi::Opcode;

/// Most shards; further threads share them.
const SHARDS_MAX: usize = 16;

#[derive(Debug, Default)]
struct Row {
    failures: Failures,
    bytes: AtomicU64,
    latency: Histogram,
}

/// What happens to the DAX window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowEvent {
    /// There are so many mappings now.
    Mappings(u64),
    /// A mapping was made.
    Mapped,
    /// A mapping was removed, at the guest's request.
    Unmapped,
    /// Refused: a range that is not aligned to pages, empty or outside of the window.
    BadRange,
    /// Refused: a range with another mapping.
    Overlap,
    /// Refused: there are as many mappings as the window has ranges of 2 MiB.
    Full,
    /// Refused: a range to unmap that cuts a mapping.
    Cut,
    /// Refused: a mapping for writing of what may be read, or is mapped for reading.
    ReadOnly,
    /// The machine monitor has refused.
    MonitorRefused,
    /// The machine monitor has not answered in time, or has closed its channel.
    MonitorSilent,
}

/// The metrics of one connection: its operations, queues and pools.
#[derive(Debug)]
pub struct Metrics {
    shards: Box<[OnceLock<Box<[Row; Opcode::ROWS]>>]>,
    pub(crate) figures: Figures,
}

pub(crate) fn bump(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SHARD: Cell<Option<usize>> = const { Cell::new(None) };
}

fn own_shard() -> usize {
    SHARD.with(|shard| {
        shard.get().unwrap_or_else(|| {
            let number = NEXT_SHARD.fetch_add(1, Ordering::Relaxed);
            shard.set(Some(number));
            number
        })
    })
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            shards: (0..SHARDS_MAX).map(|_| OnceLock::new()).collect(),
            figures: Figures::default(),
        }
    }
}

impl Metrics {
    /// Counts one request that moved `bytes` bytes of data, or failed.
    pub(crate) fn record(
        &self,
        opcode: Opcode,
        latency: Duration,
        error: Option<Errno>,
        bytes: u64,
    ) {
        let shard = &self.shards[own_shard() % SHARDS_MAX];
        let rows = shard.get_or_init(|| Box::new(std::array::from_fn(|_| Row::default())));
        let row = &rows[opcode.index()];
        row.latency.record(latency);
        // ENOSYS tells the kernel that it need not ask.
        if let Some(errno) = error.filter(|errno| *errno != Errno::ENOSYS) {
            row.failures.record(errno);
        }
        if bytes > 0 {
            row.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Counts a thread that was paired with its caller (see [`Pairing`](crate::serving::Pairing)).
    pub fn count_pair(&self) {
        bump(&self.figures.pairs);
    }

    /// Counts a change of the DAX window, for the transport that has it.
    pub fn count_window(&self, event: WindowEvent) {
        let figures = &self.figures;
        match event {
            WindowEvent::Mappings(mappings) => {
                figures.window_mappings.store(mappings, Ordering::Relaxed);
                let most = &figures.window_mappings_max;
                most.fetch_max(mappings, Ordering::Relaxed);
            }
            WindowEvent::Mapped => bump(&figures.window_maps),
            WindowEvent::Unmapped => bump(&figures.window_unmaps),
            WindowEvent::BadRange => bump(&figures.window_refused_range),
            WindowEvent::Overlap => bump(&figures.window_refused_overlap),
            WindowEvent::Full => bump(&figures.window_refused_full),
            WindowEvent::Cut => bump(&figures.window_refused_cut),
            WindowEvent::ReadOnly => bump(&figures.window_refused_write),
            WindowEvent::MonitorRefused => bump(&figures.window_monitor_refused),
            WindowEvent::MonitorSilent => bump(&figures.window_monitor_silent),
        }
    }

    /// Counts a message that was no valid request, for a transport that has not passed it to a
    /// [`Dispatcher`](crate::Dispatcher).
    pub fn count_malformed(&self) {
        bump(&self.figures.malformed);
    }

    /// Counts a request that is carried out on another thread, because it would sleep.
    pub fn count_deferred(&self) {
        bump(&self.figures.deferred);
    }

    /// All metrics as they are now. A request that is being answered may be counted in part.
    pub fn snapshot(&self) -> Snapshot {
        let operations = Opcode::ALL
            .iter()
            .map(|&opcode| self.operation(opcode))
            .filter(|counts| counts.requests() > 0)
            .collect();
        Snapshot::new(operations, &self.figures)
    }

    fn operation(&self, opcode: Opcode) -> OperationCounts {
        let mut counts = OperationCounts::empty(opcode);
        for rows in self.shards.iter().filter_map(OnceLock::get) {
            let row = &rows[opcode.index()];
            row.failures.add_to(&mut counts);
            counts.bytes += row.bytes.load(Ordering::Relaxed);
            row.latency.add_to(&mut counts.latencies);
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_summed() {
        let metrics = Metrics::default();
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| {
                    for number in 0..100 {
                        let latency = Duration::from_micros(number);
                        let errors = [Errno::EIO, Errno::EPROTO, Errno::ENOSYS];
                        let error = errors.get(number as usize % 10).copied();
                        metrics.record(Opcode::Read, latency, error, 4096);
                    }
                });
            }
        });
        metrics.record(Opcode::Lookup, Duration::from_secs(1), None, 0);
        let snapshot = metrics.snapshot();
        assert_eq!(snapshot.operations().len(), 2);
        let read = snapshot.operation(Opcode::Read).unwrap();
        assert_eq!(
            (read.requests(), read.errors, read.bytes),
            (4000, 800, 4000 * 4096)
        );
        let by_errno: Vec<_> = read.errors_by_errno().collect();
        let expected = [("EIO".to_owned(), 400), ("other".to_owned(), 400)];
        assert_eq!(by_errno, expected, "ENOSYS is no error");
        let median = read.latencies.percentile(50.0);
        assert!((49..=62).contains(&median.as_micros()), "{median:?}");
        assert_eq!(snapshot.operation(Opcode::Getattr), None);
    }
}
