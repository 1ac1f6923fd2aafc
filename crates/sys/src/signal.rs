//! Signals: waking one thread out of a blocking call, and reading the process's signals from a descriptor.
//!
//! The waking signal is [`SIGRTMIN + 7`](interrupt_signal). Its handler does nothing and is installed
//! without `SA_RESTART`, so that its arrival makes a sleeping system call of that thread return EINTR.
//!
//! **Race:** a signal that arrives just before the thread enters its call interrupts nothing. It must be
//! repeated at intervals until the thread has reported that it noticed.
//!
//! # Safety
//! The handler touches nothing, so it is async-signal-safe whatever it interrupts. Masks and actions
//! are plain structures on the stack, filled by libc's own initialisers before use.

#![allow(unsafe_code)]

use crate::raw::{check, check_int};
use rustix::io::{Errno, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

pub use libc::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

/// The signal of [`interrupt_thread`]: `SIGRTMIN + 7`. Computed, because the C library reserves the first
/// few real-time signals.
#[must_use]
pub fn interrupt_signal() -> i32 {
    libc::SIGRTMIN() + 7
}

/// Serialises reading the action and setting it.
static INSTALLING: Mutex<()> = Mutex::new(());
/// Set once the handler is installed: until then the signal would end the process.
static INSTALLED: AtomicBool = AtomicBool::new(false);

extern "C" fn do_nothing(_signal: libc::c_int) {}

/// Installs the empty handler of [`interrupt_signal`] for the process, and unblocks the signal in the
/// calling thread. Idempotent.
///
/// # Errors
/// EBUSY when the process has another handler for it (which stays).
pub fn install_interrupt_handler() -> Result<()> {
    let _one_at_a_time = INSTALLING
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let ours = do_nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
    let mut action = action_of(interrupt_signal())?;
    if action.sa_sigaction == libc::SIG_DFL || action.sa_sigaction == libc::SIG_IGN {
        action.sa_sigaction = ours;
        // No SA_RESTART: sleeping calls are to return EINTR.
        action.sa_flags = 0;
        action.sa_mask = set_of(&[])?;
        // SAFETY: the handler lives as long as the program.
        unsafe { set_action(interrupt_signal(), &action) }?;
    } else if action.sa_sigaction != ours {
        return Err(Errno::BUSY);
    }
    INSTALLED.store(true, Ordering::Release);
    unblock(&[interrupt_signal()])
}

pub(crate) fn action_of(signal: i32) -> Result<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no new action; the current one is written to `action`.
    check_int(unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) })?;
    // SAFETY: filled by the call above (and valid when all zero).
    Ok(unsafe { action.assume_init() })
}

/// # Safety
/// A handler in `action` is async-signal-safe, and lives as long as the program.
pub(crate) unsafe fn set_action(signal: i32, action: &libc::sigaction) -> Result<()> {
    // SAFETY: the action is complete; the caller answers for its handler.
    check_int(unsafe { libc::sigaction(signal, action, std::ptr::null_mut()) }).map(drop)
}

/// A thread of this process, for [`interrupt_thread`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadId(i32);

impl ThreadId {
    pub(crate) const fn of(number: i32) -> ThreadId {
        ThreadId(number)
    }

    /// The kernel's thread id.
    #[must_use]
    pub const fn as_raw(self) -> i32 {
        self.0
    }
}

/// The calling thread. One system call: keep the result.
#[must_use]
pub fn current_thread_id() -> ThreadId {
    ThreadId(rustix::thread::gettid().as_raw_nonzero().get())
}

/// Sends [`interrupt_signal`] to one thread of this process: the system call that it sleeps in returns
/// EINTR. Harmless to a running thread, and to another one that reuses the id.
///
/// # Errors
/// ESRCH when the thread has ended; EINVAL before [`install_interrupt_handler`], because the signal would
/// end the process.
pub fn interrupt_thread(thread: ThreadId) -> Result<()> {
    if !INSTALLED.load(Ordering::Acquire) {
        return Err(Errno::INVAL);
    }
    let process = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: takes numbers; the signal has a handler, so it ends no process.
    let answer = unsafe { libc::syscall(libc::SYS_tgkill, process, thread.0, interrupt_signal()) };
    check(answer).map(drop)
}

/// A set of signals; EINVAL for a number that is none.
fn set_of(signals: &[i32]) -> Result<libc::sigset_t> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: writes the whole set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: initialised by the call above.
    let mut set = unsafe { set.assume_init() };
    for &signal in signals {
        // SAFETY: `set` is a set; numbers out of range are answered with EINVAL.
        check_int(unsafe { libc::sigaddset(&raw mut set, signal) })?;
    }
    Ok(set)
}

/// Changes the calling thread's mask and returns the one from before.
fn change_mask(how: libc::c_int, set: &libc::sigset_t) -> Result<libc::sigset_t> {
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: reads one set and writes another.
    let code = unsafe { libc::pthread_sigmask(how, &raw const *set, before.as_mut_ptr()) };
    // pthread calls return the error instead of setting errno.
    if code != 0 {
        return Err(Errno::from_raw_os_error(code));
    }
    // SAFETY: written by the call, which succeeded.
    Ok(unsafe { before.assume_init() })
}

