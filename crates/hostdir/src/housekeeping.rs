//! Letting go of mounts beneath that nobody uses, and of memory.
//!
//! A descriptor of ours on a mount beneath keeps it from being unmounted. So when the last file or
//! directory that clients have open there is released, everything that is kept for that mount goes:
//! at once, but not on the thread that answers requests. A mount on which names and attributes alone
//! are looked at is let go when it was idle for a while.
//!
//! When the kernel has forgotten most of many files, as after a backup of all, the memory that they took
//! goes back to the system.
//!
//! **Who may touch what.** Requests mark a mount as used, or as left by the last open file, and ring
//! the [`Bell`]; only the housekeeper lets go. What a request holds at that moment it keeps, and marks
//! the mount again with whatever it keeps for later.

use crate::host::Host;
use parking_lot::{Condvar, Mutex};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How often to look while something is kept for a mount beneath.
const WATCHFUL_INTERVAL: Duration = Duration::from_millis(250);

/// How often to see whether the host is still there.
const RESTING_INTERVAL: Duration = Duration::from_secs(2);

/// A submount on which nobody opens files is let go after so long without use.
const IDLE_MS: u64 = 500;

/// After it has let go of something, the housekeeper rests at least so long, and at least
/// `WORK_SHARE` times as long as that took: a client that opens one file after another shall not keep
/// it busy, nor lose what is kept for it each time.
const REST_MIN: Duration = Duration::from_millis(1);
const WORK_SHARE: u32 = 10;

/// Wakes the housekeeper.
#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    pending: Mutex<bool>,
    changed: Condvar,
}

impl Wakeup {
    pub(crate) fn notify(&self) {
        let before = std::mem::replace(&mut *self.pending.lock(), true);
        if !before {
            self.changed.notify_one();
        }
    }

    /// Until it rings, or has rung since the last time, or `timeout` has passed.
    fn wait(&self, timeout: Duration) {
        let mut pending = self.pending.lock();
        if !*pending {
            self.changed.wait_for(&mut pending, timeout);
        }
        *pending = false;
    }
}

/// Starts the housekeeper of `host`; it ends by itself when `host` is gone.
pub(crate) fn start(host: &Arc<Host>) {
    let wakeup = Arc::clone(host.mounts.wakeup());
    let host = Arc::downgrade(host);
    let started = std::thread::Builder::new()
        .name("housekeeper".into())
        .spawn(move || run(&host, &wakeup));
    if let Err(error) = started {
        tracing::warn!(
            "no thread for housekeeping: mounts beneath stay busy until unmount: {error}"
        );
    }
}

fn run(host: &Weak<Host>, wakeup: &Wakeup) {
    let mut interval = RESTING_INTERVAL;
    loop {
        wakeup.wait(interval);
        let Some(host) = host.upgrade() else { return };
        let started = Instant::now();
        let swept = host.mounts.sweep(IDLE_MS);
        for mount in &swept.released {
            host.descriptors.release_mount(*mount);
        }
        let was_much_forgotten = host.nodes.shrink();
        drop(host);
        if was_much_forgotten {
            thrufs_sys::heap::give_back();
        }
        interval = if swept.keeps_something {
            WATCHFUL_INTERVAL
        } else {
            RESTING_INTERVAL
        };
        if !swept.released.is_empty() {
            std::thread::sleep(REST_MIN.max(started.elapsed() * WORK_SHARE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_that_has_rung_is_heard_once() {
        let wakeup = Wakeup::default();
        wakeup.notify();
        wakeup.notify();
        let long = Duration::from_secs(60);
        let started = Instant::now();
        wakeup.wait(long);
        assert!(started.elapsed() < long);
        let short = Duration::from_millis(20);
        wakeup.wait(short);
        assert!(started.elapsed() >= short, "nobody has pending again");
    }
}
