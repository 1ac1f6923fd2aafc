//! Sessions, from a guest's INIT to its DESTROY, reset or disconnection.
//!
//! A guest that reboots or mounts again gets a new file system without the nodes and files of the last. Each
//! serving thread holds a reference to the session while it has requests of it. After the end of a session
//! the last reference calls the file system's `destroy`; only then is the next file system made.
//!
//! Linux sends no INTERRUPT over virtio-fs, so lock waits are ended with their session.

use crate::mailbox::Mailbox;
use crate::window::state::WindowState;
use parking_lot::Mutex;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use thrufs::serving::{LiveCount, LiveGuard};
use thrufs::{
    Attributes, Context, Dispatcher, Entry, Errno, FileHandle, FileSystem, InitFlags, Metrics,
    Name, NodeId, WindowCoverage,
};

/// Makes a file system for each session, from a guest's INIT to its DESTROY, reset or disconnection.
pub trait MakeFileSystem: Send + Sync + 'static {
    /// What is made.
    type FileSystem: FileSystem;

    /// Makes one, after the [`FileSystem::destroy`] of the last. It may return the same one again.
    ///
    /// # Errors
    ///
    /// The guest's mount fails with this.
    fn make(&self) -> io::Result<Arc<Self::FileSystem>>;

    /// Makes one that [resumes](FileSystem::recover) the session of a process that died. By default as
    /// [`make`](Self::make).
    ///
    /// # Errors
    ///
    /// The session ends with this.
    fn make_successor(&self) -> io::Result<Arc<Self::FileSystem>> {
        self.make()
    }
}

impl<M, F> MakeFileSystem for M
where
    M: Fn() -> io::Result<Arc<F>> + Send + Sync + 'static,
    F: FileSystem,
{
    type FileSystem = F;

    fn make(&self) -> io::Result<Arc<F>> {
        self()
    }
}

/// Never agreed on with a guest: this device has no io_uring (Linux offers it nevertheless), and backing
/// files cannot be registered with the guest's kernel.
const WITHHELD: InitFlags = InitFlags::OVER_IO_URING.union(InitFlags::PASSTHROUGH);

/// What Linux offers for the window.
const OF_WINDOW: InitFlags = InitFlags::MAP_ALIGNMENT.union(InitFlags::HAS_INODE_DAX);

/// Answers requests outside a session.
#[derive(Debug)]
pub(crate) struct NullFileSystem;

impl FileSystem for NullFileSystem {
    fn init(&self, _: &mut thrufs::Negotiation) -> thrufs::Result<()> {
        Err(Errno::EIO)
    }

    fn lookup(&self, _: &Context<'_>, _: NodeId, _: Name<'_>) -> thrufs::Result<Entry> {
        Err(Errno::EIO)
    }

    fn getattr(
        &self,
        _: &Context<'_>,
        _: NodeId,
        _: Option<FileHandle>,
    ) -> thrufs::Result<Attributes> {
        Err(Errno::EIO)
    }
}

pub(crate) type SessionOf<M> = Arc<GuestSession<<M as MakeFileSystem>::FileSystem>>;

pub(crate) struct GuestSession<F: FileSystem> {
    dispatcher: Dispatcher<F>,
    is_over: AtomicBool,
    // Dropped last: the next session starts when all files of this one are closed.
    _count: LiveGuard,
}

impl<F: FileSystem> GuestSession<F> {
    pub(crate) fn dispatcher(&self) -> &Dispatcher<F> {
        &self.dispatcher
    }

    /// Whether it is no longer the current one: its requests need not be waited for.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Passes the features of INIT to the file system. False when INIT failed.
    pub(crate) fn start(&self) -> bool {
        let Some(features) = self.dispatcher.features() else {
            return false;
        };
        for refusal in &features.refused {
            tracing::info!(%refusal, "feature not negotiated");
        }
        let file_system = self.dispatcher.file_system();
        let started = || file_system.started(features, self.dispatcher.services());
        catch_unwind(AssertUnwindSafe(started)).is_ok()
    }
}

impl<F: FileSystem> Drop for GuestSession<F> {
    fn drop(&mut self) {
        if self.dispatcher.features().is_some() {
            let file_system = self.dispatcher.file_system();
            if catch_unwind(AssertUnwindSafe(|| file_system.destroy())).is_err() {
                tracing::error!("the file system panicked at its end");
            }
        }
    }
}

