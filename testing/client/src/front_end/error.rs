//! Errors between a front end and its server.

use std::io;

/// Why a front end cannot connect.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The socket cannot be connected.
    #[error("cannot connect: {0}")]
    Socket(io::Error),
    /// Memory or eventfds cannot be made.
    #[error("cannot make the memory and the signals of a guest: {0}")]
    Resources(#[from] io::Error),
    /// The configuration is invalid.
    #[error("{0}")]
    Configuration(&'static str),
    /// A message was refused, answered wrongly or not at all.
    #[error("{message}: {source}")]
    Message {
        /// The name of the message in the specification.
        message: &'static str,
        /// Its error.
        source: vhost::Error,
    },
    /// The server lacks a feature that every virtio-fs device has.
    #[error("the server does not offer {0}")]
    Missing(&'static str),
    /// The handshake was left on purpose, by [`misbehave`](crate::misbehave).
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
    /// The request has no bytes and no room for a reply.
    #[error("the request has no bytes and no reply")]
    Empty,
    /// The device broke the queue earlier.
    #[error("the device broke the queue")]
    Broken,
}

/// Why a queue has failed.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// The device returned a chain that it did not have.
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
    /// The queue has failed.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// It was not answered in time. Its buffers stay with the device.
    #[error("no answer within the time limit")]
    Late,
}
