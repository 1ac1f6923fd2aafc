//! Sessions: what lies between a guest's INIT and its DESTROY, reset or disconnection.
//!
//! A guest that is rebooted, or mounts once more, begins anew: with a file system that was made for it,
//! and that knows nothing of the nodes and files of the one before. Each thread that serves holds the
//! session as long as it has requests of it. When it has ended and the last of them lets go, the file
//! system's `destroy` is called, and only then is the next one made.
//!
//! No INTERRUPT comes by virtio-fs. So requests that wait for somebody else (locks) are ended when their
//! session ends.

use crate::post::Post;
use parking_lot::Mutex;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use thrufs::serving::{Count, Counted};
use thrufs::{
    Attributes, Context, Dispatcher, Entry, Errno, FileHandle, FileSystem, InitFlags, Metrics,
    Name, NodeId, Services,
};

/// Makes a file system anew for each session, from a guest's INIT to its DESTROY, reset or disconnection.
pub trait MakeFileSystem: Send + Sync + 'static {
    /// What is made.
    type FileSystem: FileSystem;

    /// Makes one. It may be shared: the [`FileSystem::destroy`] of the one before has been called.
    ///
    /// # Errors
    ///
    /// The guest's mount fails with this.
    fn make(&self) -> io::Result<Arc<Self::FileSystem>>;

    /// Makes one that is to [go on](FileSystem::recover) with the session of a process that died. As
    /// [`make`](Self::make) unless it is said otherwise.
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

/// What must never be agreed on with a guest: it would wait for a ring that there is not (Linux offers it
/// nevertheless), or for files to be registered with a kernel that is not this one.
const WITHHELD: InitFlags = InitFlags::OVER_IO_URING.union(InitFlags::PASSTHROUGH);

/// Answers requests that belong to no session.
#[derive(Debug)]
pub(crate) struct Nobody;

impl FileSystem for Nobody {
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

/// One session.
pub(crate) struct GuestSession<F: FileSystem> {
    dispatcher: Dispatcher<F>,
    // Last: the next one is made when all that this one had open is closed.
    _count: Counted,
}

impl<F: FileSystem> GuestSession<F> {
    pub(crate) fn dispatcher(&self) -> &Dispatcher<F> {
        &self.dispatcher
    }

    /// Tells the file system what INIT has settled, if it did.
    pub(crate) fn start(&self) -> bool {
        let Some(features) = self.dispatcher.features() else {
            return false;
        };
        for refusal in &features.refused {
            tracing::info!(%refusal, "feature not negotiated");
        }
        let file_system = self.dispatcher.file_system();
        let started = || file_system.started(features, Services::unavailable());
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

/// The sessions of one connection, one after the other.
pub(crate) struct Sessions<M: MakeFileSystem> {
    make: Arc<M>,
    metrics: Arc<Metrics>,
    drain_timeout: Duration,
    /// The queues, whose threads have to hear of changes.
    posts: Vec<Arc<Post>>,
    current: Mutex<Option<Arc<GuestSession<M::FileSystem>>>>,
    /// Grows whenever `current` changes.
    generation: AtomicU64,
    /// How many are not over and done with: one at most. Locked by whoever makes the next.
    last: Mutex<Arc<Count>>,
}

impl<M: MakeFileSystem> Sessions<M> {
    pub(crate) fn new(
        make: Arc<M>,
        metrics: Arc<Metrics>,
        drain_timeout: Duration,
        posts: Vec<Arc<Post>>,
    ) -> Sessions<M> {
        Sessions {
            make,
            metrics,
            drain_timeout,
            posts,
            current: Mutex::default(),
            generation: AtomicU64::new(0),
            last: Mutex::default(),
        }
    }

    /// The number of the session that is current, or of the time without one.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The current session.
    pub(crate) fn current(&self) -> Option<Arc<GuestSession<M::FileSystem>>> {
        self.current.lock().clone()
    }

    fn replace(&self, next: Option<Arc<GuestSession<M::FileSystem>>>) {
        let mut current = self.current.lock();
        let before = std::mem::replace(&mut *current, next);
        self.generation.fetch_add(1, Ordering::AcqRel);
        drop(current);
        if let Some(session) = &before {
            session.dispatcher.end_waits();
        }
        // Those that are asleep hold the one before.
        self.posts.iter().for_each(|post| post.alert());
    }

    /// Ends the current session, if there is one. Its file system goes when the last request has ended.
    pub(crate) fn end(&self) {
        self.replace(None);
    }

    /// Makes a session, for INIT, after the current one has ended and its last request too. The caller
    /// must not hold it.
    ///
    /// # Errors
    ///
    /// EBUSY when requests of the one before do not end; what the making says.
    pub(crate) fn make(&self) -> Result<Arc<GuestSession<M::FileSystem>>, Errno> {
        self.make_by(M::make)
    }

    fn make_by(
        &self,
        make: impl FnOnce(&M) -> io::Result<Arc<M::FileSystem>>,
    ) -> Result<Arc<GuestSession<M::FileSystem>>, Errno> {
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
        let dispatcher = Dispatcher::new(file_system)
            .withholding(WITHHELD)
            .counting_into(Arc::clone(&self.metrics));
        Ok(Arc::new(GuestSession {
            dispatcher,
            _count: last.one_more(),
        }))
    }

    /// Goes on with the session of a process that died, which began with `init`.
    ///
    /// # Errors
    ///
    /// When that cannot be.
    pub(crate) fn resume(&self, init: &[u8]) -> io::Result<()> {
        let session = self.make_by(M::make_successor)?;
        session.dispatcher.resume(init)?;
        self.install(&session);
        Ok(())
    }

    /// Makes `session` the current one, before the answer to INIT is seen by the guest.
    pub(crate) fn install(&self, session: &Arc<GuestSession<M::FileSystem>>) {
        self.replace(Some(Arc::clone(session)));
    }

    /// Waits until the last session is over, once it was ended and nobody begins another.
    pub(crate) fn wait_until_gone(&self, deadline: Instant) -> bool {
        let last = self.last.lock();
        last.wait_for_none(deadline) == 0
    }
}
