//! A vhost-user front end for virtio-fs: what a virtual machine is to a server, without the machine.
//!
//! | room | what it does |
//! |---|---|
//! | `memory` | the guest's memory: a sealed memfd that both sides map, touched by atomic and volatile access alone |
//! | `ring` | the driver's side of a split virtqueue |
//! | `buffers` | slots for requests and replies in that memory, and the descriptors that a Linux guest makes of them |
//! | `queue` | requests in, completions out |
//! | `shared_queue` | the same for many threads that each wait for their reply |
//! | `waker` | sleeping until the device signals or is gone |
//! | `handshake` | the messages on the socket |
//! | `migration` | from one server to another, with everything that is under way |
//! | `state` | the state of a device, out of one and into another |

mod buffers;
mod error;
mod handshake;
mod memory;
mod migration;
mod queue;
mod ring;
mod shared_queue;
mod state;
mod waker;

pub use error::{ConnectError, ExchangeError, QueueError, SubmitError};
pub use handshake::{Agreed, Step, features};
pub use migration::{GuestMemory, MigrateError, Migrated};
pub use queue::{Completion, Data, Parts, Queue, Token};
pub use ring::{RawDescriptor, UsedElement, descriptor_flags};
pub use shared_queue::QueueGuard;
pub use state::StateError;
pub use vhost::vhost_user::{Frontend as VhostLink, VhostUserProtocolFeatures as ProtocolFeatures};

pub(crate) use handshake::Watch;
#[cfg(test)]
pub(crate) use queue::tests as queue_tests;

use buffers::SlotLayout;
use handshake::QueuePlace;
use memory::SharedMemory;
use queue::QueueFeatures;
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
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};
use zerocopy::FromBytes;

/// How a front end is made.
#[derive(Clone, Debug)]
pub struct FrontEndConfig {
    /// The most request queues to be used; fewer when the server has fewer. 1 to 64.
    pub request_queues: u16,
    /// Entries of each queue: a power of two, at most 32768. A guest's request can have so many
    /// descriptors, or one with a table of as many.
    pub queue_size: u16,
    /// Requests with their buffers in flight on one queue at once; at most `queue_size` are.
    pub requests_max: usize,
    /// The most bulk data of one request, in bytes.
    pub data_bytes_max: usize,
    /// The length of descriptors of bulk data in bytes: a page, or a folio of a guest with large
    /// ones.
    pub segment_bytes: usize,
    /// Whether to use tables of descriptors where the server knows them, as Linux does.
    pub indirect_descriptors: bool,
    /// Whether to use the event index where the server knows it, as Linux does.
    pub event_index: bool,
    /// The protocol features to be used where the server has them.
    pub protocol_features: ProtocolFeatures,
    /// How long one blocking request, and each message on the socket, may take; `None` for ever.
    pub time_limit: Option<Duration>,
}

impl Default for FrontEndConfig {
    fn default() -> FrontEndConfig {
        FrontEndConfig {
            request_queues: 1,
            queue_size: 1024,
            requests_max: 128,
            data_bytes_max: 1 << 20,
            segment_bytes: 4096,
            indirect_descriptors: true,
            event_index: true,
            protocol_features: ProtocolFeatures::MQ
                | ProtocolFeatures::CONFIG
                | ProtocolFeatures::REPLY_ACK
                | ProtocolFeatures::CONFIGURE_MEM_SLOTS
                | ProtocolFeatures::RESET_DEVICE
                | ProtocolFeatures::LOG_SHMFD
                | ProtocolFeatures::DEVICE_STATE,
            time_limit: Some(Duration::from_secs(30)),
        }
    }
}

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
        } else if self.segment_bytes == 0 || !self.segment_bytes.is_multiple_of(16) {
            "the length of segments is no multiple of 16"
        } else {
            return Ok(());
        };
        Err(ConnectError::Configuration(wrong))
    }
}

/// The queue for FORGET and whatever must not wait behind other requests.
pub const HIGH_PRIORITY: u16 = 0;
/// The first queue for requests.
pub const FIRST_REQUEST_QUEUE: u16 = 1;

/// A running virtio-fs device, seen from the guest.
///
/// As a [`Carrier`] it sends each request to one of its request queues, in turn, and waits for the
/// reply; it may be shared by threads. For many requests in flight by one thread, take a
/// [`queue`](Self::queue).
///
/// Dropping it closes the socket: the machine was switched off.
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
}

/// The server of the moment.
struct Connection {
    link: VhostLink,
    socket: UnixStream,
    memory: Arc<SharedMemory>,
}

impl FrontEnd {
    /// Connects to the socket of a server, and starts all queues.
    ///
    /// # Errors
    ///
    /// When nobody listens, or the server and this side do not get on.
    pub fn connect(
        path: impl AsRef<Path>,
        config: &FrontEndConfig,
    ) -> Result<FrontEnd, ConnectError> {
        let stream = UnixStream::connect(path).map_err(ConnectError::Socket)?;
        FrontEnd::over(stream, config)
    }

