//! Interrupts the wait of a client that was signalled.
//!
//! The kernel sends INTERRUPT with the number of the request. Only requests that wait for another process
//! can be interrupted: they register here while they wait
//! ([`Context::interruptible`](crate::Context::interruptible)). So do requests that are answered later, for
//! which no thread waits ([`Outstanding`]); no other request uses this module.
//!
//! Two races:
//!
//! * **The signal precedes the system call.** A signal ends only the call that a thread is in, so it is
//!   repeated every 10 ms until the waiter has left the registry. Signals are sent, and waiters leave, under
//!   the registry's lock: a thread that has left gets none.
//! * **INTERRUPT precedes the registration**, because another thread reads it first. The newest 64 numbers
//!   that are not registered are kept, and [`Interrupts::run`] looks for its own there. The kernel never
//!   reuses a number on a connection, so one that is kept in vain is harmless.

use crate::errno::{Errno, Result};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};
use thrufs_abi::Unique;
use thrufs_sys::signal::{ThreadId, current_thread_id, interrupt_thread};

/// Numbers of interrupts without a waiter that are kept.
const EARLY_MAX: usize = 64;

/// See [`SessionConfig::late_max`](crate::SessionConfig::late_max).
pub(crate) const LATE_MAX_DEFAULT: usize = 16_384;

/// How long the end waits for replies that are being written.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Time between two signals to the same waiter.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

thread_local! {
    static THREAD: ThreadId = current_thread_id();
}

/// Says whether a wait was interrupted.
#[derive(Clone, Debug, Default)]
pub struct InterruptToken {
    by: Arc<AtomicU8>,
}

const NONE: u8 = 0;
const SHUTDOWN: u8 = 1;
const CLIENT: u8 = 2;

impl InterruptToken {
    /// Whether an INTERRUPT for the request arrived, or the session ends.
    pub fn is_set(&self) -> bool {
        self.by.load(Ordering::Acquire) != NONE
    }

    fn set(&self, by: u8) {
        self.by.store(by, Ordering::Release);
    }

    pub(crate) fn interrupt(&self) {
        self.set(CLIENT);
    }
}

/// A request that is answered later, and for which no thread waits.
pub(crate) trait Outstanding: Debug + Send + Sync {
    /// An INTERRUPT for it arrived, or the session ends.
    fn interrupt(&self);

    /// The session has ended: answers it, unless that has happened.
    fn end(&self);
}

/// Why a request cannot be answered later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LateRefused {
    /// The session ends.
    Ended,
    /// As many as may be are out.
    Full,
}

/// The requests of one connection that wait and can be interrupted.
#[derive(Clone, Debug)]
pub struct Interrupts {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    registry: Mutex<Registry>,
    left: Condvar,
    /// Most requests that are answered later at a time.
    late_max: usize,
    fewer_late: Condvar,
}

#[derive(Debug, Default)]
struct Registry {
    waiters: Vec<Waiter>,
    /// By their number and a number of our own: a guest may use one of its numbers twice.
    late: BTreeMap<(Unique, u64), Arc<dyn Outstanding>>,
    late_serial: u64,
    early: VecDeque<Unique>,
    /// Set at the end of the session: further waits fail.
    stopped: bool,
    retrying: bool,
}

#[derive(Debug)]
struct Waiter {
    unique: Unique,
    thread: ThreadId,
    token: InterruptToken,
}

impl Registry {
    /// Whether the interrupt came first.
    fn take_early(&mut self, unique: Unique) -> bool {
        let early = self.early.iter().position(|&early| early == unique);
        early.map(|at| self.early.remove(at)).is_some()
    }

    fn late(&self, unique: Unique) -> Vec<Arc<dyn Outstanding>> {
        let found = self.late.range((unique, 0)..=(unique, u64::MAX));
        found.map(|(_, late)| Arc::clone(late)).collect()
    }

    /// Signals every interrupted waiter; false when there is none.
    fn signal(&self) -> bool {
        let mut any = false;
        for waiter in self.waiters.iter().filter(|waiter| waiter.token.is_set()) {
            any = true;
            // Fails without a handler: the wait then has to read its token.
            let _ = interrupt_thread(waiter.thread);
        }
        any
    }
}

impl Shared {
    /// Signals at intervals until every interrupted waiter has left.
    fn retry(&self) {
        let mut registry = self.registry.lock();
        while registry.signal() {
            self.left.wait_for(&mut registry, RETRY_INTERVAL);
        }
        registry.retrying = false;
    }
}

/// Removes a waiter from the registry, however its wait ends.
struct Registration<'a> {
    shared: &'a Shared,
    unique: Unique,
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        let mut registry = self.shared.registry.lock();
        registry
            .waiters
            .retain(|waiter| waiter.unique != self.unique);
        drop(registry);
        self.shared.left.notify_all();
    }
}

impl Default for Interrupts {
    fn default() -> Interrupts {
        Interrupts::new(LATE_MAX_DEFAULT)
    }
}

