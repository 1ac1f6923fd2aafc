//! Live migration from one server to another, with requests in flight, as a virtual machine monitor does it.
//!
//! ```text
//! handshake with the destination · log writes of the source · copy the memory while the guest runs
//! ── the guest pauses: no request is submitted, no reply collected ──
//! stop the queues · save the state · copy pages written since · load the state · start the queues
//! ── the guest continues ──
//! ```
//!
//! Both servers can share the memory, as when a server is replaced under a running machine. Or the destination
//! has its own, updated only with pages that the source logged and that this side wrote; then a write that was
//! not logged leaves old bytes.

use super::error::ConnectError;
use super::handshake::{self, Agreed, QueuePlace, features};
use super::memory::{PAGE_BYTES, SharedMemory};
use super::shared_queue::QueueGuard;
use super::state::{self, StateError};
use super::{Connection, FrontEnd, VhostLink};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use vhost::vhost_user::VhostUserProtocolFeatures as ProtocolFeatures;

/// The guest's memory at the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestMemory {
    /// The same as at the source.
    Shared,
    /// A copy: all pages once, pages written since in `rounds` while the guest runs, and once in the pause.
    Copied {
        /// Copies of written pages while the guest runs.
        rounds: u32,
    },
}

/// Figures of a migration.
#[derive(Clone, Debug)]
pub struct Migrated {
    /// How long the guest was paused.
    pub pause: Duration,
    /// Bytes of the device's state.
    pub state_bytes: usize,
    /// Pages logged by the source.
    pub logged_pages: usize,
    /// Requests not answered or not collected when the guest paused.
    pub requests_in_flight: usize,
}

/// Why a migration failed.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// Mappings of a window cannot be moved, as QEMU cannot.
    #[error(
        "a front end with a DAX window cannot migrate: its mappings are of the source's descriptors"
    )]
    Window,
    /// The destination cannot be reached, or refuses.
    #[error("the destination: {0}")]
    Destination(ConnectError),
    /// The source fails or refuses.
    #[error("the source: {0}")]
    Source(ConnectError),
    /// The destination lacks features that were negotiated with the source.
    #[error("the destination lacks {0}")]
    Lacks(&'static str),
    /// The state could not be saved.
    #[error("saving the state: {0}")]
    Save(StateError),
    /// The state could not be loaded.
    #[error("loading the state: {0}")]
    Load(StateError),
}

impl FrontEnd {
    /// Migrates to the server that listens at `path`. Requests in flight are answered by either server.
    ///
    /// Waits for all guards of [`queue`](Self::queue): a thread that has one must not call this.
    ///
    /// # Errors
    ///
    /// When it failed, or with a [window](Self::window). The source then continues to serve, unless it has gone.
    pub fn migrate_to(
        &self,
        path: impl AsRef<Path>,
        memory: GuestMemory,
    ) -> Result<Migrated, MigrateError> {
        let stream = UnixStream::connect(path)
            .map_err(|error| MigrateError::Destination(ConnectError::Socket(error)))?;
        self.migrate_over(stream, memory)
    }

    /// As [`migrate_to`](Self::migrate_to), over a connected socket.
    pub fn migrate_over(
        &self,
        stream: UnixStream,
        memory: GuestMemory,
    ) -> Result<Migrated, MigrateError> {
        if self.window.is_some() {
            return Err(MigrateError::Window);
        }
        let one_at_a_time = self.migrating.lock();
        let _one_at_a_time = one_at_a_time.unwrap_or_else(PoisonError::into_inner);
        let destination = self.greet(stream)?;
        let mut copy = MemoryCopy::new(self.memory(), memory).map_err(MigrateError::Source)?;
        let moved = self
            .begin_to_log(&copy.log)
            .map_err(MigrateError::Source)
            .and_then(|()| {
                copy.begin(&self.pause());
                copy.go_round(memory);
                self.move_paused(destination, &mut copy)
            });
        copy.source.track(false);
        if moved.is_err() {
            // Fails when the source has gone; the first error says more.
            let _ = self.end_to_log();
        }
        moved
    }

    fn memory(&self) -> Arc<SharedMemory> {
        Arc::clone(&self.connection().memory)
    }

