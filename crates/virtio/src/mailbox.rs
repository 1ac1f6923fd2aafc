//! Messages to the thread of a queue: another set-up, requests that other threads have executed, a change of
//! the session, the order to stop.
//!
//! The thread checks one flag after it has seen a request and before it takes it. So a change that was
//! acknowledged to the front end (a memory region, for instance) applies to every request that the guest
//! makes afterwards. The lock is taken only when the flag is set.

use crate::memory::Regions;
use crate::queue::VirtqueueLog;
use crate::slot::Slot;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

#[derive(Clone, Debug)]
pub(crate) struct Wiring {
    pub(crate) regions: Arc<Regions>,
    pub(crate) kick: Arc<OwnedFd>,
    /// `None` when the guest polls.
    pub(crate) call: Option<Arc<OwnedFd>>,
    pub(crate) error: Option<Arc<OwnedFd>>,
    pub(crate) enabled: bool,
    pub(crate) log: Option<VirtqueueLog>,
    /// Dropped once this applies, also to requests that were in progress.
    pub(crate) in_force: Option<Sender<()>>,
}

#[derive(Debug, Default)]
pub(crate) struct Messages {
    pub(crate) wiring: Option<Wiring>,
    /// Requests that other threads have executed.
    pub(crate) returned: Vec<Slot>,
    /// Requests that a helper took and that only the queue's thread may execute.
    pub(crate) undone: Vec<Slot>,
    pub(crate) stops: bool,
}

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

    /// Changes the messages and wakes the thread, if it runs.
    fn leave(&self, change: impl FnOnce(&mut Messages)) {
        change(&mut self.messages.lock());
        self.pending.store(true, Ordering::SeqCst);
        signal(self.eventfd.as_fd());
    }

    pub(crate) fn rewire(&self, wiring: Wiring) {
        self.leave(|messages| messages.wiring = Some(wiring));
    }

    pub(crate) fn give_back(&self, slot: Slot) {
        self.leave(|messages| messages.returned.push(slot));
    }

    /// Passes on a request that was taken and not begun.
    pub(crate) fn hand_over(&self, slot: Slot) {
        self.leave(|messages| messages.undone.push(slot));
    }

    /// Wakes the thread to see a change of the session.
    pub(crate) fn alert(&self) {
        self.leave(|_| {});
    }

    pub(crate) fn stop(&self) {
        self.leave(|messages| messages.stops = true);
    }

    /// Prepares for the queue's next thread, which gets the requests that were returned meanwhile.
    pub(crate) fn restart(&self) {
        self.leave(|messages| (messages.stops, messages.wiring) = (false, None));
    }

    /// Whether the thread is to stop.
    pub(crate) fn stops(&self) -> bool {
        self.has_messages() && self.messages.lock().stops
    }

    pub(crate) fn has_messages(&self) -> bool {
        self.pending.load(Ordering::SeqCst)
    }

    pub(crate) fn collect(&self) -> Option<Messages> {
        if !self.has_messages() {
            return None;
        }
        // First the flag: a message put from now on sets it again.
        self.pending.store(false, Ordering::SeqCst);
        let mut messages = self.messages.lock();
        let stops = messages.stops;
        let none = Messages {
            stops,
            ..Messages::default()
        };
        Some(std::mem::replace(&mut *messages, none))
    }

    /// Signalled with every message. Never read: epoll waits for it edge-triggered.
    pub(crate) fn eventfd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

pub(crate) fn signal(eventfd: BorrowedFd<'_>) {
    loop {
        match rustix::io::write(eventfd, &1_u64.to_ne_bytes()) {
            Err(rustix::io::Errno::INTR) => {}
            // EAGAIN: the counter is full, so the reader wakes anyway. Other errors are the front end's fault.
            _ => return,
        }
    }
}
