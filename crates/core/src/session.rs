//! A session: one connection to the kernel from INIT to its end.
//!
//! ```text
//! Session::new ──► handshake ──► run ─────────────────────► End
//!                  (answers      (serves until unmounted
//!                   INIT)         or shut down)
//! ```
//!
//! The device may be mounted before or after [`Session::handshake`] is called. Where mounting
//! itself waits for the answer to INIT (see [`mount::open_device`](crate::mount::open_device)), the
//! two must be on different threads or in different processes. [`crate::mount()`] does all of it.
//!
//! The end has a fixed order: no more requests are read; waits for locks are interrupted; requests in
//! progress get [`SessionConfig::drain_timeout`] to end and are answered, and so do those that are to be
//! [answered later](crate::Context::answer_later), if the session was shut down; [`FileSystem::destroy`] is
//! called; the device is closed. A session that ends while it is mounted leaves a mount that answers
//! `ENOTCONN`: unmount first.

mod error;
mod handshake;

pub use crate::serving::config::{SessionConfig, Threads, Transport, UringConfig};
pub use crate::serving::control::End;
pub use crate::serving::journal::Journal;
pub use crate::serving::scheduling::Callers;
pub use crate::transport::uring::ring_availability;
pub use crate::transport::{Carrier, UringRefusal};
pub use error::SessionError;

use crate::backing::{Backings, Services};
use crate::dispatch::Dispatcher;
use crate::features::Features;
use crate::file_system::FileSystem;
use crate::metrics::{Metrics, Snapshot};
use crate::notify::{Notifier, Queue};
use crate::serving::journal::Writer;
use crate::serving::scheduling::{Processes, allowed_cpus};
use crate::serving::{Control, ServingThreads, confine_signals};
use crate::transport::Connection;
use crate::transport::dev::{self, Load, ReaderPool};
use crate::transport::uring::{self, Prepared, WorkerPool, prepare};
use parking_lot::Mutex;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use thrufs_abi::InitFlags;
use thrufs_sys::signal::install_interrupt_handler;

/// What is left to threads for their end after requests that are answered later have used up the time.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// One connection to the kernel.
#[derive(Debug)]
pub struct Session<F> {
    connection: Arc<Connection<F>>,
    handle: SessionHandle,
    queue: Arc<Queue>,
    journal: Option<Journal>,
    began: AtomicBool,
    /// [`run`](Self::run) ends the threads.
    ran: AtomicBool,
    /// Rings made before INIT, or why there are none; nothing when none are wanted.
    prepared: Mutex<Option<Result<Prepared, UringRefusal>>>,
    ring: OnceLock<Arc<WorkerPool<F>>>,
}

/// Watches and ends a session from any thread. Clones are the same.
#[derive(Clone, Debug)]
pub struct SessionHandle {
    control: Arc<Control>,
    metrics: Arc<Metrics>,
    notifier: Notifier,
    features: Arc<OnceLock<Features>>,
    carrier: Arc<OnceLock<Carrier>>,
}

impl SessionHandle {
    /// Sends notifications to the kernel.
    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    /// The metrics so far.
    pub fn metrics(&self) -> Snapshot {
        self.metrics.snapshot()
    }

    /// What INIT agreed on; `None` before.
    pub fn features(&self) -> Option<&Features> {
        self.features.get()
    }

    /// The transport in use; `None` before INIT.
    pub fn carrier(&self) -> Option<&Carrier> {
        self.carrier.get()
    }

    /// Ends the session: [`Session::run`] returns when requests in progress have ended, or after
    /// [`SessionConfig::drain_timeout`]. Returns at once.
    pub fn shutdown(&self) {
        self.control.stop(End::ShutDown);
    }

    pub(crate) fn was_shut_down(&self) -> bool {
        self.control.was_shut_down()
    }

    /// Whether the session has ended or is about to.
    pub fn is_ending(&self) -> bool {
        self.control.is_stopping()
    }
}

impl<F: FileSystem> Session<F> {
    /// A session on `device`, an open `/dev/fuse`.
    ///
    /// # Errors
    /// [`SessionError::Start`] when the signal that ends waits has another use in this process.
    pub fn new(fs: F, device: OwnedFd, config: SessionConfig) -> Result<Session<F>, SessionError> {
        Session::with_callers(Arc::new(fs), device, config, None)
    }

