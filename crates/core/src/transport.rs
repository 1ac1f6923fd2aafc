//! Ways in which requests come and replies go.
//!
//! A transport owns memory and threads. It is chosen statically, and knows nothing of what is in a
//! request beyond what [`Dispatcher`] tells it by an
//! [`Outcome`](crate::Outcome). What a mount negotiates, INIT, and what the kernel only ever sends or
//! takes on `/dev/fuse` (FORGET, INTERRUPT, notifications) stay with [`dev`], whichever transport
//! carries the rest.

pub(crate) mod dev;

use crate::dispatch::Dispatcher;
use crate::file_system::FileSystem;
use crate::session::SessionConfig;
use crate::session::control::Control;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What a transport serves from and to: one mounted connection.
#[derive(Debug)]
pub(crate) struct Connection<F> {
    pub(crate) dispatcher: Dispatcher<F>,
    pub(crate) device: OwnedFd,
    /// See [`dev::open_processes`].
    pub(crate) processes: Option<OwnedFd>,
    pub(crate) config: SessionConfig,
    pub(crate) control: Arc<Control>,
}

/// A way of carrying requests.
pub(crate) trait Transport: Sized {
    /// Starts the threads that serve `connection`. They end when its [`Control`] says so, and tell
    /// it when they have.
    ///
    /// # Errors
    ///
    /// What the system says when there is no thread or memory to be had.
    fn start<F: FileSystem>(connection: &Arc<Connection<F>>) -> std::io::Result<Self>;

    /// Wakes threads so that they see that they shall end. Called again at intervals until they
    /// have.
    fn wake(&self);
}