/// The sessions of a connection, one at a time.
pub(crate) struct Sessions<M: MakeFileSystem> {
    make: Arc<M>,
    metrics: Arc<Metrics>,
    drain_timeout: Duration,
    /// Of all queues, to wake their threads.
    mailboxes: Vec<Arc<Mailbox>>,
    window: Option<Arc<WindowState>>,
    current: Mutex<Option<SessionOf<M>>>,
    generation: AtomicU64,
    /// Sessions not destroyed yet: at most one. Locked to make the next.
    last: Mutex<Arc<LiveCount>>,
}

impl<M: MakeFileSystem> Sessions<M> {
    pub(crate) fn new(
        make: Arc<M>,
        metrics: Arc<Metrics>,
        drain_timeout: Duration,
        mailboxes: Vec<Arc<Mailbox>>,
        window: Option<Arc<WindowState>>,
    ) -> Sessions<M> {
        Sessions {
            make,
            metrics,
            drain_timeout,
            mailboxes,
            window,
            current: Mutex::default(),
            generation: AtomicU64::new(0),
            last: Mutex::default(),
        }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn current(&self) -> Option<SessionOf<M>> {
        self.current.lock().clone()
    }

    fn replace(&self, next: Option<SessionOf<M>>) {
        let mut current = self.current.lock();
        let before = std::mem::replace(&mut *current, next);
        self.generation.fetch_add(1, Ordering::AcqRel);
        drop(current);
        if let Some(session) = &before {
            session.dispatcher.end_waits();
            session.is_over.store(true, Ordering::SeqCst);
        }
        if let Some(window) = &self.window {
            window.interrupt();
        }
        // Sleeping threads still hold the last session.
        self.mailboxes.iter().for_each(|mailbox| mailbox.alert());
    }

    /// Ends the current session, if there is one. Its file system is dropped with the last request.
    pub(crate) fn end(&self) {
        self.replace(None);
    }

    /// Makes a session, for INIT, after the end of the current one and of its last request. The caller must
    /// not hold a reference to it.
    ///
    /// # Errors
    ///
    /// EBUSY when requests of the last session do not end; the error of `make`.
    pub(crate) fn make(&self, has_window: bool) -> Result<SessionOf<M>, Errno> {
        self.make_by(M::make, has_window)
    }

    fn make_by(
        &self,
        make: impl FnOnce(&M) -> io::Result<Arc<M::FileSystem>>,
        has_window: bool,
    ) -> Result<SessionOf<M>, Errno> {
        let last = self.last.lock();
        self.end();
        let deadline = Instant::now() + self.drain_timeout;
        if last.wait_for_none(deadline) > 0 {
            tracing::error!(
                "the guest starts a new session, but requests of the old one do not end"
            );
            return Err(Errno::EBUSY);
        }
        let file_system = make(&self.make).map_err(|error| {
            tracing::error!(%error, "cannot create the file system for a guest");
            Errno::from(error)
        })?;
        let window = self.window.clone().filter(|_| has_window);
        let window = window.map(|window| window as Arc<dyn WindowCoverage>);
        let withheld = match window {
            Some(_) => WITHHELD,
            None => WITHHELD.union(OF_WINDOW),
        };
        let dispatcher = Dispatcher::new(file_system)
            .withholding(withheld)
            .with_window(window)
            .counting_into(Arc::clone(&self.metrics));
        Ok(Arc::new(GuestSession {
            dispatcher,
            is_over: AtomicBool::new(false),
            _count: last.one_more(),
        }))
    }

    /// Resumes the session of a process that died, which began with the request `init`.
    pub(crate) fn resume(&self, init: &[u8]) -> io::Result<()> {
        let window = self.window.as_ref();
        let has_window = window.is_some_and(|window| window.abilities().is_some());
        let session = self.make_by(M::make_successor, has_window)?;
        let services = session.dispatcher.services();
        session.dispatcher.resume(init, services)?;
        self.install(&session);
        Ok(())
    }

    /// Makes `session` the current one. To be called before the guest sees the reply to INIT.
    pub(crate) fn install(&self, session: &SessionOf<M>) {
        self.replace(Some(Arc::clone(session)));
    }

    /// Waits until the last session is destroyed. False at the deadline.
    pub(crate) fn wait_until_gone(&self, deadline: Instant) -> bool {
        let last = self.last.lock();
        last.wait_for_none(deadline) == 0
    }
}
