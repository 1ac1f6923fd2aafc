//! Metrics at one moment, and as a table.

use super::Latencies;
use crate::errno::Errno;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use thrufs_abi::Opcode;

/// The error numbers that are counted one by one.
pub(super) const ERRNOS: [Errno; 15] = [
    Errno::ENOENT,
    Errno::EACCES,
    Errno::EPERM,
    Errno::EEXIST,
    Errno::ENODATA,
    Errno::EIO,
    Errno::EAGAIN,
    Errno::EINTR,
    Errno::EINVAL,
    Errno::ESTALE,
    Errno::ENOSPC,
    Errno::ENFILE,
    Errno::EROFS,
    Errno::ENOTEMPTY,
    Errno::EOPNOTSUPP,
];

/// Counts of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationCounts {
    /// The operation.
    pub opcode: Opcode,
    /// Requests that failed. `ENOSYS`, by which the kernel learns what it need not ask, does not count.
    pub errors: u64,
    /// Of [`ERRNOS`], then of all others.
    pub(super) by_errno: [u64; ERRNOS.len() + 1],
    /// Bytes of data that were read or written.
    pub bytes: u64,
    /// Time in the server, from the read of the request to its reply.
    pub latencies: Latencies,
}

impl OperationCounts {
    pub(super) fn empty(opcode: Opcode) -> OperationCounts {
        OperationCounts {
            opcode,
            errors: 0,
            by_errno: [0; ERRNOS.len() + 1],
            bytes: 0,
            latencies: Latencies::EMPTY,
        }
    }

    /// Requests, failed ones included.
    pub fn requests(&self) -> u64 {
        self.latencies.count()
    }

    /// Names and counts of the error numbers that occurred; rare ones are counted together, as `other`.
    pub fn errors_by_errno(&self) -> impl Iterator<Item = (String, u64)> {
        let names = ERRNOS.iter().map(|errno| format!("{errno:?}"));
        let names = names.chain(["other".to_owned()]);
        names.zip(self.by_errno).filter(|(_, count)| *count > 0)
    }
}

macro_rules! figures {
    ($($(#[$doc:meta])* $name:ident: $label:literal,)*) => {
        /// Metrics without an operation: events that are rare enough for one counter each, and current levels.
        #[derive(Debug, Default)]
        pub(crate) struct Figures {
            $(pub(crate) $name: AtomicU64,)*
        }

        /// Metrics at one moment. Its `Display` is a table.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Snapshot {
            operations: Vec<OperationCounts>,
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Snapshot {
            pub(super) fn new(operations: Vec<OperationCounts>, figures: &Figures) -> Snapshot {
                Snapshot {
                    operations,
                    $($name: figures.$name.load(Ordering::Relaxed),)*
                }
            }

            /// All metrics without an operation, by name.
            pub fn figures(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($label, self.$name),)*].into_iter()
            }
        }
    };
}

figures! {
    /// Threads that read requests from `/dev/fuse`, now.
    readers: "readers",
    /// Threads that take requests from rings, now.
    ring_threads: "ring threads",
    /// Threads that carry out requests that sleep, now.
    blocked: "blocked",
    /// Threads that wait for a lock, now.
    lock_waiters: "waiting for locks",
    /// Requests that are answered later, now.
    late: "answered later",
    /// Requests that the file system dropped instead of answering them later.
    late_dropped: "dropped unanswered",
    /// Requests that failed with EAGAIN, because too many were to be answered later.
    late_refused: "late refused",
    /// Standby threads, now.
    standby: "standing by",
    /// Notifications that wait to be sent, now.
    notifications_queued: "notifications queued",
    /// Messages that were no valid request.
    malformed: "malformed requests",
    /// Requests with an unknown operation.
    unknown: "unknown requests",
    /// Requests that left the reading thread because they would sleep.
    deferred: "deferred",
    /// Requests that slept on a reading thread, because no other thread was available.
    blocked_inline: "slept on a reader",
    /// Readers that were stuck in a request and replaced.
    displaced: "readers replaced",
    /// Pairings of a reader with its only caller.
    pairs: "readers paired",
    /// Blocking locks that were refused with ENOLCK, because too many were waiting.
    lock_waiters_refused: "locks refused",
    /// Panics caught in the file system.
    panics: "panics",
    /// Replies that the kernel did not take.
    replies_refused: "replies not taken",
    /// Notifications that the kernel took, or that found nothing to do.
    notifications_sent: "notifications sent",
    /// Notifications that the kernel refused.
    notifications_failed: "notifications failed",
    /// Notifications that were not queued, because the queue was full.
    notifications_refused: "notifications not queued",
    /// Interrupts that arrived.
    interrupts: "interrupts",
    /// Mappings in the DAX window, now.
    window_mappings: "window mappings",
    /// The most mappings in the DAX window at once.
    window_mappings_max: "window mappings at most",
    /// Mappings that were made in the DAX window.
    window_maps: "window maps",
    /// Mappings that the guest has removed from the DAX window.
    window_unmaps: "window unmaps",
    /// Requests for the DAX window that were refused: a range that is not aligned, empty or outside.
    window_refused_range: "window refused range",
    /// The same: another mapping was in the way.
    window_refused_overlap: "window refused overlap",
    /// The same: there were as many mappings as ranges of 2 MiB.
    window_refused_full: "window refused full",
    /// The same: a range to unmap cut a mapping.
    window_refused_cut: "window refused cut",
    /// The same: a mapping for writing of what may only be read.
    window_refused_write: "window refused write",
    /// Requests for the DAX window that the machine monitor has refused.
    window_monitor_refused: "window monitor refused",
    /// Requests for the DAX window that the machine monitor has not answered.
    window_monitor_silent: "window monitor silent",
}

