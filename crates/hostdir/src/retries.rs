//! Files that go between two requests of one call.
//!
//! open(2) of a name is two requests, LOOKUP and OPEN. When the file is removed in between, nothing leads
//! to it: OPEN is answered with ESTALE, and the kernel tries once more from LOOKUP on, and no third time.
//! So who was answered with ESTALE once must not be again: its next LOOKUP keeps what it finds by a
//! descriptor, and the OPEN after that succeeds, whether the file still has a name or not, as it would
//! have natively a moment earlier. CREATE, which opens nothing that others have made, answers so as well.
//!
//! Who was answered with ESTALE is remembered by its thread's number, a few of them. One that is
//! mistaken costs a descriptor in the cache; one that falls out may see ESTALE.

use crate::host::Host;
use crate::inode::Inode;
use parking_lot::Mutex;
use rustix::fs::Statx;
use std::collections::VecDeque;
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thrufs::{Context, Errno, Result};

/// Most threads that are remembered.
const THREADS_MAX: usize = 64;

/// How often a name is looked up whose file is gone each time. Each time, somebody else got on.
pub(crate) const ATTEMPTS_MAX: usize = 64;

/// The threads that will try again.
#[derive(Default)]
pub(crate) struct Retries {
    are_there: AtomicBool,
    threads: Mutex<VecDeque<u32>>,
}

impl Retries {
    /// Remembers who was answered with ESTALE.
    pub(crate) fn note(&self, context: &Context<'_>, answer: Errno) {
        if answer == Errno::ESTALE {
            self.expect(context.pid());
        }
    }

    #[cold]
    fn expect(&self, thread: u32) {
        let mut threads = self.threads.lock();
        if threads.contains(&thread) {
            return;
        }
        if threads.len() >= THREADS_MAX {
            threads.pop_front();
        }
        threads.push_back(thread);
        self.are_there.store(true, Ordering::Release);
    }

    /// Whether this LOOKUP begins a second attempt.
    #[inline]
    pub(crate) fn begins(&self, context: &Context<'_>) -> bool {
        self.are_there.load(Ordering::Acquire) && self.take(context.pid())
    }

    #[cold]
    fn take(&self, thread: u32) -> bool {
        let mut threads = self.threads.lock();
        let at = threads.iter().position(|other| *other == thread);
        let is_there = at.and_then(|at| threads.remove(at)).is_some();
        self.are_there.store(!threads.is_empty(), Ordering::Release);
        is_there
    }
}

impl Host {
    /// As `look_up`, and what is found can be opened whatever becomes of its name.
    #[cold]
    pub(crate) fn look_up_and_keep(
        &self,
        parent: &Arc<Inode>,
        name: &CStr,
    ) -> Result<(Arc<Inode>, Statx)> {
        for _ in 0..ATTEMPTS_MAX {
            let (inode, stat) = self.look_up(parent, name)?;
            match self.descriptor(&inode) {
                Err(Errno::ESTALE) => self.forget(inode.node(), 1),
                _ => return Ok((inode, stat)),
            }
        }
        Err(Errno::ESTALE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_failed_is_expected_once() {
        let retries = Retries::default();
        assert!(!retries.are_there.load(Ordering::Relaxed));
        retries.expect(7);
        retries.expect(7);
        retries.expect(8);
        assert!(!retries.take(9) && retries.take(7) && !retries.take(7));
        assert!(retries.are_there.load(Ordering::Relaxed));
        assert!(retries.take(8));
        assert!(!retries.are_there.load(Ordering::Relaxed));
    }

    #[test]
    fn so_many_are_remembered() {
        let retries = Retries::default();
        for thread in 0..THREADS_MAX as u32 + 5 {
            retries.expect(thread);
        }
        assert_eq!(retries.threads.lock().len(), THREADS_MAX);
        assert!(!retries.take(4) && retries.take(5));
    }
}
