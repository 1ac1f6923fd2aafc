//! How long to stay awake for the next request.
//!
//! A thread that falls asleep and is woken costs its caller a few microseconds. One that has just
//! been asked may look out for the next request instead, for as long as it was told; it stops doing
//! so when requests come more slowly than that.

use std::time::{Duration, Instant};

/// So many waits in vain in a row, and it is no use.
const VAIN_MAX: u32 = 4;
/// So many requests after that it is tried again.
const TRIAL_REQUESTS: u32 = 64;
/// So often one looks before one looks at the clock.
const LOOKS: u32 = 16;

/// Whether a thread should look out for its next request, and for how long. See the module.
#[derive(Debug)]
pub(crate) struct Patience {
    spin: Duration,
    /// Requests came since the last wait.
    asked: bool,
    vain: u32,
    since: u32,
}

impl Patience {
    /// One that looks out for at most so long; never, for zero.
    pub(crate) fn new(spin: Duration) -> Patience {
        Patience {
            spin,
            asked: false,
            vain: 0,
            since: 0,
        }
    }

    /// A request came, after which the next may be near.
    pub(crate) fn note_request(&mut self) {
        self.asked = true;
    }

    /// Looks out until `is_ready`, at most for as long as it was told. True when it is.
    pub(crate) fn look_out(&mut self, mut is_ready: impl FnMut() -> bool) -> bool {
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

    /// Whether it is worth [looking out](Self::look_out) now. To be asked once for each wait.
    pub(crate) fn is_worth_it(&mut self) -> bool {
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
    fn it_spins_only_after_a_request_and_while_it_is_of_use() {
        let mut patience = Patience::new(Duration::from_micros(10));
        assert!(!patience.is_worth_it(), "nobody has asked");
        for _ in 0..VAIN_MAX {
            patience.note_request();
            assert!(patience.is_worth_it());
            assert!(!patience.look_out(|| false));
        }
        for _ in 1..TRIAL_REQUESTS {
            patience.note_request();
            assert!(!patience.is_worth_it(), "in vain");
        }
        patience.note_request();
        assert!(patience.is_worth_it(), "another trial");
        assert!(patience.look_out(|| true));
        patience.note_request();
        assert!(patience.is_worth_it());
    }

    #[test]
    fn it_never_spins_unless_told() {
        let mut patience = Patience::new(Duration::ZERO);
        patience.note_request();
        assert!(!patience.is_worth_it());
    }
}
