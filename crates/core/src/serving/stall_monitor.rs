//! A thread that looks after those that serve, every 2 ms while there is something to look at.
//!
//! While nobody has a request it sleeps. The first request after that wakes it; later ones find it awake
//! by a look at a flag. It goes to sleep again when there was nothing to do for 100 ms.

use crate::transport::confine_signals;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How often it looks.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(2);
/// So many looks at nothing, and nobody looks until there is something.
const CALM_LOOKS: u32 = 50;

/// What such a thread does.
pub trait StallMonitor: Send + 'static {
    /// What wakes it.
    fn alarm(&self) -> &MonitorWaker;

    /// Whether it shall end.
    fn is_ending(&self) -> bool;

    /// Looks. True when there was something to do.
    fn look(&mut self, now: Instant) -> bool;

    /// Nobody will look for a while, or any more.
    fn rest(&mut self);

    /// Whether somebody has a request all the same. Asked once the flag is down.
    fn is_needed(&self) -> bool {
        false
    }
}

/// The flag by which those that serve know whether it is awake.
#[derive(Debug, Default)]
pub struct MonitorWaker {
    armed: AtomicBool,
    thread: OnceLock<Thread>,
}

impl MonitorWaker {
    /// Called with every request, after it was counted: wakes the monitor when it sleeps. That one lowers
    /// the flag first and looks at the counts after, so that one of the two sees the other.
    #[inline]
    pub fn arm(&self) {
        if !self.armed.load(Ordering::SeqCst) && !self.armed.swap(true, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Says whom it wakes. The first time counts.
    pub fn set_monitor(&self, thread: Thread) {
        let _ = self.thread.set(thread);
    }

    /// Has the monitor see that it shall end.
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

/// Starts a thread for `monitor`, which is `alarm`'s only one.
///
/// # Errors
///
/// When there is none to be had.
pub fn start_stall_monitor<M: StallMonitor>(
    alarm: &MonitorWaker,
    mut monitor: M,
) -> io::Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new()
        .name("thrufs-monitor".to_owned())
        .spawn(move || {
            confine_signals();
            watch(&mut monitor);
        })?;
    alarm.set_monitor(thread.thread().clone());
    // It may sleep already, and a request may have come while nobody knew whom to wake.
    alarm.wake();
    Ok(thread)
}

fn watch(monitor: &mut impl StallMonitor) {
    let mut calm = 0;
    while !monitor.is_ending() {
        if !monitor.alarm().is_armed() {
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
            let armed = &monitor.alarm().armed;
            armed.store(false, Ordering::SeqCst);
            if monitor.is_needed() {
                armed.store(true, Ordering::SeqCst);
            }
        }
    }
    // What they have in hand shall be done soon, whoever else wants their CPUs.
    monitor.rest();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Looks as often as it says, and notes after how many looks it rested.
    struct Script {
        alarm: Arc<MonitorWaker>,
        busy_at: u32,
        looks: u32,
        rests: Arc<std::sync::Mutex<Vec<u32>>>,
        is_needed_once: AtomicBool,
    }

    impl StallMonitor for Script {
        fn alarm(&self) -> &MonitorWaker {
            &self.alarm
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
    fn it_rests_after_enough_looks_at_nothing_unless_it_is_needed() {
        let (alarm, rests) = (Arc::<MonitorWaker>::default(), Arc::default());
        let script = Script {
            alarm: Arc::clone(&alarm),
            busy_at: CALM_LOOKS - 1,
            looks: 0,
            rests: Arc::clone(&rests),
            is_needed_once: AtomicBool::new(true),
        };
        let thread = start_stall_monitor(&alarm, script).unwrap();
        alarm.arm();
        thread.join().unwrap();
        let first = 2 * CALM_LOOKS - 1;
        let at_the_end = first + CALM_LOOKS;
        assert_eq!(*rests.lock().unwrap(), [first, at_the_end, at_the_end]);
        assert!(!alarm.is_armed());
    }
}
