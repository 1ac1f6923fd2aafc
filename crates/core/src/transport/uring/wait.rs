//! Waiting for the next request: asleep, or awake for a moment first.
//!
//! A thread that falls asleep and is woken costs its caller a few microseconds. One that has just
//! been asked may look out for the next request instead, for as long as it was told; it stops doing
//! so when requests come more slowly than that. It only ever spins in a class that gives way
//! ([`super::steward`]), or for so short a time that it does not matter.

use super::team::Ring;
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// So many waits in vain in a row, and it is no use.
const VAIN_MAX: u32 = 4;
/// So many requests after that it is tried again.
const TRIAL_REQUESTS: u32 = 64;

/// See the module.
#[derive(Debug)]
pub(super) struct Patience {
    spin: Duration,
    /// Requests came since the last wait.
    asked: bool,
    vain: u32,
    since: u32,
}

impl Patience {
    pub(super) fn new(spin: Duration) -> Patience {
        Patience {
            spin,
            asked: false,
            vain: 0,
            since: 0,
        }
    }

    pub(super) fn note_request(&mut self) {
        self.asked = true;
    }

    /// Sends what is to be sent, and waits, for no longer than `timeout`.
    pub(super) fn wait(&mut self, ring: &mut Ring, timeout: Option<Duration>) -> Result<(), Errno> {
        if self.spins() {
            ring.flush()?;
            let start = Instant::now();
            while !ring.is_ready() && start.elapsed() < self.spin {
                std::hint::spin_loop();
            }
            self.learn(ring.is_ready());
        }
        ring.wait(timeout).map(drop)
    }

    fn spins(&mut self) -> bool {
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

    fn learn(&mut self, found: bool) {
        self.vain = if found {
            0
        } else {
            (self.vain + 1).min(VAIN_MAX)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_spins_only_after_a_request_and_while_it_is_of_use() {
        let mut patience = Patience::new(Duration::from_micros(10));
        assert!(!patience.spins(), "nobody has asked");
        for _ in 0..VAIN_MAX {
            patience.note_request();
            assert!(patience.spins());
            patience.learn(false);
        }
        for _ in 1..TRIAL_REQUESTS {
            patience.note_request();
            assert!(!patience.spins(), "in vain");
        }
        patience.note_request();
        assert!(patience.spins(), "another trial");
        patience.learn(true);
        patience.note_request();
        assert!(patience.spins());
    }

    #[test]
    fn it_never_spins_unless_told() {
        let mut patience = Patience::new(Duration::ZERO);
        patience.note_request();
        assert!(!patience.spins());
    }
}
