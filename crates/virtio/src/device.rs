//! The device: one front end at a time, from its connection to its end.

use crate::callers::Caller;
use crate::config::DeviceConfig;
use crate::control::Control;
use crate::error::DeviceError;
use crate::journal::Journal;
use crate::line::Line;
use crate::post::Post;
use crate::serving::Shared;
use crate::session::{MakeFileSystem, Nobody, Sessions};
use crate::steward::{Steward, Watch};
use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use thrufs::serving::{BlockingLimits, BlockingPool, ServingThreads, allowed_cpus};
use thrufs::{Dispatcher, Metrics, Snapshot};
use thrufs_sys::signal::install_interrupt_handler;
use vhost::vhost_user::{BackendReqHandler, Error};

/// Who else a connection is about, besides the front end.
#[derive(Debug, Default)]
pub struct ConnectionOptions {
    /// Threads of the front end, of which [`CALLERS_MAX`](crate::CALLERS_MAX) are looked at: the thread of a
    /// queue may serve on the CPU of one of them, giving way to it, while that one asks one thing after
    /// another and waits for each.
    pub callers: Vec<Caller>,
    /// Where to note what another process needs to go on with this connection when this one is killed. If
    /// another was, this one goes on: with the session that was in progress, whose file system
    /// [recovers](thrufs::FileSystem::recover), and with the requests that were in flight. The stream
    /// leads to a [`Keeper`](crate::Keeper) then.
    pub journal: Option<Journal>,
}

/// Why a front end is no longer served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// It has disconnected.
    Disconnected,
    /// [`DeviceHandle::shutdown`] was called.
    ShutDown,
}

/// A virtio-fs device, for one front end after the other.
pub struct Device<M> {
    make: Arc<M>,
    config: DeviceConfig,
    handle: DeviceHandle,
}

/// Watches and ends a device from any thread. Clones are the same.
#[derive(Clone, Debug)]
pub struct DeviceHandle {
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    metrics: Arc<Metrics>,
    stopping: AtomicBool,
    /// The connections that are served.
    lines: parking_lot::Mutex<Vec<Arc<Line>>>,
}

impl DeviceHandle {
    /// Ends the device: [`Device::serve`] returns when requests in progress have ended, or after
    /// [`DeviceConfig::drain_timeout`], and when it is called again at once. Returns at once.
    pub fn shutdown(&self) {
        self.state.stopping.store(true, Ordering::SeqCst);
        self.state.lines.lock().iter().for_each(|line| line.cut());
    }

    /// What was counted so far, of all sessions.
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
    /// A device whose file systems `make` makes.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Config`] for a configuration that cannot be, [`DeviceError::Start`] when the signal
    /// that ends waits has another use in this process.
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

    /// A handle on this device.
    pub fn handle(&self) -> DeviceHandle {
        self.handle.clone()
    }

    /// Serves the front end at the other end of `stream` until it disconnects or the device is shut
    /// down. Then requests in progress are given [`DeviceConfig::drain_timeout`] to end, what waits for
    /// locks is ended at once, and the file system's `destroy` is called. Another may be served
    /// afterwards.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Start`] without descriptors or memory; [`DeviceError::Protocol`] when the front end
    /// breaks the protocol or asks for what cannot be done, a queue outside memory for instance;
    /// [`DeviceError::QueueFailed`]; [`DeviceError::Stuck`] when requests did not end.
    pub fn serve(&self, stream: UnixStream) -> Result<Served, DeviceError> {
        self.serve_with(stream, ConnectionOptions::default())
    }

    /// As [`serve`](Self::serve), with others to be reckoned with.
    ///
    /// # Errors
    ///
    /// As [`serve`](Self::serve); [`DeviceError::Resume`] when the session of a process that died cannot
    /// be gone on with.
    pub fn serve_with(
        &self,
        stream: UnixStream,
        company: ConnectionOptions,
    ) -> Result<Served, DeviceError> {
        let line = stream.try_clone().map_err(DeviceError::Start)?;
        let line = Arc::new(Line::new(line));
        let posts: rustix::io::Result<Vec<Arc<Post>>> = (0..self.config.queues())
            .map(|_| Post::new().map(Arc::new))
            .collect();
        let posts = posts.map_err(|errno| DeviceError::Start(errno.into()))?;
        let ConnectionOptions { callers, journal } = company;
        let init = journal.as_ref().and_then(Journal::session);
        let shared = Arc::new(self.share(&line, &posts, journal));
        if let Some(init) = init {
            shared.sessions.resume(&init).map_err(DeviceError::Resume)?;
        }
        let metrics = Arc::clone(&self.handle.state.metrics);
        let steward = Steward::start(Arc::clone(&shared.watch), callers, metrics);
        let control = Control::new(shared, self.config.clone(), &posts);
        let control = Arc::new(Mutex::new(control));
        self.handle.state.lines.lock().push(Arc::clone(&line));
        // What was called before the line was there has cut nothing.
        let failure = if self.handle.is_stopping() {
            Error::Disconnected
        } else {
            listen(stream, &control)
        };
        let lines = &self.handle.state.lines;
        lines.lock().retain(|other| !Arc::ptr_eq(other, &line));
        let stuck = control.lock().unwrap_or_else(PoisonError::into_inner).end();
        drop(steward);
        self.judge(&line, failure, stuck)
    }

    fn share(&self, line: &Arc<Line>, posts: &[Arc<Post>], journal: Option<Journal>) -> Shared<M> {
        let metrics = &self.handle.state.metrics;
        let limits = BlockingLimits {
            blocked_max: self.config.blocked_max,
            lock_waiters_max: self.config.lock_waiters_max,
        };
        let watch = Arc::new(Watch::new(posts.len()));
        let threads = ServingThreads::new(allowed_cpus(), Arc::<Line>::clone(line));
        let nobody = Dispatcher::new(Arc::new(Nobody)).counting_into(Arc::clone(metrics));
        Shared {
            sessions: Sessions::new(
                Arc::clone(&self.make),
                Arc::clone(metrics),
                self.config.drain_timeout,
                posts.to_vec(),
            ),
            pool: Arc::new(BlockingPool::new(
                limits,
                Arc::clone(metrics),
                threads.clone(),
            )),
            threads,
            watch,
            spin: self.config.spin,
            crew_max: self.config.crew_max,
            metrics: Arc::clone(metrics),
            line: Arc::clone(line),
            nobody,
            drain_timeout: self.config.drain_timeout,
            journal,
        }
    }

    /// What the end of a connection means.
    fn judge(&self, line: &Line, failure: Error, stuck: usize) -> Result<Served, DeviceError> {
        // A thread that failed has said nothing at its end either.
        if line.has_failed() {
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

/// Carries out what the front end asks until there is nothing more to be read. Returns why.
fn listen<M: MakeFileSystem>(stream: UnixStream, control: &Arc<Mutex<Control<M>>>) -> Error {
    let mut handler = BackendReqHandler::from_stream(stream, Arc::clone(control));
    loop {
        match handler.handle_request() {
            Ok(()) => {}
            Err(Error::SocketRetry(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return error,
        }
    }
}
