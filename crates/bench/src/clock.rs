//! The clock of a measurement: says when an operation may begin, counts, and stops the loop when its time
//! is over.

use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::time::Duration;

/// How many operations begin between two looks at the time: looking costs some 25 ns.
const LOOK_EVERY: u64 = 16;

/// Counts the operations of one timed loop. It runs from the first operation on: what a loop needs before (names,
/// buffers, an open file) is not in its time.
pub struct Clock {
    /// In nanoseconds.
    limit: u64,
    start: u64,
    end: u64,
    deadline: u64,
    begun: u64,
    /// When the operation before began, and how long each has taken: only where that is the question.
    each: Option<(u64, Vec<u64>)>,
}

impl Clock {
    /// For a loop that takes at most `limit`.
    pub fn start(limit: Duration) -> Clock {
        Clock {
            limit: u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX),
            start: 0,
            end: 0,
            deadline: 0,
            begun: 0,
            each: None,
        }
    }

    /// The same, and measures every operation by itself.
    pub fn start_for_each(limit: Duration) -> Clock {
        let mut clock = Clock::start(limit);
        clock.each = Some((0, Vec::new()));
        clock
    }

    /// Whether another operation is to begin. To be asked right before each; the one before has ended.
    pub fn more(&mut self) -> bool {
        if self.start == 0 {
            self.begin();
        } else if self.is_over() {
            return false;
        } else if self.each.is_some() || self.begun.is_multiple_of(LOOK_EVERY) {
            let time = now();
            self.note(time);
            if time >= self.deadline {
                self.end = time;
                return false;
            }
        }
        self.begun += 1;
        true
    }

    /// Does an operation with each of `things`, as long as there is time.
    ///
    /// # Errors
    ///
    /// Of the first operation that fails.
    pub fn through<T>(
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

    fn begin(&mut self) {
        self.start = now();
        self.deadline = self.start.saturating_add(self.limit);
        if let Some((before, _)) = &mut self.each {
            *before = self.start;
        }
    }

    /// To be called when what was begun last was none after all: there was nothing left to do.
    pub fn take_back(&mut self) {
        if !self.is_over() {
            self.begun = self.begun.saturating_sub(1);
        }
    }

    /// Whether the loop has ended: nothing more is counted.
    pub fn is_over(&self) -> bool {
        self.end != 0
    }

    /// To be called when what must follow the operations (a write to disk) has ended: it is part of the time,
    /// even when that is over.
    pub fn prolong(&mut self) {
        if self.is_over() {
            self.end = now();
        }
    }

    /// To be called when the loop has ended by itself: there was nothing left to do.
    pub fn stop(&mut self) {
        if self.start == 0 {
            self.begin();
        }
        if !self.is_over() {
            let time = now();
            self.note(time);
            self.end = time;
        }
    }

    fn note(&mut self, time: u64) {
        if let Some((before, each)) = &mut self.each {
            if self.begun > each.len() as u64 {
                each.push(time - *before);
            }
            *before = time;
        }
    }

    /// Operations that were done.
    pub fn operations(&self) -> u64 {
        self.begun
    }

    /// From when to when, in nanoseconds of the monotonic clock, which all processes share.
    pub fn span(&self) -> (u64, u64) {
        (self.start, self.end)
    }

    /// Nanoseconds of each operation, in their order; of none, where that was not the question.
    pub fn each(self) -> Vec<u64> {
        self.each.map(|(_, each)| each).unwrap_or_default()
    }
}

/// Nanoseconds of the monotonic clock.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::Clock;
    use std::time::Duration;

    #[test]
    fn a_loop_ends_when_its_time_is_over() {
        let mut clock = Clock::start(Duration::from_millis(5));
        while clock.more() {
            std::hint::spin_loop();
        }
        clock.stop();
        let (start, end) = clock.span();
        assert!(end - start >= 5_000_000);
        assert!(clock.operations() > 0);
    }

    #[test]
    fn the_clock_starts_with_the_first_operation_and_prolong_extends_it() {
        let mut clock = Clock::start(Duration::ZERO);
        let before = super::now();
        assert!(clock.more());
        assert!(clock.span().0 >= before);
        while clock.more() {}
        let end = clock.span().1;
        clock.prolong();
        clock.stop();
        assert!(clock.span().1 > end);
        assert!(!clock.more());
    }

    #[test]
    fn every_operation_has_a_time_of_its_own() {
        let mut clock = Clock::start_for_each(Duration::from_secs(600));
        for pause in [0, 20, 0] {
            assert!(clock.more());
            std::thread::sleep(Duration::from_millis(pause));
        }
        clock.stop();
        assert_eq!(clock.operations(), 3);
        let (start, end) = clock.span();
        let each = clock.each();
        assert_eq!(each.len(), 3);
        assert!(each[1] >= 20_000_000);
        assert!(each.iter().sum::<u64>() <= end - start);
    }
}
