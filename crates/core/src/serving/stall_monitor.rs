//! The thread of a stall monitor, which looks at serving threads every 2 ms while there are requests.
//!
//! It sleeps while there are none. The next request wakes it; later ones see by a flag that it is awake.
//! It sleeps again after 100 ms without anything to do.

use super::threads::confine_signals;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// The time between two looks.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(2);
/// Looks without anything to do before the monitor sleeps.
const CALM_LOOKS: u32 = 50;

/// The work of a stall monitor.
pub trait Monitor: Send + 'static {
    /// The flag that wakes it.
    fn waker(&self) -> &MonitorWaker;

    /// Whether its thread is to end.
    fn is_ending(&self) -> bool;

    /// Looks. True when there was something to do.
    fn look(&mut self, now: Instant) -> bool;

    /// The monitor is about to sleep or to end.
    fn rest(&mut self);

    /// Whether there is a request after all. Called once the flag is down.
    fn is_needed(&self) -> bool {
        false
    }
}

/// The flag that says whether the monitor is awake.
#[derive(Debug, Default)]
pub struct MonitorWaker {
    armed: AtomicBool,
    thread: OnceLock<Thread>,
}

impl MonitorWaker {
    /// Called with every request, after it was counted: wakes the monitor when it sleeps. The monitor lowers
    /// the flag first and reads the counts afterwards, so that one of the two sees the other.
    #[inline]
    pub fn arm(&self) {
        if !self.armed.load(Ordering::SeqCst) && !self.armed.swap(true, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Sets the thread that it wakes, once.
    pub fn set_monitor(&self, thread: Thread) {
        let _ = self.thread.set(thread);
    }

    /// Makes the monitor look whether it is to end.
    pub fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Whether there is a monitor.
    pub fn has_monitor(&self) -> bool {
        self.thread.get().is_some()
    }

    /// Whether the monitor is awake, or will be in a moment.
    pub fn is_armed(&self) -> bool {
        self.armed.load(Ordering::SeqCst)
    }
}

/// Starts the thread of `monitor`, the only one of `waker`.
///
/// # Errors
/// The system's, when no thread is available.
pub fn start_monitor<M: Monitor>(
    waker: &MonitorWaker,
    mut monitor: M,
) -> io::Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new()
        .name("thrufs-monitor".to_owned())
        .spawn(move || {
            confine_signals();
            watch(&mut monitor);
        })?;
    waker.set_monitor(thread.thread().clone());
    // A request may have come before the thread was set.
    waker.wake();
    Ok(thread)
}

fn watch(monitor: &mut impl Monitor) {
    let mut calm = 0;
    while !monitor.is_ending() {
        if !monitor.waker().is_armed() {
            std::thread::park();
            continue;
        }
        std::thread::park_timeout(LOOK_INTERVAL);
        calm = if monitor.look(Instant::now()) {
            0
        } else {
            calm + 1
        };
        if calm >= CALM_LOOKS {
            calm = 0;
            monitor.rest();
            let armed = &monitor.waker().armed;
            armed.store(false, Ordering::SeqCst);
            if monitor.is_needed() {
                armed.store(true, Ordering::SeqCst);
            }
        }
    }
    // Paired threads are to finish their requests soon, in the ordinary class.
    monitor.rest();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Is busy at one look, and records after how many looks it rested.
    struct Script {
        waker: Arc<MonitorWaker>,
        busy_at: u32,
        looks: u32,
        rests: Arc<std::sync::Mutex<Vec<u32>>>,
        is_needed_once: AtomicBool,
    }

    impl Monitor for Script {
        fn waker(&self) -> &MonitorWaker {
            &self.waker
        }

        fn is_ending(&self) -> bool {
            self.rests.lock().unwrap().len() == 2
        }

        fn look(&mut self, _: Instant) -> bool {
            self.looks += 1;
            self.looks == self.busy_at
        }

        fn rest(&mut self) {
            self.rests.lock().unwrap().push(self.looks);
        }

        fn is_needed(&self) -> bool {
            self.is_needed_once.swap(false, Ordering::SeqCst)
        }
    }

    #[test]
    fn the_monitor_rests_after_enough_idle_looks_unless_it_is_needed() {
        let (waker, rests) = (Arc::<MonitorWaker>::default(), Arc::default());
        let script = Script {
            waker: Arc::clone(&waker),
            busy_at: CALM_LOOKS - 1,
            looks: 0,
            rests: Arc::clone(&rests),
            is_needed_once: AtomicBool::new(true),
        };
        let thread = start_monitor(&waker, script).unwrap();
        waker.arm();
        thread.join().unwrap();
        let first = 2 * CALM_LOOKS - 1;
        let at_the_end = first + CALM_LOOKS;
        assert_eq!(*rests.lock().unwrap(), [first, at_the_end, at_the_end]);
        assert!(!waker.is_armed());
    }
}