    fn pause(&self) -> Vec<QueueGuard<'_>> {
        self.queues.iter().map(|queue| queue.lock()).collect()
    }

    /// Negotiates the source's features with the destination.
    fn greet(&self, stream: UnixStream) -> Result<(VhostLink, UnixStream), MigrateError> {
        let greet = || {
            stream.set_read_timeout(self.time_limit)?;
            stream.set_write_timeout(self.time_limit)?;
            let mut link = handshake::link(&stream)?;
            let agreed = handshake::negotiate(&mut link, &self.config, &mut || Ok(()))?;
            handshake::accept(&link, &agreed, &mut || Ok(()))?;
            Ok((link, agreed))
        };
        let (link, agreed) = greet().map_err(MigrateError::Destination)?;
        self.check(&agreed)?;
        Ok((link, stream))
    }

    fn check(&self, destination: &Agreed) -> Result<(), MigrateError> {
        let protocol = destination.protocol_features;
        let lacking = if destination.features != self.agreed.features {
            "the features of virtio that the guest uses"
        } else if destination.request_queues != self.agreed.request_queues {
            "the queues that the guest uses"
        } else if !protocol.contains(ProtocolFeatures::DEVICE_STATE) {
            "VHOST_USER_PROTOCOL_F_DEVICE_STATE"
        } else {
            return Ok(());
        };
        Err(MigrateError::Lacks(lacking))
    }

    fn begin_to_log(&self, log: &SharedMemory) -> Result<(), ConnectError> {
        let protocol = self.agreed.protocol_features;
        if !protocol.contains(ProtocolFeatures::LOG_SHMFD | ProtocolFeatures::DEVICE_STATE)
            || self.agreed.offered_features & features::LOG_ALL == 0
        {
            return Err(ConnectError::Missing(
                "a log of what it writes, or its state",
            ));
        }
        let link = self.link();
        handshake::set_log(&link, log)?;
        handshake::set_features(&link, self.agreed.features | features::LOG_ALL)?;
        self.place_rings(&link, true)
    }

    fn end_to_log(&self) -> Result<(), ConnectError> {
        let link = self.link();
        handshake::set_features(&link, self.agreed.features)?;
        self.place_rings(&link, false)
    }

    /// Sends the addresses of running queues again, with logging of their used rings or not.
    fn place_rings(&self, link: &VhostLink, logged: bool) -> Result<(), ConnectError> {
        let memory = self.memory();
        for (index, queue) in self.queues.iter().enumerate() {
            let layout = queue.lock().ring().layout();
            handshake::place_ring(link, &memory, index as u16, layout, logged)?;
        }
        Ok(())
    }

    /// Pauses the guest, and continues it at the destination or, if that fails, at the source.
    fn move_paused(
        &self,
        (link, stream): (VhostLink, UnixStream),
        copy: &mut MemoryCopy,
    ) -> Result<Migrated, MigrateError> {
        let mut queues = self.pause();
        let paused = Instant::now();
        let source = self.link();
        let bases = stop_all(&source, queues.len()).map_err(MigrateError::Source)?;
        let moved = self.hand_over(&source, &link, &mut queues, &bases, copy);
        let state_bytes = match moved {
            Ok(bytes) => bytes,
            Err(error) => {
                let back = self.start_all(&source, &copy.source, &mut queues, &bases);
                return Err(back.map_or_else(MigrateError::Source, |()| error));
            }
        };
        let before = std::mem::replace(
            &mut *self.connection(),
            Connection {
                link,
                socket: stream,
                memory: Arc::clone(copy.target()),
            },
        );
        let follow = |queue: &mut QueueGuard<'_>, new: &UnixStream| {
            queue.move_to(copy.target());
            queue.waker().follow(&before.socket, new)
        };
        let connection = self.connection();
        for queue in &mut queues {
            follow(queue, &connection.socket)
                .map_err(|error| MigrateError::Destination(error.into()))?;
        }
        drop(connection);
        let _ = before.socket.shutdown(std::net::Shutdown::Both);
        copy.spoil_source();
        let requests_in_flight = queues.iter().map(|queue| queue.in_flight()).sum();
        for queue in &mut queues {
            // A kick or call sent before the switch may be lost.
            let signalled = queue.kick().is_ok() && queue.waker().call().write(1).is_ok();
            debug_assert!(signalled, "eventfds take any number of signals");
        }
        drop(queues);
        Ok(Migrated {
            pause: paused.elapsed(),
            state_bytes,
            logged_pages: copy.logged_pages,
            requests_in_flight,
        })
    }

    /// Moves state, memory and queues of a paused guest. Returns the bytes of the state.
    fn hand_over(
        &self,
        source: &VhostLink,
        destination: &VhostLink,
        queues: &mut [QueueGuard<'_>],
        bases: &[u16],
        copy: &mut MemoryCopy,
    ) -> Result<usize, MigrateError> {
        let state = state::save(source, self.time_limit).map_err(MigrateError::Save)?;
        copy.finish();
        state::load(destination, &state, self.time_limit).map_err(MigrateError::Load)?;
        handshake::share_memory(destination, copy.target()).map_err(MigrateError::Destination)?;
        self.start_all(destination, copy.target(), queues, bases)
            .map_err(MigrateError::Destination)?;
        Ok(state.len())
    }

    fn start_all(
        &self,
        link: &VhostLink,
        memory: &SharedMemory,
        queues: &mut [QueueGuard<'_>],
        bases: &[u16],
    ) -> Result<(), ConnectError> {
        for (index, (queue, &base)) in queues.iter_mut().zip(bases).enumerate() {
            let place = QueuePlace {
                index: index as u16,
                layout: queue.ring().layout(),
                base,
                kick: queue.kick_event(),
                call: queue.waker().call(),
            };
            handshake::place_queue(link, memory, &place)?;
        }
        for index in 0..queues.len() as u16 {
            handshake::enable_queue(&mut link.clone(), &self.agreed, index, true)?;
        }
        Ok(())
    }
}

/// GET_VRING_BASE of all queues.
fn stop_all(link: &VhostLink, queues: usize) -> Result<Vec<u16>, ConnectError> {
    (0..queues as u16)
        .map(|index| handshake::stop_queue(link, index))
        .collect()
}

struct MemoryCopy {
    source: Arc<SharedMemory>,
    /// The destination's memory, if it is a copy.
    target: Option<Arc<SharedMemory>>,
    log: SharedMemory,
    logged_pages: usize,
}

impl MemoryCopy {
    fn new(source: Arc<SharedMemory>, how: GuestMemory) -> Result<MemoryCopy, ConnectError> {
        let target = match how {
            GuestMemory::Shared => None,
            GuestMemory::Copied { .. } => Some(Arc::new(SharedMemory::new(source.length())?)),
        };
        let log = SharedMemory::log_of(&source)?;
        Ok(MemoryCopy {
            source,
            target,
            log,
            logged_pages: 0,
        })
    }

    fn target(&self) -> &Arc<SharedMemory> {
        self.target.as_ref().unwrap_or(&self.source)
    }

    /// Records the pages that this side writes from now on. All queues must be locked.
    fn begin(&self, _alone: &[QueueGuard<'_>]) {
        if self.target.is_some() {
            self.source.track(true);
        }
    }

    /// Copies all pages, and then those that the device has written since, in rounds.
    fn go_round(&mut self, how: GuestMemory) {
        let (Some(target), GuestMemory::Copied { rounds }) = (self.target.clone(), how) else {
            return;
        };
        for page in 0..self.source.length() / PAGE_BYTES {
            target.copy_page(&self.source, page);
        }
        for _ in 0..rounds {
            self.copy_logged();
        }
    }

    fn copy_logged(&mut self) {
        let pages = self.log.take_logged(&self.source);
        self.logged_pages += pages.len();
        if let Some(target) = &self.target {
            pages
                .iter()
                .for_each(|&page| target.copy_page(&self.source, page));
        }
    }

    /// Copies the remaining pages, in the pause.
    fn finish(&mut self) {
        self.copy_logged();
        if let Some(target) = &self.target {
            for page in self.source.take_written() {
                target.copy_page(&self.source, page);
            }
        }
    }

    /// Overwrites the source's memory, so that any later use of it shows.
    fn spoil_source(&self) {
        if self.target.is_some() {
            self.source.fill(0xdd);
        }
    }
}
