//! Executes one request that was read, on any thread: on the queue's or a helper's where it does not block,
//! else on one of the blocking pool, which returns it by the [`Mailbox`].

use crate::mailbox::Mailbox;
use crate::session::GuestSession;
use crate::slot::Slot;
use std::sync::Arc;
use thrufs::serving::BlockingJob;
use thrufs::{Errno, FileReply, FileSystem, Metrics, Outcome, Wait, WindowReply};

/// What is left to be done of a request.
#[derive(Debug)]
pub(crate) enum Left {
    /// To read these data.
    File(FileReply),
    /// To change the window.
    Window(Box<WindowReply>),
}

pub(crate) struct Sleeping<F: FileSystem> {
    pub(crate) slot: Slot,
    pub(crate) wait: Wait,
    pub(crate) session: Arc<GuestSession<F>>,
    pub(crate) mailbox: Arc<Mailbox>,
    /// `None` for all of it.
    pub(crate) left: Option<Left>,
}

impl<F: FileSystem> Sleeping<F> {
    /// Executes it to its end, blocking where needed. The session is dropped before the result is returned.
    pub(crate) fn carry_out(mut self) -> Slot {
        let dispatcher = self.session.dispatcher();
        match &self.left {
            Some(Left::File(file_reply)) => {
                self.slot.send_file(dispatcher, file_reply, true);
            }
            // Only the window's thread can change it, and it has ended.
            Some(Left::Window(reply)) => self.slot.send_window(dispatcher, reply, Err(Errno::EIO)),
            None => {
                // The attempt without blocking had no effect, and may have seen nothing for `look_before`.
                self.slot.begin(dispatcher, true);
                self.slot.answer(dispatcher);
            }
        }
        self.slot.answered();
        self.slot
    }

    /// Completes a request after the window was changed, or could not be.
    pub(crate) fn finish_window(mut self, reply: &WindowReply, result: Result<(), Errno>) {
        let dispatcher = self.session.dispatcher();
        self.slot.send_window(dispatcher, reply, result);
        self.slot.answered();
        drop(self.session);
        self.mailbox.give_back(self.slot);
    }

    /// Executes it on the queue's thread, because the blocking pool has refused it.
    pub(crate) fn carry_out_here(mut self) -> Slot {
        if !self.wait.is_for_lock() {
            return self.carry_out();
        }
        // The queue's thread must not wait for a lock: the unlock may come by this queue.
        self.slot.refuse(self.session.dispatcher(), Errno::ENOLCK);
        self.slot
    }
}

impl<F: FileSystem> BlockingJob for Sleeping<F> {
    fn wait(&self) -> Wait {
        self.wait
    }

    fn run(self) -> impl FnOnce() {
        let mailbox = Arc::clone(&self.mailbox);
        let slot = self.carry_out();
        move || mailbox.give_back(slot)
    }
}

pub(crate) enum Carried<F: FileSystem> {
    Out(Slot),
    Asleep(Sleeping<F>),
}

/// Executes a request that was read, unless it would block.
pub(crate) fn carry_out<F: FileSystem>(
    session: &Arc<GuestSession<F>>,
    mailbox: &Arc<Mailbox>,
    metrics: &Metrics,
    mut slot: Slot,
) -> Carried<F> {
    let dispatcher = session.dispatcher();
    slot.begin(dispatcher, false);
    let (wait, left) = match slot.dispatch(dispatcher, false) {
        Outcome::Reply(length) => {
            slot.send(dispatcher, length);
            return Carried::Out(slot);
        }
        Outcome::Silent => return Carried::Out(slot),
        Outcome::Defer(wait) => (wait, None),
        Outcome::File(file_reply) => {
            if slot.send_file(dispatcher, &file_reply, false) {
                return Carried::Out(slot);
            }
            metrics.count_deferred();
            (Wait::Io, Some(Left::File(file_reply)))
        }
        Outcome::Window(reply) => (Wait::Window, Some(Left::Window(reply))),
    };
    Carried::Asleep(Sleeping {
        slot,
        wait,
        session: Arc::clone(session),
        mailbox: Arc::clone(mailbox),
        left,
    })
}
