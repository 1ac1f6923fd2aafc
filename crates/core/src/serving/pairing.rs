//! Pairing: one caller, one reader, one CPU.
//!
//! A caller that sends one request after another and the reader that answers never work at the same time.
//! Yet the scheduler wakes each on an idle CPU, so every request wakes one CPU and every reply another.
//! On many machines that costs several times what the request does (in a virtual machine, an idle CPU
//! was given back to the host). On one CPU they take turns for the price of a switch.
//!
//! A *paired* reader is the only one that reads; it is bound to its caller's CPU; and it is in the class
//! `SCHED_IDLE`, because a CPU that runs nothing else counts as idle, so that the scheduler leaves the
//! caller there.
//!
//! Such a reader gives way to every other thread of its CPU. So the stall monitor, an ordinary thread,
//! takes a sample every 2 ms. It dissolves the pair when the reader has work and made no progress, or
//! serves less than before; when there are other callers; when requests are large (copying on one CPU
//! while the caller works on another is faster); and when requests sleep. The other readers then return.
//! The next pair is made after a rest, which doubles while pairs fail. While the monitor sleeps, there is
//! no pair.
//!
//! This module decides; the stall monitors carry out.

use std::time::{Duration, Instant};

/// A sample with fewer requests is not worth a pair, nor a sign of one that does well.
const REQUESTS_MIN: u64 = 8;
/// So many samples in a row have to show one caller.
const LOOKS: u32 = 2;
/// One request in so many may be another caller's, and one large.
const EXCEPTIONS: u64 = 8;
/// Busy samples after which a pair is compared with the time before it.
const TRIAL_LOOKS: u32 = 8;
const REST_MIN: Duration = Duration::from_millis(8);
const REST_MAX: Duration = Duration::from_secs(4);
/// A pair that lasted so long did well.
const SUCCESS: Duration = Duration::from_secs(1);

/// What a serving thread did since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Requests with a caller. What the kernel does by itself (FORGET, write-back) has none, and arrives in
    /// floods.
    pub requests: u64,
    /// Requests with another caller than the request before.
    pub changes: u64,
    /// Requests with much data, in either direction.
    pub large: u64,
    /// A thread sleeps in a request.
    pub sleeping: bool,
}

impl Sample {
    fn one_caller(&self) -> bool {
        // The first request of a caller is a change.
        let few = |number: u64| number <= 1 + self.requests / EXCEPTIONS;
        !self.sleeping && few(self.changes) && few(self.large)
    }
}

/// Decides whether a serving thread and its only caller should share a CPU: the thread is then bound to
/// the caller's CPU and in the class `SCHED_IDLE`. Takes a sample every 2 ms.
#[derive(Debug)]
pub struct Pairing {
    good_looks: u32,
    /// Requests in the good samples; while paired, their average.
    before: u64,
    /// Samples with requests since the pair was made or last compared, and the requests in them.
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
    /// A thread that is not paired.
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

    /// Whether a pair should be made.
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

    /// Whether the pair should be dissolved. `stalled`: the reader had work and did not get to it. One that has
    /// answered all the same waited for its own caller, or for another reader of that (the RELEASE of one file,
    /// which nobody waits for, and the OPEN of the next).
    pub fn should_unpair(&mut self, sample: Sample, stalled: bool) -> bool {
        if sample.requests > 0 {
            self.busy_looks += 1;
            self.served += sample.requests;
        }
        let stalled = stalled && sample.requests < REQUESTS_MIN;
        stalled || !sample.one_caller() || self.is_slow()
    }

    /// Whether the last trial had less than half of the requests of the time before. Callers change, so it
    /// is no proof; but it alone shows a competing thread that leaves the pair enough CPU time not to stall.
    fn is_slow(&mut self) -> bool {
        if self.busy_looks < TRIAL_LOOKS {
            return false;
        }
        let slow = self.served * 2 < self.before * u64::from(self.busy_looks);
        (self.busy_looks, self.served) = (0, 0);
        slow
    }

    /// The pair was dissolved because it did not do well, or could not be made.
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

    /// The pair was dissolved because there were no requests.
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
    fn one_caller_with_many_requests_is_paired() {
        let now = Instant::now();
        let mut pairing = Pairing::new();
        assert!(!pairing.should_pair(BUSY, now));
        assert!(pairing.should_pair(BUSY, now));
        let changes = 1 + BUSY.requests / EXCEPTIONS;
        let mixed = Sample { changes, ..BUSY };
        assert!(pairing.should_pair(mixed, now), "now and then another");
    }

    #[test]
    fn few_requests_and_several_callers_are_not_paired() {
        let now = Instant::now();
        let too_many = 2 + BUSY.requests / EXCEPTIONS;
        let (requests, sleeping) = (REQUESTS_MIN - 1, true);
        let (changes, large) = (too_many, too_many);
        let others = [
            Sample { requests, ..BUSY },
            Sample { changes, ..BUSY },
            Sample { large, ..BUSY },
            Sample { sleeping, ..BUSY },
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
        assert!(!pairing.should_unpair(BUSY, true), "it is answered");
        let requests = REQUESTS_MIN - 1;
        assert!(pairing.should_unpair(Sample { requests, ..BUSY }, true));
        let changes = 20;
        let others = Sample { changes, ..BUSY };
        assert!(paired().should_unpair(others, false));
    }

    #[test]
    fn a_pair_with_half_of_the_requests_before_is_dissolved() {
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
