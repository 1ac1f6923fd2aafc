//! Adaptive spinning for the next request.
//!
//! Waking a sleeping thread costs its caller a few microseconds. A thread that has just had a request may
//! spin for the next instead, for a configured time; it stops when requests come more slowly than that.

use std::time::{Duration, Instant};

/// Failed spins in a row after which spinning is suspended.
const VAIN_MAX: u32 = 4;
/// Requests after which a suspended spin is tried again.
const TRIAL_REQUESTS: u32 = 64;
/// Checks between two readings of the clock.
const LOOKS: u32 = 16;

#[derive(Debug)]
pub(crate) struct Patience {
    spin: Duration,
    /// A request came since the last wait.
    asked: bool,
    vain: u32,
    since: u32,
}

impl Patience {
    /// Spins for at most `spin`; never for zero.
    pub(crate) fn new(spin: Duration) -> Patience {
        Patience {
            spin,
            asked: false,
            vain: 0,
            since: 0,
        }
    }

    pub(crate) fn note_request(&mut self) {
        self.asked = true;
    }

    /// Spins until `is_ready`, within the time limit, if that is worth it now. True when it is ready. To be
    /// called once per wait.
    pub(crate) fn spin(&mut self, mut is_ready: impl FnMut() -> bool) -> bool {
        if !self.is_worth_it() {
            return false;
        }
        let start = Instant::now();
        let mut found = false;
        while !found && start.elapsed() < self.spin {
            found = (0..LOOKS).any(|_| {
                std::hint::spin_loop();
                is_ready()
            });
        }
        self.vain = if found {
            0
        } else {
            (self.vain + 1).min(VAIN_MAX)
        };
        found
    }

    fn is_worth_it(&mut self) -> bool {
        let asked = std::mem::take(&mut self.asked);
        if self.spin.is_zero() || !asked {
            return false;
        }
        if self.vain < VAIN_MAX {
            return true;
        }
        self.since += 1;
        if self.since < TRIAL_REQUESTS {
            return false;
        }
        self.since = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinning_needs_a_request_and_is_suspended_when_in_vain() {
        let mut patience = Patience::new(Duration::from_micros(10));
        assert!(!patience.spin(|| true), "no request yet");
        for _ in 0..VAIN_MAX {
            let mut looks = 0;
            patience.note_request();
            assert!(!patience.spin(|| {
                looks += 1;
                false
            }));
            assert!(looks > 0);
        }
        for _ in 1..TRIAL_REQUESTS {
            patience.note_request();
            assert!(!patience.spin(|| true), "in vain");
        }
        patience.note_request();
        assert!(patience.spin(|| true), "another trial");
        patience.note_request();
        assert!(patience.spin(|| true));
    }

    #[test]
    fn a_spin_time_of_zero_disables_spinning() {
        let mut patience = Patience::new(Duration::ZERO);
        patience.note_request();
        assert!(!patience.spin(|| true));
    }
}
