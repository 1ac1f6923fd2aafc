//! The clock of a measurement: says when an operation may begin, counts, and stops the loop when its time
//! is over.

use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::time::Duration;

/// How many operations begin between two looks at the time: looking costs some 25 ns.
const LOOK_EVERY: u64 = 16;

/// Counts the operations of one timed loop. It runs from the first operation on: what a loop needs before (names,
/// buffers, an open file) is not in its time. Times are nanoseconds of the monotonic clock, which all processes share.
pub(crate) struct Clock {
    limit: u64,
    start: u64,
    end: u64,
    begun: u64,
}

impl Clock {
    /// For a loop that takes at most `limit`.
    pub(crate) fn start(limit: Duration) -> Clock {
        Clock {
            limit: u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX),
            start: 0,
            end: 0,
            begun: 0,
        }
    }

    /// Whether another operation is to begin. To be asked right before each; the one before has ended.
    pub(crate) fn more(&mut self) -> bool {
        if self.start == 0 {
            self.start = now();
        } else if self.is_over() {
            return false;
        } else if self.begun.is_multiple_of(LOOK_EVERY) {
            let time = now();
            if time - self.start >= self.limit {
                self.end = time;
                return false;
            }
        }
        self.begun += 1;
        true
    }

    /// Does an operation with each of `things`, as long as there is time.
    pub(crate) fn through<T>(
        &mut self,
        things: impl IntoIterator<Item = T>,
        mut operation: impl FnMut(T) -> io::Result<()>,
    ) -> io::Result<()> {
        for thing in things {
            if !self.more() {
                break;
            }
            operation(thing)?;
        }
        Ok(())
    }

    /// What was begun last was none after all: there was nothing left to do.
    pub(crate) fn take_back(&mut self) {
        if !self.is_over() {
            self.begun = self.begun.saturating_sub(1);
        }
    }

    /// Whether the loop has ended: nothing more is counted.
    pub(crate) fn is_over(&self) -> bool {
        self.end != 0
    }

    /// What must follow the operations (a write to disk) has ended: it is part of the time, even when that is over.
    pub(crate) fn prolong(&mut self) {
        if self.is_over() {
            self.end = now();
        }
    }

    /// The loop has ended: how many operations there were, from when to when.
    pub(crate) fn stop(self) -> (u64, u64, u64) {
        let end = if self.is_over() { self.end } else { now() };
        (self.begun, self.start, end)
    }
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::Clock;
    use std::time::Duration;

    #[test]
    fn a_loop_ends_when_its_time_is_over_and_can_be_prolonged() {
        let mut clock = Clock::start(Duration::from_millis(5));
        while clock.more() {
            std::hint::spin_loop();
        }
        let end = clock.end;
        clock.prolong();
        assert!(!clock.more());
        let (operations, start, prolonged) = clock.stop();
        assert!(operations > 0 && end - start >= 5_000_000 && prolonged > end);
    }
}
