//! Waiting for a condition, and threads that go on until a test has seen enough.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long [`wait_until`] waits: for what hangs for ever, and generous, as the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for a condition.
///
/// # Panics
///
/// When it does not hold within [`PATIENCE`].
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Stops the threads that look at the flag when it is dropped, also by a panic: else they went on for ever.
pub struct StopAll<'a>(pub &'a AtomicBool);

impl Drop for StopAll<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Repeats each of `others` on a thread of its own while `look` runs, and returns its result.
pub fn while_repeating<T>(
    others: impl IntoIterator<Item = impl FnMut() + Send>,
    look: impl FnOnce() -> T,
) -> T {
    let is_over = &AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = StopAll(is_over);
        for mut other in others {
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    other();
                }
            });
        }
        look()
    })
}
