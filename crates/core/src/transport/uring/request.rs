//! A request in a slot: carried out at once, on a thread that may sleep, or by the kernel.

use super::worker::Worker;
use crate::dispatch::{Dispatcher, FileReply, Message, Wait};
use crate::file_system::FileSystem;
use crate::serving::BlockingJob;
use crate::transport::Connection;
use std::sync::Arc;
use thrufs_sys::fuse_ring::{RingRequest, Slot};

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

    fn run(mut self) -> impl FnOnce() {
        let length = answer(&self.connection.dispatcher, &mut self.slot);
        move || self.worker.return_slot(self.slot, length)
    }
}

/// Carries out a request to its end. Returns the length of the reply.
pub(super) fn answer<F: FileSystem>(dispatcher: &Dispatcher<F>, slot: &mut Slot) -> usize {
    let (message, reply) = message(slot);
    dispatcher.answer(message, reply)
}
