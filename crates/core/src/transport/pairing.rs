//! One caller, one reader, one CPU.
//!
//! A caller that asks one thing after another and the reader that answers never work at the same
//! time. Yet the scheduler sends each, when woken, to a CPU that is idle, so that every question
//! wakes one CPU and every answer another, which on many machines costs several times what the
//! request itself does (in a virtual machine, an idle CPU was given back to the host). On one CPU
//! they take turns for the price of a switch.
//!
//! A reader is *paired* with its caller so: it is the only one that reads; it is bound to the CPU
//! that the caller is on, so that the question finds it there; and it is in the class `SCHED_IDLE`,
//! so that the answer finds the caller there: to the scheduler, a CPU with nothing but such threads
//! on it is idle, and the caller stays instead of being sent to another.
//!
//! Such a reader gives way to everything else on its CPU. So the steward, which is an ordinary
//! thread, looks every 2 ms, and dissolves the pair when the reader got nowhere although there is
//! work, or serves less than was served before; when others call, too; when requests are large, and
//! it is better to copy on one CPU while the caller works on the other; when they sleep. Then readers
//! are as many as they are meant to be again. The next pair is made after a rest, which doubles
//! while pairs fail. Nobody is paired while the steward sleeps.
//!
//! This module decides. Those who look after threads carry out.

use std::time::{Duration, Instant};

/// Requests in one look below which it is not worth it.
const REQUESTS_MIN: u64 = 8;
/// Looks in a row that have to find one caller.
const LOOKS: u32 = 2;
/// One request in so many may be another caller's, and one large.
const EXCEPTIONS: u64 = 8;
/// Busy looks after which what a pair does is compared with what was done before.
const TRIAL_LOOKS: u32 = 8;
const REST_MIN: Duration = Duration::from_millis(8);
const REST_MAX: Duration = Duration::from_secs(4);
/// Who was paired for so long has done well.
const SUCCESS: Duration = Duration::from_secs(1);

/// What was seen of a thread that serves since the look before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Those that a caller waits for. What the kernel does by itself (forgetting, writing back) has
    /// none, and comes in floods.
    pub requests: u64,
    /// How often one came from another caller than the one before.
    pub changes: u64,
    /// How many carried much data, either way.
    pub large: u64,
    /// Somebody sleeps in a request.
    pub sleeping: bool,
}

impl Sample {
    fn one_caller(&self) -> bool {
        // One change is what makes a caller the caller.
        let few = |number: u64| number <= 1 + self.requests / EXCEPTIONS;
        !self.sleeping && few(self.changes) && few(self.large)
    }
}

/// Decides whether a thread that serves, and one caller, should share a CPU: the thread is then bound
/// to the caller's and in the class `SCHED_IDLE`, so that neither wakes another CPU. To be told every
/// 2 ms what was seen.
#[derive(Debug)]
pub struct Pairing {
    good_looks: u32,
    /// Requests in the good looks; while paired, in one of them on average.
    before: u64,
    /// Looks at the pair that found it at work, and the requests in them.
    busy_looks: u32,
    served: u64,
    since: Option<Instant>,
    rests_until: Option<Instant>,
    rest: Duration,
}