impl Interrupts {
    /// No requests. At most `late_max` will be answered later at a time, and at least one.
    pub(crate) fn new(late_max: usize) -> Interrupts {
        Interrupts {
            shared: Arc::new(Shared {
                registry: Mutex::default(),
                left: Condvar::new(),
                late_max: late_max.max(1),
                fewer_late: Condvar::new(),
            }),
        }
    }

    /// Counts the request that `make` makes as one that is answered later.
    pub(crate) fn enter_late<T: Outstanding + 'static>(
        &self,
        unique: Unique,
        make: impl FnOnce(u64) -> Arc<T>,
    ) -> std::result::Result<Arc<T>, LateRefused> {
        let mut registry = self.shared.registry.lock();
        if registry.stopped {
            return Err(LateRefused::Ended);
        }
        if registry.late.len() >= self.shared.late_max {
            return Err(LateRefused::Full);
        }
        registry.late_serial += 1;
        let serial = registry.late_serial;
        let made = make(serial);
        let outstanding: Arc<dyn Outstanding> = Arc::<T>::clone(&made);
        registry.late.insert((unique, serial), outstanding);
        let is_early = registry.take_early(unique);
        drop(registry);
        if is_early {
            made.interrupt();
        }
        Ok(made)
    }

    /// Waits until fewer requests are out than may be.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub(crate) fn await_late(&self, unique: Unique) -> Result<()> {
        self.run(unique, |token| {
            let mut registry = self.shared.registry.lock();
            while registry.late.len() >= self.shared.late_max {
                if token.is_set() {
                    return Err(Errno::EINTR);
                }
                self.shared
                    .fewer_late
                    .wait_for(&mut registry, RETRY_INTERVAL);
            }
            Ok(())
        })
    }

    /// A request is answered. False when it was taken off before.
    pub(crate) fn leave_late(&self, unique: Unique, serial: u64) -> bool {
        let mut registry = self.shared.registry.lock();
        let left = registry.late.remove(&(unique, serial));
        drop(registry);
        self.shared.fewer_late.notify_all();
        left.is_some()
    }

    fn late(&self) -> Vec<Arc<dyn Outstanding>> {
        self.shared.registry.lock().late.values().cloned().collect()
    }

    /// Waits until no request is out, or the time is over.
    pub(crate) fn drain_late(&self, deadline: Instant) {
        let mut registry = self.shared.registry.lock();
        let late = |registry: &mut Registry| !registry.late.is_empty();
        let fewer = &self.shared.fewer_late;
        fewer.wait_while_until(&mut registry, late, deadline);
    }

    /// Answers all requests that are out with ENOTCONN. After [`stop`](Self::stop).
    pub(crate) fn end_late(&self) {
        self.late().iter().for_each(|late| late.end());
        // Some are being answered at the moment.
        self.drain_late(Instant::now() + LEAVE_TIMEOUT);
    }

    /// Runs `wait` registered under `unique`.
    ///
    /// # Errors
    /// `EINTR` when the interrupt came first, `ENOTCONN` when the session ends; else those of `wait`.
    pub(crate) fn run<T>(
        &self,
        unique: Unique,
        wait: impl FnOnce(&InterruptToken) -> Result<T>,
    ) -> Result<T> {
        let token = InterruptToken {
            by: Arc::new(AtomicU8::new(NONE)),
        };
        let thread = THREAD.with(|thread| *thread);
        let mut registry = self.shared.registry.lock();
        if registry.take_early(unique) {
            return Err(Errno::EINTR);
        }
        if registry.stopped {
            return Err(Errno::ENOTCONN);
        }
        registry.waiters.push(Waiter {
            unique,
            thread,
            token: token.clone(),
        });
        drop(registry);
        let _registration = Registration {
            shared: &self.shared,
            unique,
        };
        let result = wait(&token);
        // A client that was not signalled would see EINTR as "restart this call", which no program
        // handles. Its next request fails with ENOTCONN anyway.
        match result {
            Err(Errno::EINTR) if token.by.load(Ordering::Acquire) == SHUTDOWN => {
                Err(Errno::ENOTCONN)
            }
            result => result,
        }
    }

    pub(crate) fn interrupt(&self, unique: Unique) {
        let mut registry = self.shared.registry.lock();
        let late = registry.late(unique);
        if !late.is_empty() {
            drop(registry);
            return late.iter().for_each(|late| late.interrupt());
        }
        match registry
            .waiters
            .iter()
            .find(|waiter| waiter.unique == unique)
        {
            Some(waiter) => {
                waiter.token.set(CLIENT);
                self.signal_until_gone(registry);
            }
            None => {
                if registry.early.len() == EARLY_MAX {
                    registry.early.pop_front();
                }
                registry.early.push_back(unique);
            }
        }
    }

    /// Interrupts all waits, and those to come.
    pub(crate) fn stop(&self) {
        self.shared.registry.lock().stopped = true;
        self.interrupt_waiting(SHUTDOWN);
        self.late().iter().for_each(|late| late.interrupt());
    }

    /// Interrupts all waits. Later ones are not affected.
    pub(crate) fn interrupt_all(&self) {
        self.interrupt_waiting(CLIENT);
    }

    fn interrupt_waiting(&self, by: u8) {
        let registry = self.shared.registry.lock();
        for waiter in &registry.waiters {
            waiter.token.set(by);
        }
        self.signal_until_gone(registry);
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.shared.registry.lock().waiters.len()
    }

    fn signal_until_gone(&self, mut registry: MutexGuard<'_, Registry>) {
        if !registry.signal() || registry.retrying {
            return;
        }
        registry.retrying = true;
        drop(registry);
        let shared = Arc::clone(&self.shared);
        let spawned = std::thread::Builder::new()
            .name("thrufs-intr".to_owned())
            .spawn(move || shared.retry());
        if spawned.is_err() {
            // Without a thread, a short sleep avoids the race in nearly all cases; and the kernel repeats
            // the INTERRUPT when the client is signalled again.
            for _ in 0..5 {
                std::thread::sleep(Duration::from_millis(1));
                if !self.shared.registry.lock().signal() {
                    break;
                }
            }
            self.shared.registry.lock().retrying = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Instant;
    use thrufs_sys::signal::install_interrupt_handler;

    fn until_set(token: &InterruptToken) -> Result<()> {
        let start = Instant::now();
        while !token.is_set() {
            let waited = start.elapsed();
            assert!(waited < Duration::from_secs(60), "never interrupted");
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(Errno::EINTR)
    }

    #[test]
    fn interrupt_all_ends_current_waits_only() {
        install_interrupt_handler().unwrap();
        let interrupts = Interrupts::default();
        let waits: Vec<_> = (1..=3)
            .map(|number| {
                let interrupts = interrupts.clone();
                std::thread::spawn(move || interrupts.run(Unique(number), until_set))
            })
            .collect();
        let start = Instant::now();
        while interrupts.waiting() < 3 {
            assert!(start.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
        interrupts.interrupt_all();
        for wait in waits {
            assert_eq!(wait.join().unwrap(), Err(Errno::EINTR));
        }
        let later = interrupts.run(Unique(1), |token| Ok(token.is_set()));
        assert_eq!(later, Ok(false), "nothing is left of it");
    }

    #[test]
    fn a_system_call_is_interrupted_whenever_the_interrupt_comes() {
        install_interrupt_handler().unwrap();
        for delay_us in [0, 50, 200, 1000] {
            let interrupts = Interrupts::default();
            let (reader, _writer) = rustix::pipe::pipe().unwrap();
            let (sender, receiver) = mpsc::channel();
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    interrupts.run(Unique(8), |_| {
                        sender.send(()).unwrap();
                        // The signal may come here, before the call: it must be repeated.
                        std::thread::sleep(Duration::from_micros(300));
                        rustix::io::read(&reader, &mut [0; 1]).map_err(Errno::from)
                    })
                });
                receiver.recv().unwrap();
                std::thread::sleep(Duration::from_micros(delay_us));
                interrupts.interrupt(Unique(8));
                assert_eq!(waiter.join().unwrap(), Err(Errno::EINTR));
            });
            assert_eq!(interrupts.waiting(), 0);
        }
    }

    #[test]
    fn an_interrupt_before_its_request_is_used_once() {
        let interrupts = Interrupts::default();
        interrupts.interrupt(Unique(4));
        assert_eq!(interrupts.run(Unique(6), |_| Ok(())), Ok(()));
        assert_eq!(interrupts.run(Unique(4), |_| Ok(())), Err(Errno::EINTR));
        assert_eq!(interrupts.run(Unique(4), |_| Ok(())), Ok(()));
    }

    #[test]
    fn early_interrupts_are_bounded() {
        let interrupts = Interrupts::default();
        for number in 0..1000 {
            interrupts.interrupt(Unique(number * 2));
        }
        assert_eq!(interrupts.shared.registry.lock().early.len(), EARLY_MAX);
        let oldest = interrupts.run(Unique(0), |_| Ok(()));
        assert_eq!(oldest, Ok(()), "long forgotten");
        assert_eq!(interrupts.run(Unique(1998), |_| Ok(())), Err(Errno::EINTR));
    }

    #[test]
    fn shutdown_interrupts_all_and_admits_none() {
        let interrupts = Interrupts::default();
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            let waiters: Vec<_> = (0..4)
                .map(|number| {
                    let (interrupts, sender) = (&interrupts, sender.clone());
                    scope.spawn(move || {
                        interrupts.run(Unique(number), |token| {
                            sender.send(()).unwrap();
                            until_set(token)
                        })
                    })
                })
                .collect();
            for _ in 0..4 {
                receiver.recv().unwrap();
            }
            assert_eq!(interrupts.waiting(), 4);
            interrupts.stop();
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), Err(Errno::ENOTCONN));
            }
        });
        assert_eq!(interrupts.run(Unique(9), |_| Ok(())), Err(Errno::ENOTCONN));
    }

    #[test]
    fn a_wait_that_panics_leaves_the_registry() {
        let interrupts = Interrupts::default();
        let wait = || interrupts.run::<()>(Unique(2), |_| panic!("in a test"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(wait)).is_err());
        assert_eq!(interrupts.waiting(), 0);
    }
}