    /// As [`new`](Self::new), for a shared file system. `callers` finds callers for a process that does
    /// not see them.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_callers(
        fs: Arc<F>,
        device: OwnedFd,
        config: SessionConfig,
        callers: Option<Arc<dyn Callers>>,
    ) -> Result<Session<F>, SessionError> {
        Session::begin(fs, device, config, callers, None)
    }

    /// As [`with_callers`](Self::with_callers), over `/dev/fuse`, so that another process can go on with the
    /// session when this one is killed; and going on, if `journal` is that of a session. Between the two, some
    /// process keeps `device` open. The file system has to keep what it [recovers](FileSystem::recover) outside of
    /// this process.
    ///
    /// # Errors
    /// As [`new`](Self::new), and when the journal cannot be mapped.
    pub fn journaled(
        fs: Arc<F>,
        device: OwnedFd,
        config: SessionConfig,
        callers: Option<Arc<dyn Callers>>,
        journal: Journal,
    ) -> Result<Session<F>, SessionError> {
        Session::begin(fs, device, config, callers, Some(journal))
    }

    fn begin(
        fs: Arc<F>,
        device: OwnedFd,
        config: SessionConfig,
        callers: Option<Arc<dyn Callers>>,
        journal: Option<Journal>,
    ) -> Result<Session<F>, SessionError> {
        install_interrupt_handler().map_err(|errno| SessionError::Start(errno.into()))?;
        let writer = journal.as_ref().map(Writer::new).transpose();
        let writer = writer.map_err(SessionError::Start)?;
        let dispatcher = Dispatcher::new(fs).with_late_max(config.late_max);
        let metrics = Arc::clone(dispatcher.metrics());
        let queue = Arc::new(Queue::new(config.notifications_max, Arc::clone(&metrics)));
        let control = Arc::<Control>::default();
        let handle = SessionHandle {
            control: Arc::clone(&control),
            metrics,
            notifier: Notifier::new(Arc::clone(&queue)),
            features: Arc::default(),
            carrier: Arc::default(),
        };
        let allowed = allowed_cpus();
        let prepared = match (&journal, config.transport) {
            (Some(_), Transport::Auto | Transport::Uring) => Some(Err(UringRefusal::Journal)),
            _ => prepare(device.as_fd(), &config, &allowed),
        };
        if let Some(Ok(_)) = &prepared {
            dispatcher.want_ring();
        }
        let device = Arc::new(device);
        queue.reach(&device);
        let connection = Arc::new(Connection {
            dispatcher,
            device,
            processes: Processes::open(callers),
            threads: ServingThreads::new(allowed, Arc::<Control>::clone(&control)),
            allowed,
            config,
            control,
            writer,
        });
        Ok(Session {
            connection,
            handle,
            queue,
            journal,
            began: AtomicBool::new(false),
            ran: AtomicBool::new(false),
            prepared: Mutex::new(prepared),
            ring: OnceLock::new(),
        })
    }

    /// The file system.
    pub fn file_system(&self) -> &Arc<F> {
        self.connection.dispatcher.file_system()
    }

    /// The device, for mounting it and for registering backing files.
    pub fn device(&self) -> BorrowedFd<'_> {
        self.connection.device.as_fd()
    }

    /// A handle on this session.
    pub fn handle(&self) -> SessionHandle {
        self.handle.clone()
    }

    /// Waits for INIT, answers it, and calls [`FileSystem::started`]. Over io_uring, serving has begun when it
    /// returns. With the [journal](Self::journaled) of a session, goes on with that instead.
    ///
    /// # Errors
    /// [`SessionError::Init`] when INIT failed (the kernel got an error), [`Ended`] after
    /// [`SessionHandle::shutdown`], [`Device`], [`Misuse`] when called twice, [`Resume`].
    ///
    /// [`Resume`]: SessionError::Resume
    /// [`Ended`]: SessionError::Ended
    /// [`Device`]: SessionError::Device
    /// [`Misuse`]: SessionError::Misuse
    pub fn handshake(&self) -> Result<&Features, SessionError> {
        if self.began.swap(true, Ordering::SeqCst) {
            return Err(SessionError::Misuse);
        }
        let backings = Backings::new(&self.connection.device);
        let services = Services::new(self.handle.notifier(), backings);
        let left = self.journal.as_ref().and_then(Journal::session);
        let dispatcher = &self.connection.dispatcher;
        match &left {
            Some(init) => dispatcher
                .resume(init, services.clone())
                .map_err(SessionError::Resume)?,
            None => handshake::answer_init(&self.connection, self.journal.as_ref())?,
        }
        let features = dispatcher.features().ok_or(SessionError::Misuse)?;
        for refusal in &features.refused {
            tracing::info!(%refusal, "feature not negotiated");
        }
        let _ = self.handle.features.set(features.clone());
        if left.is_some() {
            // Before the first request is read, or that would come again.
            let sent = self.handle.notifier.resend_now();
            sent.map_err(|errno| SessionError::Resume(errno.into()))?;
        } else {
            self.file_system().started(features, services);
        }
        let _ = self.handle.carrier.set(self.choose_carrier(features));
        Ok(features)
    }

    fn choose_carrier(&self, features: &Features) -> Carrier {
        let mut prepared = self.prepared.lock();
        let agreed = features.flags.contains(InitFlags::OVER_IO_URING);
        let started = match prepared.take() {
            None => return Carrier::Dev(None),
            Some(Ok(prepared)) if agreed => uring::start(&self.connection, features, prepared),
            Some(Ok(_)) => Err(UringRefusal::NotOffered),
            Some(Err(refusal)) => Err(refusal),
        };
        match started {
            Ok((ring, carrier)) => {
                let _ = self.ring.set(ring);
                tracing::debug!("transport: {carrier}");
                carrier
            }
            Err(refusal) => {
                let carrier = Carrier::Dev(Some(refusal));
                tracing::info!("transport: {carrier}");
                carrier
            }
        }
    }

    /// Serves until the file system is unmounted or [`SessionHandle::shutdown`] is called, then
    /// ends the session as the module's documentation says.
    ///
    /// # Errors
    /// [`SessionError::Start`] when no thread could be started, [`SessionError::Device`] when the
    /// device failed, [`SessionError::Stuck`] when requests did not end,
    /// [`SessionError::Misuse`] before the handshake.
    pub fn run(self) -> Result<End, SessionError> {
        let connection = &self.connection;
        if connection.dispatcher.features().is_none() {
            return Err(SessionError::Misuse);
        }
        let control = Arc::clone(&connection.control);
        self.ran.store(true, Ordering::Relaxed);
        let started = self.start();
        if let Err(error) = &started {
            control.stop(End::Failed(error.raw_os_error().unwrap_or(libc::EIO)));
        }
        let end = control.wait_for_end();
        tracing::debug!(?end, "the session ends");
        self.queue.close();
        let interrupts = connection.dispatcher.interrupts();
        interrupts.stop();
        let mut deadline = Instant::now() + connection.config.drain_timeout;
        if end == End::ShutDown {
            // Otherwise the kernel takes no answers any more.
            interrupts.drain_late(deadline);
        }
        interrupts.end_late();
        deadline = deadline.max(Instant::now() + LEAVE_TIMEOUT);
        let mut left = control.drain(deadline, || {
            if let Ok(transport) = &started {
                transport.wake();
            }
            if let Some(ring) = self.ring.get() {
                ring.wake();
            }
        });
        if let Some(ring) = self.ring.get() {
            left += ring.end(deadline);
        }
        started.map_err(SessionError::Start)?;
        if left > 0 {
            return Err(SessionError::Stuck(left));
        }
        self.file_system().destroy();
        match end {
            End::Failed(error) => Err(SessionError::Device(io::Error::from_raw_os_error(error))),
            end => Ok(end),
        }
    }

    fn start(&self) -> io::Result<Arc<ReaderPool<F>>> {
        let (queue, connection) = (Arc::clone(&self.queue), Arc::clone(&self.connection));
        let count = connection.control.thread();
        std::thread::Builder::new()
            .name("thrufs-notify".to_owned())
            .spawn(move || {
                confine_signals();
                queue.write_all(connection.device.as_fd());
                // The connection first: a count of zero means that all has been dropped.
                drop(connection);
                drop(count);
            })?;
        let load = match self.ring.get() {
            Some(_) => Load::Rest,
            None => Load::All,
        };
        dev::start(&self.connection, load)
    }
}

impl<F> Drop for Session<F> {
    fn drop(&mut self) {
        let control = &self.connection.control;
        control.stop(End::ShutDown);
        if let Some(ring) = self.ring.get()
            && !*self.ran.get_mut()
        {
            self.connection.dispatcher.end_waits();
            let deadline = Instant::now() + self.connection.config.drain_timeout;
            control.drain(deadline, || ring.wake());
            ring.end(deadline);
        }
    }
}
