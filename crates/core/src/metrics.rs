//! Counts and latencies per operation, without locks.
//!
//! Threads count in shards of their own (the sixteen-fold is shared by chance, never by design), so
//! that they do not fight over cache lines; a reader adds the shards up. A request costs two looks
//! at the clock and one or two atomic additions to memory that nobody else writes.
//!
//! Latencies are kept as counts in buckets whose width is a quarter of their power of two: a value
//! read from them is at most 25 % above the true one.

mod histogram;
mod snapshot;

pub use histogram::Latencies;
pub use snapshot::{OperationCounts, Snapshot};

use histogram::Histogram;
use snapshot::Figures;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use thrufs_abi::Opcode;

/// Rows of a shard: every opcode below 64 by its number, row 0 for all others.
const ROWS: usize = 64;

/// Most shards there are; threads beyond share.
const SHARDS_MAX: usize = 16;

/// Counts of one operation in one shard.
#[derive(Debug, Default)]
struct Row {
    errors: AtomicU64,
    bytes: AtomicU64,
    latency: Histogram,
}

/// What the threads of one connection count, and the levels of its queues and pools.
#[derive(Debug)]
pub struct Metrics {
    shards: Box<[OnceLock<Box<[Row; ROWS]>>]>,
    pub(crate) figures: Figures,
}

pub(crate) fn bump(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SHARD: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The calling thread's number among those that count.
fn own_shard() -> usize {
    SHARD.with(|shard| {
        shard.get().unwrap_or_else(|| {
            let number = NEXT_SHARD.fetch_add(1, Ordering::Relaxed);
            shard.set(Some(number));
            number
        })
    })
}

fn row_of(opcode: Opcode) -> usize {
    let number = opcode.number() as usize;
    if number < ROWS { number } else { 0 }
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
    /// Counts one request. `bytes` are those of the data it moved, either way.
    pub(crate) fn record(&self, opcode: Opcode, latency: Duration, failed: bool, bytes: u64) {
        let shard = &self.shards[own_shard() % SHARDS_MAX];
        let rows = shard.get_or_init(|| Box::new(std::array::from_fn(|_| Row::default())));
        let row = &rows[row_of(opcode)];
        row.latency.record(latency);
        if failed {
            bump(&row.errors);
        }
        if bytes > 0 {
            row.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Counts a thread that was paired with its caller (see [`Pairing`](crate::serving::Pairing)).
    pub fn count_pair(&self) {
        bump(&self.figures.pairs);
    }

    /// Counts a message of a transport of one's own that was no valid request, before it got to a
    /// [`Dispatcher`](crate::Dispatcher).
    pub fn count_malformed(&self) {
        bump(&self.figures.malformed);
    }

    /// Counts a request that slept on the thread that took it, because no other was to be had.
    pub fn count_blocked_inline(&self) {
        bump(&self.figures.blocked_inline);
    }

    /// Counts a blocking lock that was refused, because too many waited.
    pub fn count_lock_refused(&self) {
        bump(&self.figures.lock_waiters_refused);
    }

    /// Counts a request that is carried out elsewhere, because it would sleep.
    pub fn count_deferred(&self) {
        bump(&self.figures.deferred);
    }

    /// Everything as it is now. Counts of requests that are being answered at this moment may be
    /// there in part.
    pub fn snapshot(&self) -> Snapshot {
        let operations = Opcode::ALL
            .iter()
            .filter(|opcode| row_of(**opcode) != 0)
            .map(|&opcode| self.operation(opcode))
            .filter(|counts| counts.requests() > 0)
            .collect();
        Snapshot::new(operations, &self.figures)
    }

    fn operation(&self, opcode: Opcode) -> OperationCounts {
        let mut counts = OperationCounts::empty(opcode);
        for rows in self.shards.iter().filter_map(OnceLock::get) {
            let row = &rows[row_of(opcode)];
            counts.errors += row.errors.load(Ordering::Relaxed);
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
    fn threads_add_up() {
        let metrics = Metrics::default();
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| {
                    for number in 0..100 {
                        let latency = Duration::from_micros(number);
                        metrics.record(Opcode::Read, latency, number % 10 == 0, 4096);
                    }
                });
            }
        });
        metrics.record(Opcode::Lookup, Duration::from_secs(1), false, 0);
        let snapshot = metrics.snapshot();
        assert_eq!(snapshot.operations().len(), 2);
        let read = snapshot.operation(Opcode::Read).unwrap();
        assert_eq!(
            (read.requests(), read.errors, read.bytes),
            (4000, 400, 4000 * 4096)
        );
        let median = read.latencies.percentile(50.0);
        assert!((49..=62).contains(&median.as_micros()), "{median:?}");
        assert_eq!(snapshot.operation(Opcode::Getattr), None);
    }
}
