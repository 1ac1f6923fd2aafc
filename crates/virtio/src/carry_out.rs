//! Executes one request that was read, on any thread: on the queue's or a helper's where it does not block,
//! else on one of the blocking pool, which returns it by the [`Mailbox`]. A request that the file system answers
//! later is with no thread until then, and is returned by the thread that gives the answer.

use crate::mailbox::Mailbox;
use crate::session::GuestSession;
use crate::slot::{Away, Slot};
use std::sync::Arc;
use thrufs::serving::BlockingJob;
use thrufs::{
    Errno, FileReply, FileSystem, LateRequest, LateTarget, Metrics, Outcome, Wait, WindowReply,
};

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
    /// `None` when it is answered later.
    pub(crate) fn carry_out(mut self) -> Option<Slot> {
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
                if let Some(later) = self.slot.execute(dispatcher) {
                    Late::new(self.slot, &self.session, &self.mailbox, later).keep();
                    return None;
                }
            }
        }
        self.slot.answered();
        Some(self.slot)
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
    pub(crate) fn carry_out_here(mut self) -> Option<Slot> {
        let Some(errno) = self.wait.refusal() else {
            return self.carry_out();
        };
        self.slot.refuse(self.session.dispatcher(), errno);
        Some(self.slot)
    }
}

impl<F: FileSystem> BlockingJob for Sleeping<F> {
    fn wait(&self) -> Wait {
        self.wait
    }

    fn run(self) -> impl FnOnce() {
        let mailbox = Arc::clone(&self.mailbox);
        let slot = self.carry_out();
        move || {
            if let Some(slot) = slot {
                mailbox.give_back(slot);
            }
        }
    }
}

/// A request that is answered later.
pub(crate) struct Late<F: FileSystem> {
    reply: LateReply<F>,
    later: LateRequest,
}

impl<F: FileSystem> Late<F> {
    fn new(
        slot: Slot,
        session: &Arc<GuestSession<F>>,
        mailbox: &Arc<Mailbox>,
        later: LateRequest,
    ) -> Late<F> {
        let reply = LateReply {
            slot,
            session: Arc::clone(session),
            mailbox: Arc::clone(mailbox),
        };
        Late { reply, later }
    }

    /// Its entry in the list of requests that are not on the queue's thread. As a request that waits for a device:
    /// a queue that is stopped waits for the answer.
    pub(crate) fn away(&self) -> Away {
        self.reply.slot.away(Wait::Io)
    }

    /// Has it returned by whoever gives the answer. It is listed as away.
    pub(crate) fn keep(self) {
        self.later.keep(Box::new(self.reply));
    }
}

struct LateReply<F: FileSystem> {
    slot: Slot,
    session: Arc<GuestSession<F>>,
    mailbox: Arc<Mailbox>,
}

impl<F: FileSystem> LateTarget for LateReply<F> {
    fn send(mut self: Box<Self>, head: &[u8], data: &[u8]) {
        self.slot.send_later(self.session.dispatcher(), head, data);
        self.slot.answered();
        // First the session: see `Sleeping::carry_out`.
        drop(self.session);
        self.mailbox.give_back(self.slot);
    }
}

pub(crate) enum Carried<F: FileSystem> {
    Out(Slot),
    Asleep(Sleeping<F>),
    Later(Late<F>),
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
        Outcome::Later(later) => {
            return Carried::Later(Late::new(slot, session, mailbox, later));
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
