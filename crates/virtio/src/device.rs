//! The device: serves one front end per call, from its connection to its end. Starts the threads and waits
//! for them; the messages of the front end are handled in [`control`](crate::control), its requests in
//! [`serving`](crate::serving).

use crate::callers::Caller;
use crate::config::DeviceConfig;
use crate::connection::Connection;
use crate::control::Control;
use crate::error::DeviceError;
use crate::journal::Journal;
use crate::mailbox::Mailbox;
use crate::session::{MakeFileSystem, NullFileSystem, Sessions};
use crate::shared::Shared;
use crate::stall_monitor::{StallMonitor, Watch};
use crate::window::{Window, back_end_channel};
use std::fmt;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use thrufs::serving::{BlockingLimits, BlockingPool, ServingThreads, allowed_cpus};
use thrufs::{Dispatcher, Metrics, Snapshot};
use thrufs_sys::signal::install_interrupt_handler;
use vhost::vhost_user::{BackendReqHandler, Error};

/// What else is known of a connection.
#[derive(Debug, Default)]
pub struct ConnectionOptions {
    /// Threads of the front end, at most [`CALLERS_MAX`](crate::CALLERS_MAX). A queue's thread may be bound to
    /// the CPU of one of them, in the class SCHED_IDLE, while that one sends one request at a time.
    pub callers: Vec<Caller>,
    /// Records what another process needs to resume this connection when this one is killed. If it has
    /// records of a killed process, its session is resumed, whose file system
    /// [recovers](thrufs::FileSystem::recover), and so are its requests in flight. The stream must lead to a
    /// [`VhostProxy`](crate::VhostProxy) then.
    pub journal: Option<Journal>,
}

/// Why [`Device::serve`] has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// The front end has disconnected.
    Disconnected,
    /// [`DeviceHandle::shutdown`] was called.
    ShutDown,
}

/// A virtio-fs device.
pub struct Device<M> {
    make: Arc<M>,
    config: DeviceConfig,
    handle: DeviceHandle,
}

/// Ends a device and reads its counters, from any thread. Clones refer to the same device.
#[derive(Clone, Debug)]
pub struct DeviceHandle {
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    metrics: Arc<Metrics>,
    stopping: AtomicBool,
    connections: parking_lot::Mutex<Vec<Arc<Connection>>>,
}

impl DeviceHandle {
    /// Ends the device, without waiting: [`Device::serve`] returns when requests in progress have ended, or
    /// after [`DeviceConfig::drain_timeout`]; a later call returns at once.
    pub fn shutdown(&self) {
        self.state.stopping.store(true, Ordering::SeqCst);
        self.state
            .connections
            .lock()
            .iter()
            .for_each(|connection| connection.cut());
    }

    /// The counters of all sessions.
    pub fn metrics(&self) -> Snapshot {
        self.state.metrics.snapshot()
    }

    fn is_stopping(&self) -> bool {
        self.state.stopping.load(Ordering::SeqCst)
    }
}

impl<M> fmt::Debug for Device<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("config", &self.config)
            .field("handle", &self.handle)
            .finish_non_exhaustive()
    }
}

impl<M: MakeFileSystem> Device<M> {
    /// A device with a file system of `make` for each session.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Config`] for an invalid configuration, [`DeviceError::Start`] when the signal that ends
    /// waits has another handler in this process.
    pub fn new(make: M, config: DeviceConfig) -> Result<Device<M>, DeviceError> {
        config.check()?;
        install_interrupt_handler().map_err(|errno| DeviceError::Start(errno.into()))?;
        Ok(Device {
            make: Arc::new(make),
            config,
            handle: DeviceHandle {
                state: Arc::default(),
            },
        })
    }

    /// A handle to this device.
    pub fn handle(&self) -> DeviceHandle {
        self.handle.clone()
    }

    /// Serves the front end at the other end of `stream` until it disconnects or the device is shut down.
    /// Then lock waits are ended, other requests in progress have [`DeviceConfig::drain_timeout`] to end, and
    /// the file system's `destroy` is called. May be called again, for another front end.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Start`] without descriptors or memory; [`DeviceError::Protocol`] when the front end
    /// breaks the protocol or sends an invalid request, a queue outside memory for instance;
    /// [`DeviceError::QueueFailed`]; [`DeviceError::Stuck`] when requests did not end.
    pub fn serve(&self, stream: UnixStream) -> Result<Served, DeviceError> {
        self.serve_with(stream, ConnectionOptions::default())
    }

