//! How much a process may log: a guest decides what its worker logs, by mounting again and again for instance.

use std::time::{Duration, Instant};

/// At once.
const BURST_BYTES: u64 = 256 << 10;

/// In the long run: 22 MB a day.
const BYTES_PER_SECOND: u64 = 256;

/// The size of a pipe, so that lines are relayed whole.
pub(super) const PIECE_BYTES_MAX: usize = 64 << 10;

/// Once all is used up, nothing is logged until so much is available.
const RESUMED_BYTES: u64 = PIECE_BYTES_MAX as u64;

#[derive(Debug)]
pub(super) struct LogRate {
    available: u64,
    /// Of `available`.
    at: Instant,
    /// Lines that were left out since the last that was not.
    omitted: u64,
}

impl LogRate {
    pub(super) fn new(now: Instant) -> LogRate {
        LogRate {
            available: BURST_BYTES,
            at: now,
            omitted: 0,
        }
    }

    /// Whether to log these lines, and how many were left out before them. `None` leaves them out.
    pub(super) fn admit(&mut self, lines: &[u8], now: Instant) -> Option<u64> {
        let passed = now.duration_since(self.at);
        let gained = passed.as_secs() * BYTES_PER_SECOND;
        self.at += Duration::from_secs(passed.as_secs());
        self.available = BURST_BYTES.min(self.available + gained);
        let needed = match self.omitted {
            0 => lines.len() as u64,
            _ => RESUMED_BYTES.max(lines.len() as u64),
        };
        if needed > self.available {
            self.omitted += lines.iter().filter(|byte| **byte == b'\n').count() as u64;
            // A part of a line, too.
            self.omitted = self.omitted.max(1);
            return None;
        }
        self.available -= lines.len() as u64;
        Some(self.take_omitted())
    }

    /// As [`admit`](Self::admit), if `all` does as well: one of several processes with a limit together.
    pub(super) fn admit_of(
        &mut self,
        all: &mut LogRate,
        lines: &[u8],
        now: Instant,
    ) -> Option<u64> {
        let omitted = self.admit(lines, now)?;
        let more = all.admit(lines, now);
        if more.is_none() {
            all.omitted += omitted;
        }
        Some(omitted + more?)
    }

    pub(super) fn take_omitted(&mut self) -> u64 {
        std::mem::take(&mut self.omitted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_exceeds_the_rate_is_left_out_and_counted() {
        let begin = Instant::now();
        let mut rate = LogRate::new(begin);
        let lines = [b'\n'; 1024];
        let admitted = (0..1000).filter(|_| rate.admit(&lines, begin) == Some(0));
        assert_eq!(admitted.count() as u64, BURST_BYTES / 1024);
        let omitted = 1000 * 1024 - BURST_BYTES;
        // Not one line each time that there is space for one.
        let soon = begin + Duration::from_secs(RESUMED_BYTES / BYTES_PER_SECOND - 1);
        assert_eq!(rate.admit(b"\n", soon), None);
        let later = soon + Duration::from_secs(1);
        assert_eq!(rate.admit(&lines, later), Some(omitted + 1));
        assert_eq!(rate.admit(&lines, later), Some(0));
        let day = later + Duration::from_hours(24);
        let admitted = (0..1000).filter(|_| rate.admit(&lines, day).is_some());
        assert_eq!(admitted.count() as u64, BURST_BYTES / 1024);
    }

    #[test]
    fn processes_have_a_limit_together() {
        let now = Instant::now();
        let mut all = LogRate::new(now);
        let lines = [b'\n'; 1024];
        let processes = (0..100).map(|_| LogRate::new(now));
        let admitted = processes.flat_map(|mut one| {
            let mut admit = || one.admit_of(&mut all, &lines, now);
            [admit(), admit(), admit(), admit()]
        });
        let admitted = admitted.filter(|it| *it == Some(0)).count() as u64;
        assert_eq!(admitted, BURST_BYTES / 1024);
        assert_eq!(all.take_omitted(), (400 - admitted) * 1024);
    }
}
