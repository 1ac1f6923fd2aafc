//! How requests get to a server.

use std::sync::{Arc, Mutex, PoisonError};
use thrufs::{Dispatcher, FileSystem};

/// Carries requests to a server and replies back.
///
/// The calls of [`Caller`](crate::Caller) are made over any carrier: [`InProcess`] for a file system
/// in the same process, or what else reaches a server.
pub trait Carrier: Sync {
    /// Sends bytes as they are, a request or not, and waits for the reply.
    ///
    /// `reply_bytes_max` is the room for the reply, with its header, in bytes. An empty answer
    /// means that there was none: the request has no reply (FORGET), or it got lost.
    fn transact(&self, request: &[u8], reply_bytes_max: usize) -> Vec<u8>;
}

impl<C: Carrier> Carrier for &C {
    fn transact(&self, request: &[u8], reply_bytes_max: usize) -> Vec<u8> {
        C::transact(self, request, reply_bytes_max)
    }
}

/// The least room for replies: 1 MiB of data and a header, so that a file system that answers with
/// more than was asked for is seen to do so.
const REPLY_BYTES: usize = (1 << 20) + 4096;

/// Carries requests to a file system in the same process, through the dispatch that serves a mount.
///
/// Each request is carried out by the thread that makes it, to its end, sleeping where needed. The
/// file system's session ends ([`FileSystem::destroy`]) when this is dropped.
pub struct InProcess<F: FileSystem> {
    dispatcher: Dispatcher<F>,
    replies: Mutex<Vec<Vec<u8>>>,
}

impl<F: FileSystem> InProcess<F> {
    /// A carrier to `fs`.
    pub fn new(fs: Arc<F>) -> InProcess<F> {
        InProcess {
            dispatcher: Dispatcher::new(fs),
            replies: Mutex::default(),
        }
    }

    /// The dispatch in between.
    pub fn dispatcher(&self) -> &Dispatcher<F> {
        &self.dispatcher
    }
}

impl<F: FileSystem> Carrier for InProcess<F> {
    fn transact(&self, request: &[u8], reply_bytes_max: usize) -> Vec<u8> {
        let pool = || self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = pool().pop();
        let mut buffer = kept.unwrap_or_else(|| vec![0; REPLY_BYTES]);
        if buffer.len() < reply_bytes_max {
            buffer.resize(reply_bytes_max, 0);
        }
        let length = self.dispatcher.answer(request, &mut buffer);
        let reply = buffer[..length].to_vec();
        pool().push(buffer);
        reply
    }
}

impl<F: FileSystem> Drop for InProcess<F> {
    fn drop(&mut self) {
        self.dispatcher.file_system().destroy();
    }
}
