//! What is left for the thread of a queue by others: another set-up, requests that were carried out
//! elsewhere, the news that the session is another or that it shall end.
//!
//! The thread looks at one flag before it takes a request, after it has seen that there is one. So what
//! the front end was told is done (a region of memory, for instance) is in force for every request that
//! the guest makes afterwards. Only when the flag is set is the messages, and its lock, looked at.

use crate::frame::Kind;
use crate::memory::Regions;
use crate::queue::VirtqueueLog;
use crate::slot::Slot;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

/// How a queue is served now.
#[derive(Clone, Debug)]
pub(crate) struct Wiring {
    /// The guest's memory.
    pub(crate) regions: Arc<Regions>,
    /// Where the guest tells us of requests.
    pub(crate) kick: Arc<OwnedFd>,
    /// Where we tell it of replies; nowhere when it looks by itself.
    pub(crate) call: Option<Arc<OwnedFd>>,
    /// Where we tell the front end that the queue is broken.
    pub(crate) error: Option<Arc<OwnedFd>>,
    /// Whether requests are to be taken.
    pub(crate) enabled: bool,
    /// Where to note what is written.
    pub(crate) log: Option<VirtqueueLog>,
    /// Dropped when all this is in force, also for requests that were in progress.
    pub(crate) in_force: Option<Sender<()>>,
}

/// A request that was carried out elsewhere.
#[derive(Debug)]
pub(crate) struct Returned {
    pub(crate) slot: Slot,
    /// How many bytes were written for it.
    pub(crate) length: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Messages {
    pub(crate) wiring: Option<Wiring>,
    pub(crate) returned: Vec<Returned>,
    /// Requests that were taken elsewhere and that only the thread of the queue may carry out.
    pub(crate) undone: Vec<(Slot, Kind)>,
    pub(crate) stops: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Mailbox {
    pending: AtomicBool,
    messages: Mutex<Messages>,
    eventfd: OwnedFd,
}

impl Mailbox {
    pub(crate) fn new() -> rustix::io::Result<Mailbox> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Mailbox {
            pending: AtomicBool::new(false),
            messages: Mutex::default(),
            eventfd: eventfd(0, flags)?,
        })
    }

    /// Leaves something, and wakes the thread if there is one.
    fn leave(&self, change: impl FnOnce(&mut Messages)) {
        change(&mut self.messages.lock());
        self.pending.store(true, Ordering::SeqCst);
        signal(self.eventfd.as_fd());
    }

    /// Leaves another set-up.
    pub(crate) fn rewire(&self, wiring: Wiring) {
        self.leave(|messages| messages.wiring = Some(wiring));
    }

    /// Gives a request back that was carried out.
    pub(crate) fn give_back(&self, returned: Returned) {
        self.leave(|messages| messages.returned.push(returned));
    }

    /// Hands a request over that was taken and not begun.
    pub(crate) fn hand_over(&self, slot: Slot, kind: Kind) {
        self.leave(|messages| messages.undone.push((slot, kind)));
    }

    /// Has the thread look at what has changed elsewhere.
    pub(crate) fn alert(&self) {
        self.leave(|_| {});
    }

    /// Asks the thread to end.
    pub(crate) fn stop(&self) {
        self.leave(|messages| messages.stops = true);
    }

    /// Makes ready for another thread. What was given back meanwhile stays for it.
    pub(crate) fn restart(&self) {
        self.leave(|messages| (messages.stops, messages.wiring) = (false, None));
    }

    /// Whether there may be something.
    pub(crate) fn has_messages(&self) -> bool {
        self.pending.load(Ordering::SeqCst)
    }

    /// What there is, if the flag was set.
    pub(crate) fn collect(&self) -> Option<Messages> {
        if !self.has_messages() {
            return None;
        }
        // First the flag: what is left from now on sets it again.
        self.pending.store(false, Ordering::SeqCst);
        let mut messages = self.messages.lock();
        Some(Messages {
            wiring: messages.wiring.take(),
            returned: std::mem::take(&mut messages.returned),
            undone: std::mem::take(&mut messages.undone),
            stops: messages.stops,
        })
    }

    /// Becomes readable whenever something was left. It is never read: who waits for it waits for the
    /// edge.
    pub(crate) fn eventfd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

/// Adds one to an eventfd.
pub(crate) fn signal(eventfd: BorrowedFd<'_>) {
    loop {
        match rustix::io::write(eventfd, &1_u64.to_ne_bytes()) {
            Err(rustix::io::Errno::INTR) => {}
            // Full is as good as rung; a descriptor that takes nothing is its giver's affair.
            _ => return,
        }
    }
}
