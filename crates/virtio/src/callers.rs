//! The threads of a front end, of which one may be whom a queue's thread answers.
//!
//! Requests do not say which virtual CPU made them. But who asks one thing after another, and waits for
//! each, runs about as often as it is answered; so it is the thread that has run the most lately.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;
use thrufs::serving::{cpu_in_stat, times_in_schedstat};

/// Most threads of a front end that are looked at.
pub const CALLERS_MAX: usize = 32;

/// What procfs says of a file of so many bytes at most.
const FILE_BYTES: usize = 1024;

/// A thread of the front end, by its files in procfs, which must be open: who serves may not see
/// procfs.
#[derive(Debug)]
pub struct Caller {
    /// `stat`, which tells its CPU.
    pub stat: File,
    /// `schedstat`, which tells for how long it has run.
    pub schedstat: File,
}

impl Caller {
    /// For how long it has run; `None` when it has ended.
    fn run_time(&self) -> Option<Duration> {
        let mut bytes = [0; FILE_BYTES];
        let length = self.schedstat.read_at(&mut bytes, 0).ok()?;
        times_in_schedstat(&bytes[..length]).map(|(run, _)| run)
    }

    /// The CPU that it runs on, or ran on last.
    fn cpu(&self) -> Option<usize> {
        let mut bytes = [0; FILE_BYTES];
        let length = self.stat.read_at(&mut bytes, 0).ok()?;
        cpu_in_stat(&bytes[..length])
    }
}

/// All that are known of a front end, and what was seen of them.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    callers: Vec<Caller>,
    /// For how long each had run, when that was asked last.
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

    /// The number of the one that has run since it was asked last, if it was one alone. Nobody when
    /// that was never, or is [forgotten](Self::forget).
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

    /// Forgets what was seen: nobody will ask for a while.
    pub(crate) fn forget(&mut self) {
        self.before = None;
    }

    /// The CPU of one of them.
    pub(crate) fn cpu(&self, number: usize) -> Option<usize> {
        self.callers.get(number)?.cpu()
    }
}

/// Whether it is one that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Busy {
    /// To be asked again in a moment.
    NotKnownYet,
    /// This one.
    One(usize),
    /// Several, or nobody.
    NotOne,
}

/// The one that has run for more than twice as long as any other.
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

    /// The calling thread, as procfs shows it.
    pub(crate) fn me() -> Caller {
        let open = |file| File::open(format!("/proc/thread-self/{file}")).unwrap();
        Caller {
            stat: open("stat"),
            schedstat: open("schedstat"),
        }
    }

    #[test]
    fn one_that_runs_more_than_all_others() {
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
    fn it_has_run_more_than_twice_as_long_as_any_other() {
        let of = |times: [u64; 3]| busiest(&times.map(Duration::from_millis));
        assert_eq!(of([4, 2, 1]), Busy::NotOne);
        assert_eq!(of([5, 2, 1]), Busy::One(0));
    }

    #[test]
    fn no_more_are_looked_at_than_there_is_time_for() {
        let callers = (0..CALLERS_MAX + 3).map(|_| me()).collect();
        let callers = Callers::new(callers);
        assert!(callers.cpu(CALLERS_MAX - 1).is_some());
        assert_eq!(callers.cpu(CALLERS_MAX), None);
    }

    #[test]
    fn what_ran_before_it_was_asked_about_does_not_count() {
        let mut callers = Callers::new(vec![me()]);
        // Long enough for the scheduler to have counted.
        while callers.callers[0].run_time() < Some(Duration::from_millis(20)) {
            std::hint::spin_loop();
        }
        assert_eq!(callers.the_busy_one(), Busy::NotKnownYet);
        assert!(callers.before.as_ref().is_some_and(|it| !it[0].is_zero()));
        // Nobody has run since: the time of before is none.
        let same = callers.before.clone().unwrap();
        callers.before = Some(same.iter().map(|it| *it * 1000).collect());
        assert_eq!(callers.the_busy_one(), Busy::NotOne);
    }

    #[test]
    fn who_runs_is_found_and_where() {
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
