//! What is left for the thread of a queue by others: another set-up, requests that were carried out
//! elsewhere, the news that the session is another or that it shall end.
//!
//! The thread looks at one flag before it takes a request, after it has seen that there is one. So what
//! the front end was told is done (a region of memory, for instance) is in force for every request that
//! the guest makes afterwards. Only when the flag is set is the mail, and its lock, looked at.

use crate::frame::Kind;
use crate::memory::Regions;
use crate::queue::RingLog;
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
    pub(crate) log: Option<RingLog>,
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
pub(crate) struct Mail {
    pub(crate) wiring: Option<Wiring>,
    pub(crate) returned: Vec<Returned>,
    /// Requests that were taken elsewhere and that only the thread of the queue may carry out.
    pub(crate) undone: Vec<(Slot, Kind)>,
    pub(crate) stops: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Post {
    news: AtomicBool,
    mail: Mutex<Mail>,
    bell: OwnedFd,
}

impl Post {
    pub(crate) fn new() -> rustix::io::Result<Post> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Post {
            news: AtomicBool::new(false),
            mail: Mutex::default(),
            bell: eventfd(0, flags)?,
        })
    }

    /// Leaves something, and wakes the thread if there is one.
    fn leave(&self, change: impl FnOnce(&mut Mail)) {
        change(&mut self.mail.lock());
        self.news.store(true, Ordering::SeqCst);
        ring(self.bell.as_fd());
    }

    /// Leaves another set-up.
    pub(crate) fn rewire(&self, wiring: Wiring) {
        self.leave(|mail| mail.wiring = Some(wiring));
    }

    /// Gives a request back that was carried out.
    pub(crate) fn give_back(&self, returned: Returned) {
        self.leave(|mail| mail.returned.push(returned));
    }

    /// Hands a request over that was taken and not begun.
    pub(crate) fn hand_over(&self, slot: Slot, kind: Kind) {
        self.leave(|mail| mail.undone.push((slot, kind)));
    }

    /// Has the thread look at what has changed elsewhere.
    pub(crate) fn alert(&self) {
        self.leave(|_| {});
    }

    /// Asks the thread to end.
    pub(crate) fn stop(&self) {
        self.leave(|mail| mail.stops = true);
    }

    /// Makes ready for another thread. What was given back meanwhile stays for it.
    pub(crate) fn restart(&self) {
        self.leave(|mail| (mail.stops, mail.wiring) = (false, None));
    }

    /// Whether there may be something.
    pub(crate) fn has_news(&self) -> bool {
        self.news.load(Ordering::SeqCst)
    }

    /// What there is, if the flag was set.
    pub(crate) fn collect(&self) -> Option<Mail> {
        if !self.has_news() {
            return None;
        }
        // First the flag: what is left from now on sets it again.
        self.news.store(false, Ordering::SeqCst);
        let mut mail = self.mail.lock();
        Some(Mail {
            wiring: mail.wiring.take(),
            returned: std::mem::take(&mut mail.returned),
            undone: std::mem::take(&mut mail.undone),
            stops: mail.stops,
        })
    }

    /// Becomes readable whenever something was left. It is never read: who waits for it waits for the
    /// edge.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// Adds one to an eventfd.
pub(crate) fn ring(eventfd: BorrowedFd<'_>) {
    loop {
        match rustix::io::write(eventfd, &1_u64.to_ne_bytes()) {
            Err(rustix::io::Errno::INTR) => {}
            // Full is as good as rung; a descriptor that takes nothing is its giver's affair.
            _ => return,
        }
    }
}