    /// As [`connect`](Self::connect), over a socket that is connected already.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn over(stream: UnixStream, config: &FrontEndConfig) -> Result<FrontEnd, ConnectError> {
        FrontEnd::watched(stream, config, &mut |_| Ok(()))
    }

    /// As [`over`](Self::over), telling of each step.
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
        let plan = Plan::new(config, &agreed);
        let memory = Arc::new(SharedMemory::new(plan.memory_bytes)?);
        handshake::share_memory(&link, &memory)?;
        watch(Step::Memory)?;
        let mut front_end = FrontEnd {
            connection: Mutex::new(Connection {
                link,
                socket: stream,
                memory,
            }),
            migrating: Mutex::new(()),
            config: FrontEndConfig {
                request_queues: agreed.request_queues,
                ..config.clone()
            },
            agreed,
            queues: Vec::new(),
            turn: AtomicUsize::new(0),
            queue_size: config.queue_size,
            time_limit: config.time_limit,
        };
        for (index, &(ring, slots)) in plan.queues.iter().enumerate() {
            let queue = front_end.start(index as u16, ring, (slots, plan.slot_count))?;
            front_end.queues.push(SharedQueue::new(queue));
            watch(Step::Queue(index as u16))?;
        }
        for index in 0..plan.queues.len() as u16 {
            handshake::enable_queue(&mut front_end.link(), &front_end.agreed, index, true)?;
            watch(Step::Enable(index))?;
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
        let features = QueueFeatures {
            indirect: self.agreed.indirect(),
        };
        let memory = Arc::clone(&connection.memory);
        Ok(Queue::new(memory, ring, slots, features, kick, waker))
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What the first server offered and what was agreed on.
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

    /// The socket, once more: its end is that of the server.
    pub(crate) fn socket(&self) -> std::io::Result<UnixStream> {
        self.connection().socket.try_clone()
    }

    /// How many request queues there are. They are numbered from [`FIRST_REQUEST_QUEUE`] on.
    #[must_use]
    pub fn request_queues(&self) -> u16 {
        self.agreed.request_queues
    }

    /// A queue, to be used by this thread alone as long as it has the guard; `None` when there is no
    /// such queue. Waits for others to give it back.
    #[must_use]
    pub fn queue(&self, index: u16) -> Option<QueueGuard<'_>> {
        Some(self.queues.get(usize::from(index))?.lock())
    }

    /// The messages of the vhost-user protocol, for those that are not sent here.
    #[must_use]
    pub fn link(&self) -> VhostLink {
        self.connection().link.clone()
    }

    /// Stops a queue (GET_VRING_BASE), which the server does when it has nothing of it in progress,
    /// and gives the place in the available ring that it has reached.
    ///
    /// # Errors
    ///
    /// When the server does not answer so.
    pub fn stop_queue(&self, index: u16) -> Result<u16, ConnectError> {
        handshake::stop_queue(&self.link(), index)
    }

    /// Starts a stopped queue again, from `base` on, with new signals as a rebooted driver has them:
    /// the same rings and buffers. What was submitted and not given back is not waited for.
    ///
    /// # Errors
    ///
    /// When the server refuses.
    pub fn restart_queue(&self, index: u16, base: u16) -> Result<(), ConnectError> {
        let Some(mut queue) = self.queue(index) else {
            return Err(ConnectError::Configuration("there is no such queue"));
        };
        let layout = queue.ring().layout();
        let mut link = self.link();
        let memory = Arc::clone(queue.memory());
        let place = QueuePlace {
            index,
            layout,
            base,
            kick: queue.kick_event(),
            call: queue.waker().call(),
        };
        handshake::place_queue(&link, &memory, &place)?;
        handshake::enable_queue(&mut link, &self.agreed, index, true)
    }

    /// Sends a request, waits, and gives the reply; an empty one to a request without reply, which
    /// the device has then seen.
    ///
    /// FORGETs go to the high-priority queue, all else to the request queues in turn. The reply has
    /// room for `reply_bytes_max` bytes with its header, divided as the operation has it.
    ///
    /// # Errors
    ///
    /// When it could not be sent or was not answered in time.
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

    /// As [`exchange`](Self::exchange), on the queue given.
    ///
    /// # Errors
    ///
    /// As there; `Full` when there is no such queue.
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
        // Links that somebody has copied do not keep the machine running.
        let _ = self.connection().socket.shutdown(std::net::Shutdown::Both);
    }
}

impl Carrier for FrontEnd {
    fn transact(&self, request: &[u8], reply_bytes_max: usize) -> Vec<u8> {
        self.exchange(request, reply_bytes_max).unwrap_or_default()
    }
}

fn is_forget(request: &[u8]) -> bool {
    let forgets = [Opcode::Forget.number(), Opcode::BatchForget.number()];
    InHeader::read_from_prefix(request).is_ok_and(|(header, _)| forgets.contains(&header.opcode))
}

/// The layout with as much room as is said: bulk data grow or shrink, or arguments where there are
/// none.
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

/// Where everything lies in the memory.
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
            let slots = SlotLayout::new(ring.end, config.data_bytes_max, config.segment_bytes);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_divided_as_the_operation_has_it() {
        let layout = |arguments, data| ReplyLayout { arguments, data };
        assert_eq!(within(layout(104, 0), 120), layout(104, 0));
        assert_eq!(within(layout(104, 0), 20), layout(4, 0));
        assert_eq!(within(layout(0, 4096), 1016), layout(0, 1000));
        assert_eq!(within(layout(16, 100), 232), layout(16, 200));
        assert_eq!(within(layout(16, 100), 0), layout(0, 0));
    }

    #[test]
    fn nonsense_is_refused_before_anybody_is_asked() {
        let (own, _other) = UnixStream::pair().unwrap();
        let config = FrontEndConfig {
            queue_size: 100,
            ..FrontEndConfig::default()
        };
        let refused = FrontEnd::over(own, &config).err().unwrap();
        assert!(matches!(refused, ConnectError::Configuration(_)));
    }
}