/// Blocks `signals` in the calling thread, and in threads and children that it starts afterwards (a child
/// keeps the mask across `exec`: see [`unblock`]).
///
/// # Errors
/// EINVAL for what is no signal.
pub fn block(signals: &[i32]) -> Result<()> {
    change_mask(libc::SIG_BLOCK, &set_of(signals)?).map(drop)
}

/// Unblocks `signals` in the calling thread: the first thing in a child that inherited a mask.
///
/// # Errors
/// EINVAL for what is no signal.
pub fn unblock(signals: &[i32]) -> Result<()> {
    change_mask(libc::SIG_UNBLOCK, &set_of(signals)?).map(drop)
}

/// Ends the process by the default action of `signal`. Returns if that action ends no process.
///
/// # Errors
/// EINVAL for what is no signal.
pub fn end_by(signal: i32) -> Result<()> {
    // SAFETY: the default action runs no code of this program. An error, of SIGKILL, changes nothing.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    unblock(&[signal])?;
    // SAFETY: takes a number.
    check_int(unsafe { libc::raise(signal) }).map(drop)
}

/// A signal that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Its number, for instance [`SIGTERM`].
    pub number: i32,
    /// The process that sent it (for [`SIGCHLD`] the child); zero when the kernel did, or a process outside of
    /// the PID namespace.
    pub pid: i32,
    /// Whether the kernel sent it, for instance for a key of the terminal.
    pub by_kernel: bool,
}

/// Signals as a descriptor, readable when one is pending.
///
/// A thread that does not block them may receive them instead, so open this before starting threads.
#[derive(Debug)]
pub struct SignalFd(OwnedFd);

impl SignalFd {
    /// Blocks `signals` in the calling thread and opens a descriptor that reads them, close-on-exec and
    /// blocking. Several of one number that arrive before they are read are one.
    ///
    /// # Errors
    /// EINVAL for what is no signal, EMFILE, ENFILE.
    pub fn block_and_open(signals: &[i32]) -> Result<Self> {
        let set = set_of(signals)?;
        let before = change_mask(libc::SIG_BLOCK, &set)?;
        // SAFETY: reads one set.
        let answer = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC) };
        let number = check_int(answer).inspect_err(|_| {
            // The first error is returned; the mask is restored as far as possible.
            let _ = change_mask(libc::SIG_SETMASK, &before);
        })?;
        // SAFETY: the kernel has just given this descriptor to us alone.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(number) }))
    }

    /// Waits for the next signal.
    ///
    /// # Errors
    /// EINTR when another signal was handled meanwhile; EAGAIN when the descriptor was made
    /// non-blocking and none is waiting.
    pub fn read(&self) -> Result<Signal> {
        let mut bytes = [0_u8; size_of::<libc::signalfd_siginfo>()];
        let length = rustix::io::read(&self.0, &mut bytes)?;
        // The kernel writes whole records only.
        if length != bytes.len() {
            return Err(Errno::IO);
        }
        // `struct signalfd_siginfo`: signo, errno, code, pid, ...
        let field = |index: usize| {
            let bytes = bytes[index * 4..].first_chunk::<4>();
            i32::from_ne_bytes(*bytes.expect("the record is 128 bytes"))
        };
        Ok(Signal {
            number: field(0),
            pid: field(3),
            by_kernel: field(2) > 0,
        })
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_ground::in_a_thread;

    /// Needs a process of its own, without the handler.
    #[test]
    fn a_foreign_handler_is_left_alone() {
        const INSIDE: &str = "THRUFS_SYS_TEST_FOREIGN_HANDLER";
        extern "C" fn foreign(_signal: libc::c_int) {}
        if std::env::var_os(INSIDE).is_none() {
            let test = "signal::tests::a_foreign_handler_is_left_alone";
            return crate::test_ground::run_alone(test, INSIDE);
        }
        assert_eq!(interrupt_thread(current_thread_id()), Err(Errno::INVAL));
        let handler = foreign as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // SAFETY: the handler does nothing.
        unsafe { libc::signal(interrupt_signal(), handler) };
        assert_eq!(install_interrupt_handler(), Err(Errno::BUSY));
        assert_eq!(interrupt_thread(current_thread_id()), Err(Errno::INVAL));
        // SAFETY: as above.
        let still = unsafe { libc::signal(interrupt_signal(), libc::SIG_DFL) };
        assert_eq!(still, handler);
        install_interrupt_handler().unwrap();
    }

    #[test]
    fn masks_are_changed_for_the_signals_given() {
        in_a_thread(|| {
            let blocked = |signal: i32| {
                let mask = crate::test_ground::thread_status("SigBlk");
                u64::from_str_radix(&mask, 16).unwrap() >> (signal - 1) & 1 == 1
            };
            block(&[SIGUSR2]).unwrap();
            let _signals = SignalFd::block_and_open(&[SIGTERM]).unwrap();
            assert!(blocked(SIGTERM) && blocked(SIGUSR2));
            unblock(&[SIGUSR2]).unwrap();
            assert!(blocked(SIGTERM) && !blocked(SIGUSR2));
        });
        assert_eq!(block(&[0]).err(), Some(Errno::INVAL));
        let refused = SignalFd::block_and_open(&[SIGTERM, 65]).err();
        assert_eq!(refused, Some(Errno::INVAL));
    }
}
