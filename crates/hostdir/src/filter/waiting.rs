//! Requests that wait until a redacted file can be read or written.

use crate::quota::UserQuotas;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use thrufs::{Errno, Result};

/// Most attempts to read a file that keeps changing.
const ATTEMPTS_MAX: u32 = 48;

/// Most attempts to read a file that a process has open for writing: an eighth of a second.
const ATTEMPTS_MAX_WRITTEN: u32 = 12;

/// The wait before the second attempt; the later ones wait longer, more than `FILE_SYSTEM_STEP_MAX` in
/// all.
const PAUSE: Duration = Duration::from_millis(2);

/// Most waiting readers and writers, each with a thread; one more fails at once.
const WAITING_MAX: usize = 16;

const WAITING_MAX_OF_USER: usize = WAITING_MAX / 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotYet {
    /// Two versions may have the same times.
    Young,
    /// A process has it open for writing.
    Written,
}

pub(crate) type Attempt<T> = std::result::Result<T, NotYet>;

/// Counts the waiting readers and writers.
pub(crate) struct Waiting {
    all: AtomicUsize,
    of_users: Arc<UserQuotas>,
}

impl Waiting {
    pub(crate) fn new(server_uid: u32) -> Waiting {
        Waiting {
            all: AtomicUsize::new(0),
            of_users: UserQuotas::new(WAITING_MAX_OF_USER, WAITING_MAX / 4 * 3, server_uid),
        }
    }

    /// Waits for a while. Fails with `EBUSY`, at once, when too many requests wait, of this user or in all.
    pub(super) fn pause(&self, uid: Option<u32>, pause: Duration) -> Result<()> {
        let _charge = self.of_users.charge(uid).map_err(|_| Errno::EBUSY)?;
        let waiting = self.all.fetch_add(1, Ordering::Relaxed);
        if waiting < WAITING_MAX {
            std::thread::sleep(pause);
        }
        self.all.fetch_sub(1, Ordering::Relaxed);
        if waiting < WAITING_MAX {
            Ok(())
        } else {
            Err(Errno::EBUSY)
        }
    }

    /// Repeats `attempt` until it succeeds. Fails with `EBUSY` when that takes too long, or too many requests
    /// wait; those of `attempt`.
    pub(crate) fn until<T>(
        &self,
        uid: Option<u32>,
        mut attempt: impl FnMut() -> Result<Attempt<T>>,
    ) -> Result<T> {
        let mut attempts = 0;
        loop {
            let not_yet = match attempt()? {
                Ok(done) => return Ok(done),
                Err(not_yet) => not_yet,
            };
            attempts += 1;
            let most = match not_yet {
                NotYet::Young => ATTEMPTS_MAX,
                NotYet::Written => ATTEMPTS_MAX_WRITTEN,
            };
            if attempts >= most {
                return Err(Errno::EBUSY);
            }
            self.pause(uid, PAUSE * attempts)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_waiting_readers_get_ebusy() {
        let most = WAITING_MAX_OF_USER;
        for (all, of_user, uid, expected) in [
            (WAITING_MAX - 1, most - 1, Some(7), ATTEMPTS_MAX_WRITTEN),
            (WAITING_MAX, 0, Some(7), 1),
            (WAITING_MAX, 0, None, 1),
            (most, most, Some(7), 1),
            (most, most, Some(8), ATTEMPTS_MAX_WRITTEN),
            (most, most, Some(0), ATTEMPTS_MAX_WRITTEN),
        ] {
            let waiting = Waiting::new(0);
            waiting.all.store(all, Ordering::Relaxed);
            let held: Vec<_> = (0..of_user)
                .map(|_| waiting.of_users.charge(Some(7)).unwrap())
                .collect();
            let mut attempts = 0;
            let answer: Result<()> = waiting.until(uid, || {
                attempts += 1;
                Ok(Err(NotYet::Written))
            });
            assert_eq!((answer, attempts), (Err(Errno::EBUSY), expected));
            drop(held);
            assert_eq!(waiting.all.into_inner(), all);
        }
    }
}
