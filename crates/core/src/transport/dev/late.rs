//! Replies that come later, written by the thread that gives the answer.

use super::buffers::Channel;
use crate::file_system::FileSystem;
use crate::late::LateTarget;
use crate::serving::journal::Place;
use crate::transport::Connection;
use rustix::io::Errno;
use std::sync::Arc;
use thrufs_abi::Header;

pub(super) struct LateReply<F> {
    channel: Arc<Channel>,
    connection: Arc<Connection<F>>,
    request: Header,
    /// In the journal, if it is noted there.
    place: Option<Place>,
}

impl<F> LateReply<F> {
    pub(super) fn new(
        channel: Arc<Channel>,
        connection: &Arc<Connection<F>>,
        request: &Header,
        place: Option<Place>,
    ) -> LateReply<F> {
        LateReply {
            channel,
            connection: Arc::clone(connection),
            request: *request,
            place,
        }
    }
}

impl<F: FileSystem> LateTarget for LateReply<F> {
    fn send(self: Box<Self>, head: &[u8], data: &[u8]) {
        if let Some(place) = &self.place {
            place.answer(self.request.unique, &[head, data].concat());
        }
        let Err(errno) = self.channel.write(head, data) else {
            return;
        };
        let reply = [head, data].concat();
        let dispatcher = &self.connection.dispatcher;
        dispatcher.undelivered_later(&self.request, &reply);
        log_refused(errno);
    }
}

pub(super) fn log_refused(errno: Errno) {
    // The request was aborted, or the connection has ended: both are ordinary.
    if !matches!(errno, Errno::NOENT | Errno::NODEV) {
        tracing::warn!(error = %errno, "the kernel did not take a reply");
    }
}
