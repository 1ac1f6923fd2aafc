//! Carrying a request out, by whoever has it in hand.

use crate::post::{Post, Returned};
use crate::session::GuestSession;
use crate::slot::Slot;
use std::sync::Arc;
use thrufs::serving::BlockingJob;
use thrufs::{FileReply, FileSystem, Metrics, Outcome, Wait};

/// A request that will sleep.
pub(crate) struct Sleeping<F: FileSystem> {
    pub(crate) slot: Slot,
    pub(crate) wait: Wait,
    /// Whose request it is.
    pub(crate) session: Arc<GuestSession<F>>,
    /// Where it goes back to.
    pub(crate) post: Arc<Post>,
    /// It was carried out but for the bytes of this.
    pub(crate) file_reply: Option<FileReply>,
}

impl<F: FileSystem> Sleeping<F> {
    /// Carries it out to its end, sleeping where needed. The session is let go before anybody hears of
    /// the result.
    pub(crate) fn carry_out(mut self) -> Returned {
        let dispatcher = self.session.dispatcher();
        let length = match &self.file_reply {
            None => {
                // Nothing was done yet; what could be seen without sleeping may have been nothing.
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
}

impl<F: FileSystem> BlockingJob for Sleeping<F> {
    fn wait(&self) -> Wait {
        self.wait
    }

    fn run(self) -> impl FnOnce() {
        let post = Arc::clone(&self.post);
        let returned = self.carry_out();
        move || post.give_back(returned)
    }
}

/// What has become of a request.
pub(crate) enum Carried<F: FileSystem> {
    /// It was carried out.
    Out(Returned),
    /// It would sleep.
    Asleep(Sleeping<F>),
}

/// Carries out a request that was read, unless it would sleep.
pub(crate) fn carry_out<F: FileSystem>(
    session: &Arc<GuestSession<F>>,
    post: &Arc<Post>,
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
        post: Arc::clone(post),
        file_reply,
    })
}
