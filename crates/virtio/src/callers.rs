//! Finds the thread of a front end (virtual CPU) that a queue serves.
//!
//! Requests do not say which virtual CPU made them. One that sends a request and waits for its reply runs
//! between the two; so it is the thread with by far the most run time lately.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;
use thrufs::serving::{cpu_in_stat, times_in_schedstat};

/// Most threads of a front end that are sampled.
pub const CALLERS_MAX: usize = 32;

/// Bytes read of a procfs file: more than any line has.
const FILE_BYTES: usize = 1024;

/// A thread of the front end, by open files of procfs, which a confined worker cannot open itself.
#[derive(Debug)]
pub struct Caller {
    /// `stat`, which has its CPU.
    pub stat: File,
    /// `schedstat`, which has its run time.
    pub schedstat: File,
}

impl Caller {
    /// Its run time; `None` when it has ended.
    fn run_time(&self) -> Option<Duration> {
        let times = read(&self.schedstat, times_in_schedstat);
        times.map(|(run, _)| run)
    }

    /// The CPU that it runs on or ran on last.
    fn cpu(&self) -> Option<usize> {
        read(&self.stat, cpu_in_stat)
    }
}

fn read<T>(file: &File, parse: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
    let mut bytes = [0; FILE_BYTES];
    let length = file.read_at(&mut bytes, 0).ok()?;
    parse(&bytes[..length])
}

/// The threads of a front end, with their last sample.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    callers: Vec<Caller>,
    /// Run times at the last sample.
    before: Option<Vec<Duration>>,
}

impl Callers {
    pub(crate) fn new(mut callers: Vec<Caller>) -> Callers {
        callers.truncate(CALLERS_MAX);
        Callers {
            callers,
            before: None,
        }
    }

    /// The one thread that has run since the last sample, if there was one.
    pub(crate) fn the_busy_one(&mut self) -> Busy {
        let times = self.callers.iter().map(Caller::run_time);
        let now: Vec<Duration> = times.map(Option::unwrap_or_default).collect();
        let Some(before) = self.before.replace(now.clone()) else {
            return Busy::NotKnownYet;
        };
        let ran = now.iter().zip(before);
        let ran: Vec<Duration> = ran
            .map(|(now, before)| now.saturating_sub(before))
            .collect();
        busiest(&ran)
    }

    /// Drops the last sample, before a pause.
    pub(crate) fn forget(&mut self) {
        self.before = None;
    }

    pub(crate) fn cpu(&self, number: usize) -> Option<usize> {
        self.callers.get(number)?.cpu()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Busy {
    /// There is no sample to compare with.
    NotKnownYet,
    One(usize),
    /// Several, or none.
    NotOne,
}

/// The thread that has run more than twice as long as any other.
fn busiest(ran: &[Duration]) -> Busy {
    let Some((number, longest)) = ran.iter().enumerate().max_by_key(|(_, ran)| **ran) else {
        return Busy::NotOne;
    };
    let others = ran.iter().enumerate().filter(|(other, _)| *other != number);
    let second = others.map(|(_, ran)| *ran).max().unwrap_or_default();
    if *longest > second * 2 {
        Busy::One(number)
    } else {
        Busy::NotOne
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn me() -> Caller {
        let open = |file| File::open(format!("/proc/thread-self/{file}")).unwrap();
        Caller {
            stat: open("stat"),
            schedstat: open("schedstat"),
        }
    }

    #[test]
    fn the_busy_caller_is_the_only_one_with_much_run_time() {
        let of = |times: &[u64]| {
            let times: Vec<_> = times.iter().map(|ms| Duration::from_millis(*ms)).collect();
            busiest(&times)
        };
        assert_eq!(of(&[1, 5, 2]), Busy::One(1));
        assert_eq!(of(&[3, 5, 2]), Busy::NotOne);
        assert_eq!(of(&[0, 0]), Busy::NotOne);
        assert_eq!(of(&[]), Busy::NotOne);
        assert_eq!(of(&[1]), Busy::One(0));
    }

    #[test]
    fn the_busy_caller_has_run_more_than_twice_as_long_as_any_other() {
        let of = |times: [u64; 3]| busiest(&times.map(Duration::from_millis));
        assert_eq!(of([4, 2, 1]), Busy::NotOne);
        assert_eq!(of([5, 2, 1]), Busy::One(0));
    }

    #[test]
    fn at_most_callers_max_threads_are_sampled() {
        let callers = (0..CALLERS_MAX + 3).map(|_| me()).collect();
        let callers = Callers::new(callers);
        assert!(callers.cpu(CALLERS_MAX - 1).is_some());
        assert_eq!(callers.cpu(CALLERS_MAX), None);
    }

    #[test]
    fn run_time_before_the_first_sample_does_not_count() {
        let mut callers = Callers::new(vec![me()]);
        // Long enough for the scheduler to have counted.
        while callers.callers[0].run_time() < Some(Duration::from_millis(20)) {
            std::hint::spin_loop();
        }
        assert_eq!(callers.the_busy_one(), Busy::NotKnownYet);
        assert!(callers.before.as_ref().is_some_and(|it| !it[0].is_zero()));
        // With a last sample beyond the present, no thread has run.
        let same = callers.before.clone().unwrap();
        callers.before = Some(same.iter().map(|it| *it * 1000).collect());
        assert_eq!(callers.the_busy_one(), Busy::NotOne);
    }

    #[test]
    fn the_running_caller_and_its_cpu_are_found() {
        let asleep = std::thread::spawn(|| {
            let caller = me();
            (caller, std::thread::current())
        });
        let (gone, _) = asleep.join().unwrap();
        let mut callers = Callers::new(vec![gone, me()]);
        assert_eq!(callers.the_busy_one(), Busy::NotKnownYet);
        let start = std::time::Instant::now();
        // The scheduler counts at its ticks.
        while callers.the_busy_one() != Busy::One(1) {
            assert!(start.elapsed() < Duration::from_secs(60), "it runs");
        }
        assert!(callers.cpu(1).is_some());
        assert_eq!(callers.cpu(0), None, "it has ended");
        assert_eq!(callers.cpu(2), None);
        callers.forget();
        assert_eq!(callers.the_busy_one(), Busy::NotKnownYet);
    }
}
