//! Executes one request that was read, on any thread: on the queue's or a helper's where it does not block,
//! else on one of the blocking pool, which returns it by the [`Mailbox`].

use crate::mailbox::{Mailbox, Returned};
use crate::session::GuestSession;
use crate::slot::Slot;
use std::sync::Arc;
use thrufs::serving::BlockingJob;
use thrufs::{Errno, FileReply, FileSystem, Metrics, Outcome, Wait};

pub(crate) struct Sleeping<F: FileSystem> {
    pub(crate) slot: Slot,
    pub(crate) wait: Wait,
    pub(crate) session: Arc<GuestSession<F>>,
    pub(crate) mailbox: Arc<Mailbox>,
    /// Set when only this data is left to be read.
    pub(crate) file_reply: Option<FileReply>,
}

impl<F: FileSystem> Sleeping<F> {
    /// Executes it to its end, blocking where needed. The session is dropped before the result is returned.
    pub(crate) fn carry_out(mut self) -> Returned {
        let dispatcher = self.session.dispatcher();
        let length = match &self.file_reply {
            None => {
                // The attempt without blocking had no effect, and may have seen nothing for `look_before`.
                self.slot.begin(dispatcher, true);
                self.slot.answer(dispatcher)
            }
            Some(file_reply) => {
                let sent = self.slot.send_file(dispatcher, file_reply, true);
                sent.unwrap_or(0)
            }
        };
        self.slot.answered(length);
        Returned {
            slot: self.slot,
            length,
        }
    }

    /// Executes it on the queue's thread, because the blocking pool has refused it.
    pub(crate) fn carry_out_here(mut self) -> Returned {
        if !self.wait.is_for_lock() {
            return self.carry_out();
        }
        // The queue's thread must not wait for a lock: the unlock may come by this queue.
        let length = self.slot.refuse(self.session.dispatcher(), Errno::ENOLCK);
        Returned {
            slot: self.slot,
            length,
        }
    }
}

impl<F: FileSystem> BlockingJob for Sleeping<F> {
    fn wait(&self) -> Wait {
        self.wait
    }

    fn run(self) -> impl FnOnce() {
        let mailbox = Arc::clone(&self.mailbox);
        let returned = self.carry_out();
        move || mailbox.give_back(returned)
    }
}

pub(crate) enum Carried<F: FileSystem> {
    Out(Returned),
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
    let (wait, file_reply) = match slot.dispatch(dispatcher, false) {
        Outcome::Reply(length) => {
            let length = slot.send(dispatcher, length);
            return Carried::Out(Returned { slot, length });
        }
        Outcome::Silent => return Carried::Out(Returned { slot, length: 0 }),
        Outcome::Defer(wait) => (wait, None),
        Outcome::File(file_reply) => match slot.send_file(dispatcher, &file_reply, false) {
            Ok(length) => return Carried::Out(Returned { slot, length }),
            Err(_) => {
                metrics.count_deferred();
                (Wait::Io, Some(file_reply))
            }
        },
    };
    Carried::Asleep(Sleeping {
        slot,
        wait,
        session: Arc::clone(session),
        mailbox: Arc::clone(mailbox),
        file_reply,
    })
}