impl Pairing {
    #[allow(
        clippy::new_without_default,
        reason = "there is nothing usual about it"
    )]
    /// Nothing was seen yet.
    pub fn new() -> Pairing {
        Pairing {
            good_looks: 0,
            before: 0,
            busy_looks: 0,
            served: 0,
            since: None,
            rests_until: None,
            rest: REST_MIN,
        }
    }

    /// Whether a reader should be paired, of those that are not.
    pub fn should_pair(&mut self, sample: Sample, now: Instant) -> bool {
        if self.rests_until.is_some_and(|until| now < until) {
            return false;
        }
        self.rests_until = None;
        let good = sample.requests >= REQUESTS_MIN && sample.one_caller();
        if !good {
            (self.good_looks, self.before) = (0, 0);
            return false;
        }
        self.good_looks += 1;
        self.before += sample.requests;
        self.good_looks >= LOOKS
    }

    /// A pair was made.
    pub fn paired(&mut self, now: Instant) {
        self.before /= u64::from(self.good_looks.max(1));
        (self.good_looks, self.busy_looks, self.served) = (0, 0, 0);
        self.since = Some(now);
    }

    /// Whether the pair should be dissolved. `stalled` says that the reader has work and has not moved
    /// since the last look.
    pub fn should_unpair(&mut self, sample: Sample, stalled: bool) -> bool {
        if sample.requests > 0 {
            self.busy_looks += 1;
            self.served += sample.requests;
        }
        stalled || !sample.one_caller() || self.is_slow()
    }

    /// Whether the last trial had less than half of the requests there were before. It says nothing
    /// for sure: callers change their ways. But it is what shows that a pair shares its CPU with
    /// somebody who leaves it enough not to stall.
    fn is_slow(&mut self) -> bool {
        if self.busy_looks < TRIAL_LOOKS {
            return false;
        }
        let slow = self.served * 2 < self.before * u64::from(self.busy_looks);
        (self.busy_looks, self.served) = (0, 0);
        slow
    }

    /// The pair was dissolved, because it did not do well or could not be made.
    pub fn failed(&mut self, now: Instant) {
        let lasted = self.since.take().map(|since| now.duration_since(since));
        self.rest = if lasted.is_some_and(|lasted| lasted >= SUCCESS) {
            REST_MIN
        } else {
            (self.rest * 2).min(REST_MAX)
        };
        self.rests_until = Some(now + self.rest);
        (self.good_looks, self.before) = (0, 0);
    }

    /// The pair was dissolved because there was nothing to do.
    pub fn ended(&mut self) {
        self.since = None;
        self.rest = REST_MIN;
        self.before = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: Sample = Sample {
        requests: 40,
        changes: 0,
        large: 0,
        sleeping: false,
    };
    #[test]
    fn one_caller_that_keeps_asking_is_paired() {
        let now = Instant::now();
        let mut pairing = Pairing::new();
        assert!(!pairing.should_pair(BUSY, now));
        assert!(pairing.should_pair(BUSY, now));
        let changes = 1 + BUSY.requests / EXCEPTIONS;
        let mixed = Sample { changes, ..BUSY };
        assert!(pairing.should_pair(mixed, now), "now and then another");
    }

    #[test]
    fn others_are_not() {
        let now = Instant::now();
        let too_many = 2 + BUSY.requests / EXCEPTIONS;
        let others = [
            Sample {
                requests: REQUESTS_MIN - 1,
                ..BUSY
            },
            Sample {
                changes: too_many,
                ..BUSY
            },
            Sample {
                large: too_many,
                ..BUSY
            },
            Sample {
                sleeping: true,
                ..BUSY
            },
        ];
        for other in others {
            let mut pairing = Pairing::new();
            assert!(!pairing.should_pair(BUSY, now));
            assert!(!pairing.should_pair(other, now), "{other:?}");
            assert!(!pairing.should_pair(BUSY, now), "from the start");
        }
    }

    fn paired() -> Pairing {
        let now = Instant::now();
        let mut pairing = Pairing::new();
        while !pairing.should_pair(BUSY, now) {}
        pairing.paired(now);
        pairing
    }

    #[test]
    fn a_pair_lasts_while_it_does_well() {
        let mut pairing = paired();
        for _ in 0..100 {
            assert!(!pairing.should_unpair(BUSY, false));
            assert!(!pairing.should_unpair(Sample::default(), false), "idle");
        }
        assert!(pairing.should_unpair(BUSY, true));
        let others = Sample {
            changes: 20,
            ..BUSY
        };
        assert!(paired().should_unpair(others, false));
    }

    #[test]
    fn a_pair_that_does_less_than_was_done_before_parts() {
        let parts = |requests| {
            let mut pairing = paired();
            let sample = Sample { requests, ..BUSY };
            (0..TRIAL_LOOKS).position(|_| pairing.should_unpair(sample, false))
        };
        assert_eq!(parts(BUSY.requests / 2), None);
        assert_eq!(parts(BUSY.requests / 2 - 1), Some(TRIAL_LOOKS as usize - 1));
    }

    #[test]
    fn the_rest_doubles_while_pairs_fail() {
        let mut now = Instant::now();
        let mut pairing = Pairing::new();
        let mut rest = |pairing: &mut Pairing, lasts: Duration| {
            pairing.paired(now);
            now += lasts;
            pairing.failed(now);
            let until = pairing.rests_until.unwrap();
            assert!(!pairing.should_pair(BUSY, until - Duration::from_millis(1)));
            now = until;
            until
        };
        let short = Duration::from_millis(2);
        rest(&mut pairing, short);
        assert_eq!(pairing.rest, REST_MIN * 2);
        for _ in 0..20 {
            rest(&mut pairing, short);
        }
        assert_eq!(pairing.rest, REST_MAX);
        let until = rest(&mut pairing, SUCCESS);
        assert_eq!(pairing.rest, REST_MIN);
        assert!(!pairing.should_pair(BUSY, until));
        assert!(pairing.should_pair(BUSY, until));
    }
}
