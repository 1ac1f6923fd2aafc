//! Buckets of latencies: four to each power of two of nanoseconds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Two bits behind the leading one select the bucket within its power of two.
const SUB_BITS: u32 = 2;
/// The first power of two with buckets of its own; lower values fall into the first bucket.
const FIRST_POWER: u32 = 8;
/// The last one: 2^36 ns are 69 s; higher values fall into the last bucket.
const LAST_POWER: u32 = 36;
const BUCKETS: usize = (((LAST_POWER - FIRST_POWER + 1) << SUB_BITS) + 1) as usize;

fn bucket_of(nanoseconds: u64) -> usize {
    if nanoseconds >> FIRST_POWER == 0 {
        return 0;
    }
    let power = nanoseconds.ilog2();
    if power > LAST_POWER {
        return BUCKETS - 1;
    }
    let sub = (nanoseconds >> (power - SUB_BITS)) & ((1 << SUB_BITS) - 1);
    1 + (((power - FIRST_POWER) << SUB_BITS) as usize) + sub as usize
}

/// The upper end of a bucket in nanoseconds, exclusive.
fn bucket_end(bucket: usize) -> u64 {
    if bucket == 0 {
        return 1 << FIRST_POWER;
    }
    let bucket = bucket as u64 - 1;
    let power = (bucket >> SUB_BITS) + u64::from(FIRST_POWER);
    let sub = bucket & ((1 << SUB_BITS) - 1);
    (1 << power) + ((sub + 1) << (power - u64::from(SUB_BITS)))
}

#[derive(Debug)]
pub(super) struct Histogram([AtomicU64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram([const { AtomicU64::new(0) }; BUCKETS])
    }
}

impl Histogram {
    pub(super) fn record(&self, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.0[bucket_of(nanoseconds)].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_to(&self, latencies: &mut Latencies) {
        for (sum, count) in latencies.0.iter_mut().zip(&self.0) {
            *sum += count.load(Ordering::Relaxed);
        }
    }
}

/// How long requests took, as counts in buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latencies([u64; BUCKETS]);

impl Latencies {
    pub(super) const EMPTY: Latencies = Latencies([0; BUCKETS]);

    /// How many requests there were.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The time within which this percentage (0 to 100) of the requests ended, rounded up by at most 25 %;
    /// zero without requests.
    pub fn percentile(&self, percentage: f64) -> Duration {
        let count = self.count();
        let rank = ((percentage / 100.0 * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        for (bucket, requests) in self.0.iter().enumerate() {
            seen += requests;
            if seen >= rank {
                return Duration::from_nanos(bucket_end(bucket));
            }
        }
        Duration::ZERO
    }

    /// Upper ends and counts of the buckets that are not empty, in order: for exporters.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let filled = self.0.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(bucket, count)| (Duration::from_nanos(bucket_end(bucket)), *count))
    }

    pub(super) fn since(&self, earlier: &Latencies) -> Latencies {
        let mut difference = self.clone();
        for (now, before) in difference.0.iter_mut().zip(&earlier.0) {
            *now = now.saturating_sub(*before);
        }
        difference
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_at_most_25_percent_below_its_bucket_s_end() {
        let mut last = 0;
        for step in 0..4000_u64 {
            let value = (1.01_f64.powi(step as i32) * 256.0) as u64;
            if value > 1 << LAST_POWER {
                break;
            }
            let bucket = bucket_of(value);
            assert!(bucket >= last, "buckets grow with their values");
            last = bucket;
            let end = bucket_end(bucket);
            assert!(value < end && end <= value + value / 4 + 1, "{value} {end}");
        }
        assert!(last > 100);
    }

    #[test]
    fn extremes_have_a_bucket() {
        assert_eq!(bucket_of(0), 0);
        assert_eq!(bucket_of(255), 0);
        assert_eq!(bucket_of(256), 1);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!(bucket_of((2 << LAST_POWER) - 1), BUCKETS - 1);
    }

    /// The end of the bucket of the request with that rank, counted from 1 and rounded up.
    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let end =
            |microseconds: u64| Duration::from_nanos(bucket_end(bucket_of(microseconds * 1000)));
        for (count, percentage, rank) in [
            (1, 0.0, 1),
            (1, 50.0, 1),
            (1, 100.0, 1),
            (2, 50.0, 1),
            (2, 50.1, 2),
            (3, 50.0, 2),
            (4, 50.0, 2),
            (4, 99.0, 4),
            (10, 10.0, 1),
            (10, 11.0, 2),
            (10, 90.0, 9),
            (10, 99.0, 10),
            (10, 100.0, 10),
        ] {
            let (histogram, mut latencies) = (Histogram::default(), Latencies::EMPTY);
            // Each in a bucket of its own.
            for number in 0..count {
                histogram.record(Duration::from_micros(1 << number));
            }
            histogram.add_to(&mut latencies);
            let found = latencies.percentile(percentage);
            assert_eq!(found, end(1 << (rank - 1)), "{percentage} % of {count}");
        }
    }

    #[test]
    fn percentiles_of_nothing_are_zero() {
        assert_eq!(Latencies::EMPTY.percentile(99.0), Duration::ZERO);
    }
}
