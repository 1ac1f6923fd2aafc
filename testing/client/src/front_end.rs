//! A vhost-user front end for virtio-fs, without a virtual machine.
//!
//! | module | content |
//! |---|---|
//! | `config` | what a front end asks for |
//! | `memory` | the guest's memory: a sealed memfd that both sides map, accessed atomically or by volatile copies |
//! | `ring` | the driver's side of a split virtqueue |
//! | `buffers` | slots for requests and replies in that memory, and the descriptor chains of a Linux guest |
//! | `queue` | requests in, completions out |
//! | `shared_queue` | a queue for many threads that each wait for their reply |
//! | `waker` | waiting for the device's call or its end |
//! | `handshake` | the messages on the socket |
//! | `migration` | from one server to another, with requests in flight |
//! | `window` | the DAX window: mappings that the server makes by messages of its own |
//! | `state` | saving and loading a device state |

mod buffers;
mod config;
mod error;
mod handshake;
mod memory;
mod migration;
mod queue;
mod ring;
mod shared_queue;
mod state;
mod waker;
mod window;

pub use config::FrontEndConfig;
pub use error::{ConnectError, ExchangeError, QueueError, SubmitError};
pub use handshake::Agreed;
pub use migration::{GuestMemory, MigrateError};
pub use queue::{Completion, Parts, Queue};

pub use shared_queue::QueueGuard;
pub use window::{Window, WindowBehaviour, WindowConfig, WindowError};

pub(crate) use handshake::Watch;

use buffers::SlotLayout;
use handshake::QueuePlace;
use memory::SharedMemory;
use ring::{DriverRing, DriverRingLayout};
use shared_queue::SharedQueue;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use thrufs_abi::Opcode;
use thrufs_abi::layout::{InHeader, OutHeader};
use thrufs_testing::Carrier;
use thrufs_testing::{ReplyLayout, Shape};
use vhost::vhost_user::Frontend as VhostLink;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};
use window::OpenWindow;
use zerocopy::FromBytes;

impl FrontEndConfig {
    fn check(&self) -> Result<(), ConnectError> {
        let wrong = if !self.queue_size.is_power_of_two() || self.queue_size > 32768 {
            "the size of queues is no power of two up to 32768"
        } else if !(1..=64).contains(&self.request_queues) {
            "there can be 1 to 64 request queues"
        } else if self.requests_max == 0 || self.requests_max > 32768 {
            "there can be 1 to 32768 requests in flight"
        } else if self.data_bytes_max > 1 << 28 {
            "one request can have at most 256 MiB of data"
        } else {
            return Ok(());
        };
        Err(ConnectError::Configuration(wrong))
    }
}

/// The high-priority queue, for FORGET and INTERRUPT.
pub const HIGH_PRIORITY: u16 = 0;
/// The first queue for requests.
pub const FIRST_REQUEST_QUEUE: u16 = 1;

/// A connected front end with running queues.
///
/// As a [`Carrier`] it sends requests to its request queues in turn and waits for each reply; threads may
/// share it. For many requests in flight by one thread, take a [`queue`](Self::queue). Dropping it closes
/// the socket.
pub struct FrontEnd {
    connection: Mutex<Connection>,
    /// One at a time.
    migrating: Mutex<()>,
    config: FrontEndConfig,
    agreed: Agreed,
    queues: Vec<SharedQueue>,
    turn: AtomicUsize,
    queue_size: u16,
    time_limit: Option<Duration>,
    window: Option<OpenWindow>,
}

struct Connection {
    link: VhostLink,
    socket: UnixStream,
    memory: Arc<SharedMemory>,
}

impl FrontEnd {
    /// Connects to the socket of a server, and starts all queues.
    pub fn connect(
        path: impl AsRef<Path>,
        config: &FrontEndConfig,
    ) -> Result<FrontEnd, ConnectError> {
        let stream = UnixStream::connect(path).map_err(ConnectError::Socket)?;
        FrontEnd::over(stream, config)
    }

    /// As [`connect`](Self::connect), over a connected socket.
    pub fn over(stream: UnixStream, config: &FrontEndConfig) -> Result<FrontEnd, ConnectError> {
        FrontEnd::watched(stream, config, &mut || Ok(()))
    }

