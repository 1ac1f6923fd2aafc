//! A request in a slot: carried out at once, on a thread that may sleep, or by the kernel.

use super::worker::Worker;
use crate::dispatch::{Dispatcher, FileReply, Message, Outcome, Wait};
use crate::errno::Errno;
use crate::file_system::FileSystem;
use crate::late::{LateRequest, LateTarget};
use crate::reply::put_header;
use crate::serving::BlockingJob;
use crate::transport::Connection;
use std::sync::Arc;
use thrufs_abi::Unique;
use thrufs_abi::layout::InHeader;
use thrufs_sys::fuse_ring::{RingRequest, Slot};
use zerocopy::FromBytes;

/// A READ that the kernel carries out.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) file_reply: FileReply,
    pub(super) filled: usize,
}

/// The request in a slot, and the buffer for its reply.
pub(super) fn message(slot: &mut Slot) -> (Message<'_>, &mut [u8]) {
    let RingRequest {
        header,
        structure,
        rest,
        reply,
    } = slot.request();
    let message = Message::Pieces {
        header,
        structure,
        rest,
    };
    (message, reply)
}

/// A request that is answered later, by any thread: it writes the reply to the slot, which the ring's thread
/// sends.
struct LateSlot {
    slot: Slot,
    worker: Arc<Worker>,
}

impl LateTarget for LateSlot {
    fn send(mut self: Box<Self>, head: &[u8], data: &[u8]) {
        let RingRequest { header, reply, .. } = self.slot.request();
        let length = put_late(reply, head, data).unwrap_or_else(|| {
            let unique = InHeader::ref_from_prefix(header).map_or(0, |(header, _)| header.unique);
            put_header(reply, Unique(unique), Err(Errno::EIO))
        });
        self.worker.return_slot(self.slot, length);
    }
}

/// Writes a reply in two parts; `None` when it does not fit, which no kernel asks for.
fn put_late(reply: &mut [u8], head: &[u8], data: &[u8]) -> Option<usize> {
    let length = head.len() + data.len();
    let (head_part, data_part) = reply.get_mut(..length)?.split_at_mut(head.len());
    head_part.copy_from_slice(head);
    data_part.copy_from_slice(data);
    Some(length)
}

/// What became of a request on a thread that may sleep.
pub(super) enum Answered {
    /// Its reply has this length.
    Now(Slot, usize),
    /// The slot comes back with the reply.
    Later,
}

#[derive(Debug)]
pub(super) struct Sleeping<F> {
    pub(super) slot: Slot,
    pub(super) wait: Wait,
    pub(super) worker: Arc<Worker>,
    pub(super) connection: Arc<Connection<F>>,
}

impl<F: FileSystem> BlockingJob for Sleeping<F> {
    fn wait(&self) -> Wait {
        self.wait
    }

    fn run(self) -> impl FnOnce() {
        let answered = answer(&self.connection.dispatcher, self.slot, &self.worker);
        move || {
            if let Answered::Now(slot, length) = answered {
                self.worker.return_slot(slot, length);
            }
        }
    }
}

/// Carries out a request to its end, or until it is to be answered later.
pub(super) fn answer<F: FileSystem>(
    dispatcher: &Dispatcher<F>,
    mut slot: Slot,
    worker: &Arc<Worker>,
) -> Answered {
    let (message, reply) = message(&mut slot);
    let length = match dispatcher.dispatch(message, reply, true) {
        Outcome::Reply(length) => length,
        Outcome::File(file_reply) => {
            let result = file_reply.read_into(reply, true);
            dispatcher.finish_file_reply(&file_reply, reply, result)
        }
        Outcome::Later(later) => {
            answer_later(later, slot, worker);
            return Answered::Later;
        }
        Outcome::Window(_) => unreachable!("this transport has no window"),
        Outcome::Silent | Outcome::Defer(_) => 0,
    };
    Answered::Now(slot, length)
}

pub(super) fn answer_later(later: LateRequest, slot: Slot, worker: &Arc<Worker>) {
    let worker = Arc::clone(worker);
    later.keep(Box::new(LateSlot { slot, worker }));
}
