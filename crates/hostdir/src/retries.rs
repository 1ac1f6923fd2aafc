//! Files that go between two requests of one call.
//!
//! open(2) of a name is two requests, LOOKUP and OPEN. When the file is removed in between, nothing leads
//! to it: OPEN is answered with ESTALE, and the kernel tries once more from LOOKUP on, and no third time.
//! So who was answered with ESTALE once must not be again: its next LOOKUPs keep what they find by a
//! descriptor, and the OPEN after that succeeds, whether the file still has a name or not, as it would
//! have natively a moment earlier. So it is with chmod(2), link(2) and whatever else takes a path. CREATE,
//! which opens nothing that others have made, answers so as well, and may have to a second time: where the
//! second LOOKUP finds nothing, and somebody makes the file before the second CREATE.
//!
//! A second attempt is several LOOKUPs: each directory of the path is looked at anew, and a name behind
//! which the kernel finds another file than before is looked up twice.
//!
//! Who was answered with ESTALE is remembered by its thread's number until it has opened, changed or linked
//! something, a few of them and not for long. One that is mistaken costs a descriptor in the cache; one
//! that falls out may see ESTALE. What a thread has found and never uses is kept until it uses something
//! else so, or until so many others were late.

use crate::host::Host;
use crate::inode::{Descriptor, Inode};
use parking_lot::Mutex;
use rustix::fs::Statx;
use std::collections::VecDeque;
use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thrufs::{Context, Errno, Result};
use thrufs_abi::NodeId;

/// Most threads that are remembered.
const THREADS_MAX: usize = 64;

/// How many LOOKUPs of a thread may belong to its second attempt.
const LOOKUPS_MAX: u32 = 64;

/// How often a name is looked up whose file is gone each time. Each time, somebody else got on.
pub(crate) const ATTEMPTS_MAX: usize = 64;

/// The threads that will try again.
#[derive(Default)]
pub(crate) struct Retries {
    are_there: AtomicBool,
    threads: Mutex<VecDeque<Expected>>,
}

/// A thread, and how many LOOKUPs it may still make.
struct Expected {
    thread: u32,
    lookups_left: u32,
    /// What its latest LOOKUP has found. Whoever removes the last name has the inode let go of its own.
    found: Option<(NodeId, Arc<OwnedFd>)>,
}

impl Retries {
    /// How what a path was looked up for ended.
    #[inline]
    pub(crate) fn note<T>(&self, context: &Context<'_>, result: Result<T>) -> Result<T> {
        match &result {
            Err(error) => self.failed(context, *error),
            Ok(_) => self.end(context),
        }
        result
    }

    /// Remembers who was answered with ESTALE.
    pub(crate) fn failed(&self, context: &Context<'_>, error: Errno) {
        if error == Errno::ESTALE {
            self.expect(context.pid());
        }
    }

    #[cold]
    fn expect(&self, thread: u32) {
        let mut threads = self.threads.lock();
        threads.retain(|expected| expected.thread != thread);
        if threads.len() >= THREADS_MAX {
            threads.pop_front();
        }
        threads.push_back(Expected {
            thread,
            lookups_left: LOOKUPS_MAX,
            found: None,
        });
        self.are_there.store(true, Ordering::Release);
    }

    /// Whether this LOOKUP belongs to a second attempt.
    #[inline]
    pub(crate) fn begins(&self, context: &Context<'_>) -> bool {
        self.are_there.load(Ordering::Acquire) && self.count_lookup(context.pid())
    }

    #[cold]
    fn count_lookup(&self, thread: u32) -> bool {
        let mut threads = self.threads.lock();
        let Some(at) = threads.iter().position(|other| other.thread == thread) else {
            return false;
        };
        if let Some(expected) = threads.get_mut(at) {
            expected.lookups_left -= 1;
            if expected.lookups_left == 0 {
                threads.remove(at);
            }
        }
        self.are_there.store(!threads.is_empty(), Ordering::Release);
        true
    }

    /// Keeps what a thread has found, if it is still expected.
    fn keep(&self, thread: u32, node: NodeId, fd: Arc<OwnedFd>) {
        let mut threads = self.threads.lock();
        if let Some(expected) = threads.iter_mut().find(|other| other.thread == thread) {
            expected.found = Some((node, fd));
        }
    }

    /// What a thread has found, if one has found this node.
    pub(crate) fn kept(&self, node: NodeId) -> Option<Arc<OwnedFd>> {
        if !self.are_there.load(Ordering::Acquire) {
            return None;
        }
        let threads = self.threads.lock();
        let mut found = threads.iter().filter_map(|thread| thread.found.as_ref());
        let (_, fd) = found.find(|(found, _)| *found == node)?;
        Some(Arc::clone(fd))
    }

    /// Who asks has used what it found: its attempt is over.
    #[inline]
    fn end(&self, context: &Context<'_>) {
        if self.are_there.load(Ordering::Acquire) {
            self.forget(context.pid());
        }
    }

    #[cold]
    fn forget(&self, thread: u32) {
        let mut threads = self.threads.lock();
        threads.retain(|expected| expected.thread != thread);
        self.are_there.store(!threads.is_empty(), Ordering::Release);
    }
}

impl Host {
    /// As `lookup_name`, and what is found can be used whatever becomes of its name.
    #[cold]
    pub(crate) fn lookup_and_keep(
        &self,
        context: &Context<'_>,
        parent: &Arc<Inode>,
        name: &CStr,
    ) -> Result<(Arc<Inode>, Statx)> {
        for _ in 0..ATTEMPTS_MAX {
            let (inode, stat) = self.lookup_name(parent, name)?;
            match self.descriptor(&inode) {
                // Its name is gone again, whether or not somebody else still has it open.
                Ok(Descriptor::Opened(_)) | Err(Errno::ESTALE) => self.forget(inode.node(), 1),
                Ok(Descriptor::Cached(fd)) => {
                    // Directories are used by way of the names in them, and not for long.
                    if !inode.is_directory() {
                        self.retries.keep(context.pid(), inode.node(), fd);
                    }
                    return Ok((inode, stat));
                }
                Err(_) => return Ok((inode, stat)),
            }
        }
        Err(Errno::ESTALE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_failed_is_expected_until_it_has_opened_something() {
        let retries = Retries::default();
        let are_there = || retries.are_there.load(Ordering::Relaxed);
        assert!(!are_there());
        retries.expect(7);
        assert!(are_there());
        retries.expect(7);
        retries.expect(8);
        assert_eq!(retries.threads.lock().len(), 2);
        assert!(!retries.count_lookup(9));
        assert!(retries.count_lookup(7) && retries.count_lookup(7));
        retries.forget(7);
        assert!(!retries.count_lookup(7) && are_there());
        retries.forget(8);
        assert!(!are_there());
    }

    #[test]
    fn so_many_are_remembered_for_so_long() {
        let retries = Retries::default();
        for thread in 0..THREADS_MAX as u32 + 5 {
            retries.expect(thread);
        }
        assert_eq!(retries.threads.lock().len(), THREADS_MAX);
        assert!(!retries.count_lookup(4));
        for _ in 0..LOOKUPS_MAX {
            assert!(retries.count_lookup(5));
        }
        assert!(!retries.count_lookup(5));
        assert_eq!(retries.threads.lock().len(), THREADS_MAX - 1);
    }
}