    /// As [`over`](Self::over), calling `watch` after each step.
    pub(crate) fn watched(
        stream: UnixStream,
        config: &FrontEndConfig,
        watch: Watch<'_>,
    ) -> Result<FrontEnd, ConnectError> {
        config.check()?;
        stream.set_read_timeout(config.time_limit)?;
        stream.set_write_timeout(config.time_limit)?;
        let mut link = handshake::link(&stream)?;
        let agreed = handshake::negotiate(&mut link, config, watch)?;
        let window = open_window(&mut link, config, &agreed, watch)?;
        handshake::accept(&link, &agreed, watch)?;
        let plan = Plan::new(config, &agreed);
        let memory = Arc::new(SharedMemory::new(plan.memory_bytes)?);
        handshake::share_memory(&link, &memory)?;
        watch()?;
        let mut front_end = FrontEnd {
            connection: Mutex::new(Connection {
                link,
                socket: stream,
                memory,
            }),
            migrating: Mutex::new(()),
            config: FrontEndConfig {
                request_queues: agreed.request_queues,
                window: config.window.filter(|_| window.is_some()),
                ..config.clone()
            },
            agreed,
            queues: Vec::new(),
            turn: AtomicUsize::new(0),
            queue_size: config.queue_size,
            time_limit: config.time_limit,
            window,
        };
        for (index, &(ring, slots)) in plan.queues.iter().enumerate() {
            let queue = front_end.start(index as u16, ring, (slots, plan.slot_count))?;
            front_end.queues.push(SharedQueue::new(queue));
            watch()?;
        }
        for index in 0..plan.queues.len() as u16 {
            handshake::enable_queue(&mut front_end.link(), &front_end.agreed, index, true)?;
            watch()?;
        }
        if let Some(window) = &mut front_end.window {
            window.start()?;
        }
        Ok(front_end)
    }

    fn start(
        &self,
        index: u16,
        layout: DriverRingLayout,
        slots: (SlotLayout, usize),
    ) -> Result<Queue, ConnectError> {
        let base = 0;
        let kick = EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)?;
        let connection = self.connection();
        let waker = Arc::new(waker::Waker::new(&connection.socket)?);
        let memory = Arc::clone(&connection.memory);
        let ring = DriverRing::new(memory, layout, self.agreed.event_index(), base);
        let place = QueuePlace {
            index,
            layout,
            base,
            kick: &kick,
            call: waker.call(),
        };
        handshake::place_queue(&connection.link, &connection.memory, &place)?;
        let memory = Arc::clone(&connection.memory);
        let indirect = self.agreed.indirect();
        Ok(Queue::new(memory, ring, slots, indirect, kick, waker))
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The features that the first server offered and those negotiated.
    #[must_use]
    pub fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    /// The tag in the configuration space, if the server has one.
    #[must_use]
    pub fn tag(&self) -> Option<&[u8]> {
        self.agreed.tag.as_deref()
    }

    /// Entries of each queue.
    #[must_use]
    pub fn queue_size(&self) -> u16 {
        self.queue_size
    }

    /// A clone of the socket, which ends with the server.
    pub(crate) fn socket(&self) -> std::io::Result<UnixStream> {
        self.connection().socket.try_clone()
    }

    /// The number of request queues, the first of which is [`FIRST_REQUEST_QUEUE`].
    #[must_use]
    pub fn request_queues(&self) -> u16 {
        self.agreed.request_queues
    }