impl Snapshot {
    /// The operations that occurred, in the order of their numbers.
    pub fn operations(&self) -> &[OperationCounts] {
        &self.operations
    }

    /// The counts of one operation, if it occurred.
    pub fn operation(&self, opcode: Opcode) -> Option<&OperationCounts> {
        self.operations
            .iter()
            .find(|counts| counts.opcode == opcode)
    }

    /// The sums over all operations.
    pub fn requests(&self) -> u64 {
        self.operations.iter().map(OperationCounts::requests).sum()
    }

    /// The operations since `earlier`, a snapshot of the same connection; levels are as now.
    #[must_use]
    pub fn since(&self, earlier: &Snapshot) -> Snapshot {
        let mut difference = self.clone();
        for counts in &mut difference.operations {
            if let Some(before) = earlier.operation(counts.opcode) {
                counts.errors = counts.errors.saturating_sub(before.errors);
                for (now, before) in counts.by_errno.iter_mut().zip(before.by_errno) {
                    *now = now.saturating_sub(before);
                }
                counts.bytes = counts.bytes.saturating_sub(before.bytes);
                counts.latencies = counts.latencies.since(&before.latencies);
            }
        }
        difference.operations.retain(|counts| counts.requests() > 0);
        difference
    }
}

/// A duration in three digits and a unit.
struct Short(Duration);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let microseconds = self.0.as_secs_f64() * 1e6;
        let (value, unit) = match microseconds {
            value if value >= 1e6 => (value / 1e6, "s"),
            value if value >= 1e3 => (value / 1e3, "ms"),
            value => (value, "us"),
        };
        let decimals = if value < 10.0 { 1 } else { 0 };
        f.pad(&format!("{value:.decimals$} {unit}"))
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<20}{:>12}{:>10}{:>16}{:>9}{:>9}{:>9}{:>9}",
            "operation", "requests", "errors", "bytes", "p50", "p90", "p99", "max"
        )?;
        for counts in &self.operations {
            let time = |percentage| Short(counts.latencies.percentile(percentage));
            writeln!(
                f,
                "{:<20}{:>12}{:>10}{:>16}{:>9}{:>9}{:>9}{:>9}",
                counts.opcode.name(),
                counts.requests(),
                counts.errors,
                counts.bytes,
                time(50.0),
                time(90.0),
                time(99.0),
                time(100.0),
            )?;
        }
        for (name, value) in self.figures().filter(|(_, value)| *value > 0) {
            writeln!(f, "{name:<24}{value:>8}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Metrics, bump};
    use super::*;

    #[test]
    fn the_table_has_a_line_for_each_operation_and_each_figure_above_zero() {
        let metrics = Metrics::default();
        metrics.record(Opcode::Write, Duration::from_micros(3), None, 512);
        metrics.record(Opcode::Write, Duration::from_millis(3), Some(Errno::EIO), 0);
        bump(&metrics.figures.malformed);
        metrics.figures.readers.store(2, Ordering::Relaxed);
        let text = metrics.snapshot().to_string();
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines[1][..4], ["WRITE", "2", "1", "512"]);
        assert!(lines[1][4].starts_with("3."), "{text}");
        assert_eq!(lines[2], ["readers", "2"]);
        assert_eq!(lines[3], ["malformed", "requests", "1"]);
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn a_difference_has_the_counts_between_two_snapshots() {
        let metrics = Metrics::default();
        metrics.record(Opcode::Write, Duration::from_micros(3), None, 512);
        let before = metrics.snapshot();
        assert_eq!(metrics.snapshot().since(&before).requests(), 0);
        metrics.record(Opcode::Write, Duration::from_micros(3), None, 100);
        metrics.record(Opcode::Read, Duration::from_micros(3), Some(Errno::EIO), 0);
        let since = metrics.snapshot().since(&before);
        assert_eq!(since.operation(Opcode::Write).unwrap().bytes, 100);
        let read = since.operation(Opcode::Read).unwrap();
        assert_eq!(read.errors, 1);
        metrics.record(Opcode::Read, Duration::ZERO, Some(Errno::EIO), 0);
        let next = metrics.snapshot().since(&since);
        let next = next.operation(Opcode::Read).unwrap();
        let by_errno: Vec<_> = next.errors_by_errno().collect();
        assert_eq!((next.errors, by_errno), (1, vec![("EIO".to_owned(), 1)]));
    }
}
