//! What can go wrong between a front end and its server.

use std::io;

/// Why there is no front end.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nobody listens on the socket, or it is not to be reached.
    #[error("cannot connect: {0}")]
    Socket(io::Error),
    /// No memory, or no descriptors.
    #[error("cannot make the memory and the signals of a guest: {0}")]
    Resources(#[from] io::Error),
    /// The configuration does not make sense.
    #[error("{0}")]
    Configuration(&'static str),
    /// A message was refused, answered wrongly or not at all.
    #[error("{message}: {source}")]
    Message {
        /// The message, as the specification calls it.
        message: &'static str,
        /// What became of it.
        source: vhost::Error,
    },
    /// The server lacks what no virtio-fs device can do without.
    #[error("the server does not offer {0}")]
    Missing(&'static str),
    /// It was left on purpose ([`misbehave`](crate::misbehave)).
    #[error("left on purpose")]
    Left,
}

/// Why a request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// All buffers or descriptors are in use: take completions first.
    #[error("the queue is full")]
    Full,
    /// No buffer is large enough for the request or its reply.
    #[error("the request or its reply is too large for the buffers of this front end")]
    TooLarge,
    /// There is nothing to be read and no room for a reply.
    #[error("the request has no bytes and no reply")]
    Empty,
    /// The device broke the queue earlier.
    #[error("the device broke the queue")]
    Broken,
}

/// Why a queue does not go on.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// The device gave back what it did not have.
    #[error("the device broke the queue: {0}")]
    Broken(&'static str),
    /// The server closed the socket.
    #[error("the server is gone")]
    Gone,
    /// Waiting failed.
    #[error("cannot wait for the device: {0}")]
    Waiting(io::Error),
}

/// Why a request has no reply.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// It was not sent.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The queue does not go on.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// It was not answered in time. Its buffers stay with the device.
    #[error("no answer within the time limit")]
    Late,
}