    /// A queue for exclusive use, while the guard lives; `None` when it does not exist. Waits for other
    /// guards.
    #[must_use]
    pub fn queue(&self, index: u16) -> Option<QueueGuard<'_>> {
        Some(self.queues.get(usize::from(index))?.lock())
    }

    /// The DAX window, if one was configured and the server has one.
    #[must_use]
    pub fn window(&self) -> Option<&Window> {
        self.window.as_ref().map(OpenWindow::window)
    }

    /// The vhost-user link, for other messages.
    #[must_use]
    pub fn link(&self) -> VhostLink {
        self.connection().link.clone()
    }

    /// Sends a request and waits for its reply, which is empty for a request without one.
    ///
    /// FORGETs go to the high-priority queue, others to the request queues in turn. The reply has room for
    /// `reply_bytes_max` bytes with its header, in descriptors as the operation has them.
    pub fn exchange(
        &self,
        request: &[u8],
        reply_bytes_max: usize,
    ) -> Result<Vec<u8>, ExchangeError> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let index = if is_forget(request) {
            HIGH_PRIORITY
        } else {
            FIRST_REQUEST_QUEUE + (turn % usize::from(self.agreed.request_queues)) as u16
        };
        self.exchange_on(index, request, reply_bytes_max)
    }

    /// As [`exchange`](Self::exchange), on queue `index`.
    ///
    /// # Errors
    ///
    /// As there; `Full` when the queue does not exist.
    pub fn exchange_on(
        &self,
        index: u16,
        request: &[u8],
        reply_bytes_max: usize,
    ) -> Result<Vec<u8>, ExchangeError> {
        let queue = self.queues.get(usize::from(index));
        let queue = queue.ok_or(SubmitError::Full)?;
        let shape = Shape::of(request);
        let layout = shape.reply.map(|reply| within(reply, reply_bytes_max));
        let deadline = self.time_limit.map(|limit| Instant::now() + limit);
        let mut reply = Vec::new();
        let parts = Parts::of(request, &shape);
        queue.exchange(&parts, layout, deadline, &mut reply)?;
        Ok(reply)
    }
}

impl Drop for FrontEnd {
    fn drop(&mut self) {
        // Clones of the link must not keep the connection open.
        let _ = self.connection().socket.shutdown(std::net::Shutdown::Both);
    }
}

impl Carrier for FrontEnd {
    fn transact(&self, request: &[u8], reply_bytes_max: usize) -> Vec<u8> {
        self.exchange(request, reply_bytes_max).unwrap_or_default()
    }
}

/// Opens the configured window, if the server has one.
///
/// Its thread takes messages at once, or, as QEMU's, when the handshake is over.
fn open_window(
    link: &mut VhostLink,
    config: &FrontEndConfig,
    agreed: &Agreed,
    watch: Watch<'_>,
) -> Result<Option<OpenWindow>, ConnectError> {
    let size = handshake::window_bytes(link, config, agreed)?;
    let Some((size, rules)) = size.zip(config.window) else {
        return Ok(None);
    };
    let (own, other) = UnixStream::pair()?;
    own.set_write_timeout(config.time_limit)?;
    let mut window = OpenWindow::new(size, rules, own, link.clone());
    if rules.behaviour == WindowBehaviour::AsSpecified {
        window.start()?;
    }
    handshake::give_channel(link, &other)?;
    watch()?;
    Ok(Some(window))
}

fn is_forget(request: &[u8]) -> bool {
    let forgets = [Opcode::Forget.number(), Opcode::BatchForget.number()];
    InHeader::read_from_prefix(request).is_ok_and(|(header, _)| forgets.contains(&header.opcode))
}

/// `reply` with room for `bytes_max`: bulk data grow or shrink, or arguments if there are no data.
fn within(reply: ReplyLayout, bytes_max: usize) -> ReplyLayout {
    let body = bytes_max.saturating_sub(size_of::<OutHeader>());
    if reply.data == 0 {
        return ReplyLayout {
            arguments: body,
            data: 0,
        };
    }
    let arguments = reply.arguments.min(body);
    ReplyLayout {
        arguments,
        data: body - arguments,
    }
}

struct Plan {
    queues: Vec<(DriverRingLayout, SlotLayout)>,
    slot_count: usize,
    memory_bytes: usize,
}

impl Plan {
    fn new(config: &FrontEndConfig, agreed: &Agreed) -> Plan {
        let slot_count = config.requests_max.min(config.queue_size.into());
        let mut end = 0;
        let mut queues = Vec::new();
        for _ in 0..=agreed.request_queues {
            let ring = DriverRingLayout::new(end, config.queue_size);
            let slots = SlotLayout::new(ring.end, config.data_bytes_max);
            end = slots.end(slot_count);
            queues.push((ring, slots));
        }
        Plan {
            queues,
            slot_count,
            memory_bytes: end,
        }
    }
}