    /// As [`serve`](Self::serve), with options.
    ///
    /// # Errors
    ///
    /// As [`serve`](Self::serve); [`DeviceError::Resume`] when the session of a process that died cannot be
    /// resumed.
    pub fn serve_with(
        &self,
        stream: UnixStream,
        options: ConnectionOptions,
    ) -> Result<Served, DeviceError> {
        let connection = stream.try_clone().map_err(DeviceError::Start)?;
        let connection = Arc::new(Connection::new(connection));
        let mailboxes: rustix::io::Result<Vec<Arc<Mailbox>>> = (0..self.config.queues())
            .map(|_| Mailbox::new().map(Arc::new))
            .collect();
        let mailboxes = mailboxes.map_err(|errno| DeviceError::Start(errno.into()))?;
        let ConnectionOptions { callers, journal } = options;
        let init = journal.as_ref().and_then(Journal::session);
        let shared = self.share(&connection, &mailboxes, journal);
        let shared = Arc::new(shared.map_err(DeviceError::Start)?);
        if let Some(init) = init {
            shared.sessions.resume(&init).map_err(DeviceError::Resume)?;
        }
        let metrics = Arc::clone(&self.handle.state.metrics);
        let stall_monitor = StallMonitor::start(Arc::clone(&shared.watch), callers, metrics);
        let control = Control::new(shared, &mailboxes);
        let control = Arc::new(Mutex::new(control));
        self.handle
            .state
            .connections
            .lock()
            .push(Arc::clone(&connection));
        // A shutdown before the push has cut no connection.
        let failure = if self.handle.is_stopping() {
            Error::Disconnected
        } else {
            listen(stream, &control, self.config.window_bytes.is_some())
        };
        let connections = &self.handle.state.connections;
        connections
            .lock()
            .retain(|other| !Arc::ptr_eq(other, &connection));
        let stuck = control.lock().unwrap_or_else(PoisonError::into_inner).end();
        drop(stall_monitor);
        self.judge(&connection, failure, stuck)
    }

    fn share(
        &self,
        connection: &Arc<Connection>,
        mailboxes: &[Arc<Mailbox>],
        journal: Option<Journal>,
    ) -> io::Result<Shared<M>> {
        let metrics = &self.handle.state.metrics;
        let limits = BlockingLimits {
            blocked_max: self.config.blocked_max,
            lock_waiters_max: self.config.lock_waiters_max,
        };
        let watch = Arc::new(Watch::new(mailboxes.len()));
        let threads = ServingThreads::new(allowed_cpus(), Arc::<Connection>::clone(connection));
        let start_window = |bytes: NonZeroU64| {
            let record = journal.as_ref().map(Journal::window);
            Window::start(bytes.get(), record, metrics, threads.clone())
        };
        let window = self.config.window_bytes.map(start_window).transpose()?;
        let null_dispatcher =
            Dispatcher::new(Arc::new(NullFileSystem)).counting_into(Arc::clone(metrics));
        Ok(Shared {
            sessions: Sessions::new(
                Arc::clone(&self.make),
                Arc::clone(metrics),
                self.config.drain_timeout,
                mailboxes.to_vec(),
                window.as_ref().map(|window| Arc::clone(&window.state)),
            ),
            pool: Arc::new(BlockingPool::new(
                limits,
                Arc::clone(metrics),
                threads.clone(),
            )),
            threads,
            watch,
            config: self.config.clone(),
            metrics: Arc::clone(metrics),
            connection: Arc::clone(connection),
            null_dispatcher,
            journal,
            window,
        })
    }

    fn judge(
        &self,
        connection: &Connection,
        failure: Error,
        stuck: usize,
    ) -> Result<Served, DeviceError> {
        // First: a thread that panicked also counts as stuck.
        if connection.has_failed() {
            return Err(DeviceError::QueueFailed);
        }
        if stuck > 0 {
            return Err(DeviceError::Stuck(stuck));
        }
        if self.handle.is_stopping() {
            return Ok(Served::ShutDown);
        }
        match failure {
            Error::Disconnected | Error::PartialMessage | Error::SocketBroken(_) => {
                Ok(Served::Disconnected)
            }
            failure => Err(DeviceError::Protocol(failure)),
        }
    }
}

/// Handles the front end's messages until the connection ends. Returns why it did.
fn listen<M: MakeFileSystem>(
    stream: UnixStream,
    control: &Arc<Mutex<Control<M>>>,
    has_window: bool,
) -> Error {
    let peeked = match has_window.then(|| stream.try_clone()).transpose() {
        Ok(peeked) => peeked,
        Err(error) => return Error::SocketError(error),
    };
    let mut handler = BackendReqHandler::from_stream(stream, Arc::clone(control));
    loop {
        if let Some(peeked) = &peeked
            && let Some(channel) = back_end_channel(peeked)
        {
            let control = control.lock().unwrap_or_else(PoisonError::into_inner);
            control.connect_window(channel);
        }
        match handler.handle_request() {
            Ok(()) => {}
            Err(Error::SocketRetry(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return error,
        }
    }
}
