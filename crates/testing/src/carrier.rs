//! Transports of requests to a server.

use std::sync::{Arc, Mutex, PoisonError};
use thrufs::{Dispatcher, FileSystem};

/// Carries requests to a server and replies back.
///
/// [`Caller`](crate::Caller) works over any carrier: [`InProcess`], for a file system in the same process, or
/// another.
pub trait Carrier: Sync {
    /// Sends bytes, a valid request or not, and waits for the reply.
    ///
    /// `reply_bytes_max` is the room for the reply with its header, in bytes. Returns nothing when there is no
    /// reply (FORGET), or when it was lost.
    fn transact(&self, request: &[u8], reply_bytes_max: usize) -> Vec<u8>;
}

impl<C: Carrier> Carrier for &C {
    fn transact(&self, request: &[u8], reply_bytes_max: usize) -> Vec<u8> {
        C::transact(self, request, reply_bytes_max)
    }
}

impl<C: Carrier + Send> Carrier for Arc<C> {
    fn transact(&self, request: &[u8], reply_bytes_max: usize) -> Vec<u8> {
        C::transact(self, request, reply_bytes_max)
    }
}

/// The least room for replies: 1 MiB of data and a header, so that a reply longer than requested shows.
const REPLY_BYTES: usize = (1 << 20) + 4096;

/// Carries requests to a file system in the same process, through the dispatch that serves a mount.
///
/// The calling thread executes each request to its end, blocking where needed. Dropping this ends the file
/// system's session ([`FileSystem::destroy`]).
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

    /// The dispatcher.
    pub fn dispatcher(&self) -> &Dispatcher<F> {
        &self.dispatcher
    }
}

impl<F: FileSystem> Carrier for InProcess<F> {
    fn transact(&self, request: &[u8], reply_bytes_max: usize) -> Vec<u8> {
        let pool = || self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffer = pool().pop().unwrap_or_else(|| vec![0; REPLY_BYTES]);
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
