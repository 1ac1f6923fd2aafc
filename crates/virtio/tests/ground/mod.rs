//! A minimal front end and guest: sets up a device over a socket, with the guest's memory in a memfd, and
//! writes requests to queues.
#![allow(dead_code, reason = "each test uses what it needs")]

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thrufs::FileHandle;
use thrufs_abi::layout::{
    CreateIn, EntryOut, GetattrIn, InitIn, InitOut, OpenOut, OutHeader, ReadIn, WriteIn,
};
use thrufs_abi::version::{KERNEL_MINOR, KERNEL_VERSION};
use thrufs_abi::{InitFlags, NodeId, Opcode, Reply, RequestBuilder, Unique};
pub use thrufs_testing::PATIENCE;
use thrufs_testing::memory::{Asked, Files, MemoryFs, Settings};
use thrufs_virtio::{Device, DeviceConfig, DeviceError, MakeFileSystem, Served};
use vhost::vhost_user::message::VhostUserHeaderFlag;
use vhost::vhost_user::{Frontend, VhostUserFrontend, VhostUserProtocolFeatures};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use zerocopy::{FromBytes, IntoBytes};

pub const GUEST: u64 = 0x4000_0000;
pub const USER: u64 = 0x7000_0000_0000;
pub const SIZE: u16 = 16;

/// Each queue's part of the memory, and offsets in it.
const QUEUE_BYTES: u64 = 4 << 20;
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;
const TABLES: u64 = 0x1_0000;
const TABLE_BYTES: u64 = 0x1000;
const REQUESTS: u64 = 0x10_0000;
/// For the request, and as many for the reply.
const HALF_BYTES: u64 = 0x1_8000;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

const VERSION_1: u64 = 1 << 32;
const EVENT_IDX: u64 = 1 << 29;
const INDIRECT_DESC: u64 = 1 << 28;
const PROTOCOL_FEATURES: u64 = 1 << 30;
pub const ALL_FEATURES: u64 = VERSION_1 | EVENT_IDX | INDIRECT_DESC | PROTOCOL_FEATURES;

/// READs by this handle, which no file has, wait for the gate.
pub const SLOW: FileHandle = FileHandle(99);

/// Files in memory, whose sessions take a while to end.
pub fn memory(hook: impl Fn(&Asked<'_>) + Send + Sync + 'static) -> Arc<Files> {
    Files::new(Settings {
        wants: InitFlags::OVER_IO_URING | InitFlags::PASSTHROUGH | InitFlags::POSIX_LOCKS,
        end: Duration::from_millis(20),
        hook: Some(Box::new(move |asked| {
            hook(asked);
            if asked.handle == SLOW {
                asked.wait()
            } else {
                Ok(())
            }
        })),
        ..Settings::default()
    })
}

pub fn count(counter: &AtomicUsize) -> usize {
    counter.load(Ordering::SeqCst)
}

/// Lookups that were forgotten.
pub fn forgotten(files: &Files) -> u64 {
    files.forgotten.lock().unwrap().values().sum()
}

/// Sessions without files, each of which begins when the last has been destroyed, and what it had open is closed.
pub fn sessions(files: &Arc<Files>) -> impl Fn() -> std::io::Result<Arc<MemoryFs>> + use<> {
    let files = Arc::clone(files);
    move || {
        let made = count(&files.made);
        assert_eq!(
            (count(&files.destroyed), count(&files.dropped)),
            (made, made)
        );
        files.clear();
        Ok(Arc::new(files.serve()))
    }
}

pub struct Queue {
    number: u64,
    pub kick: EventFd,
    pub call: EventFd,
    pub error: EventFd,
    pub available: u16,
    pub used: u16,
    next_head: u16,
}

pub struct Guest {
    pub front_end: Frontend,
    pub memory: OwnedFd,
    pub queues: Vec<Queue>,
    pub features: u64,
    next_unique: u64,
}

pub type Serving = JoinHandle<Result<Served, DeviceError>>;

/// A device, a thread that serves it, and a guest with queues that has not sent INIT.
pub fn serve<M: MakeFileSystem>(
    make: M,
    config: DeviceConfig,
    features: u64,
) -> (Arc<Device<M>>, Serving, Guest) {
    let device = Arc::new(Device::new(make, config.clone()).unwrap());
    let (serving, guest) = connect(&device, &config, features);
    (device, serving, guest)
}

pub fn connect<M: MakeFileSystem>(
    device: &Arc<Device<M>>,
    config: &DeviceConfig,
    features: u64,
) -> (Serving, Guest) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let device = Arc::clone(device);
    let serving = std::thread::spawn(move || device.serve(theirs));
    let queues = 1 + u64::from(config.request_queues.get());
    let mut guest = Guest::new(ours, queues, features);
    guest.set_up();
    (serving, guest)
}

/// Disconnects the guest.
pub fn end(serving: Serving, guest: Guest) {
    drop(guest);
    assert_eq!(serving.join().unwrap().unwrap(), Served::Disconnected);
}

impl Guest {
    pub fn new(stream: UnixStream, queues: u64, features: u64) -> Guest {
        let memory = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&memory, queues * QUEUE_BYTES).unwrap();
        let eventfd = || EventFd::new(EFD_NONBLOCK).unwrap();
        let queue = |number| Queue {
            number,
            kick: eventfd(),
            call: eventfd(),
            error: eventfd(),
            available: 0,
            used: 0,
            next_head: 0,
        };
        Guest {
            front_end: Frontend::from_stream(stream, queues),
            memory,
            queues: (0..queues).map(queue).collect(),
            features,
            next_unique: 2,
        }
    }

    pub fn set_up(&mut self) {
        self.negotiate();
        for number in 0..self.queues.len() {
            self.start_queue(number, 0);
        }
    }

    /// All that comes before the queues.
    pub fn negotiate(&mut self) {
        let front_end = &mut self.front_end;
        front_end.set_owner().unwrap();
        let offered = front_end.get_features().unwrap();
        assert_eq!(self.features & !offered, 0);
        let protocol = front_end.get_protocol_features().unwrap();
        let wanted = VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
            | VhostUserProtocolFeatures::RESET_DEVICE
            | VhostUserProtocolFeatures::LOG_SHMFD
            | VhostUserProtocolFeatures::BACKEND_REQ;
        assert!(protocol.contains(wanted));
        let optional = VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::DEVICE_STATE
            | VhostUserProtocolFeatures::BACKEND_SEND_FD
            | VhostUserProtocolFeatures::SHMEM;
        front_end
            .set_protocol_features(wanted | protocol & optional)
            .unwrap();
        front_end.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        assert_eq!(front_end.get_queue_num().unwrap(), self.queues.len() as u64);
        front_end.set_features(self.features).unwrap();
        let region = self.region();
        self.front_end.set_mem_table(&[region]).unwrap();
    }

    pub fn region(&self) -> VhostUserMemoryRegionInfo {
        VhostUserMemoryRegionInfo {
            guest_phys_addr: GUEST,
            memory_size: self.queues.len() as u64 * QUEUE_BYTES,
            userspace_addr: USER,
            mmap_offset: 0,
            mmap_handle: self.memory.as_raw_fd(),
        }
    }

    pub fn start_queue(&mut self, number: usize, base: u16) {
        self.front_end.set_vring_num(number, SIZE).unwrap();
        self.front_end.set_vring_base(number, base).unwrap();
        self.place_queue(number, None);
        let (front_end, queue) = (&mut self.front_end, &self.queues[number]);
        front_end.set_vring_call(number, &queue.call).unwrap();
        front_end.set_vring_err(number, &queue.error).unwrap();
        front_end.set_vring_kick(number, &queue.kick).unwrap();
        if self.features & PROTOCOL_FEATURES != 0 {
            front_end.set_vring_enable(number, true).unwrap();
        }
    }

    /// Sets the addresses of a queue, and the log address of its used ring.
    pub fn place_queue(&self, number: usize, log_addr: Option<u64>) {
        self.try_to_place_queue(number, log_addr).unwrap();
    }

    pub fn try_to_place_queue(&self, number: usize, log_addr: Option<u64>) -> vhost::Result<()> {
        let at = USER + number as u64 * QUEUE_BYTES;
        let layout = VringConfigData {
            queue_max_size: SIZE,
            queue_size: SIZE,
            flags: log_addr.is_some().into(),
            desc_table_addr: at,
            used_ring_addr: at + USED,
            avail_ring_addr: at + AVAILABLE,
            log_addr,
        };
        self.front_end.set_vring_addr(number, &layout)
    }

    /// The head of the next request on a queue.
    pub fn next_head(&self, queue: usize) -> u16 {
        self.queues[queue].next_head
    }

    fn offset(&self, queue: usize, at: u64) -> u64 {
        self.queues[queue].number * QUEUE_BYTES + at
    }

    pub fn put(&self, queue: usize, at: u64, bytes: &[u8]) {
        rustix::io::pwrite(&self.memory, bytes, self.offset(queue, at)).unwrap();
    }

    fn get(&self, queue: usize, at: u64, bytes: &mut [u8]) {
        rustix::io::pread(&self.memory, bytes, self.offset(queue, at)).unwrap();
    }

    /// Descriptor at `at`, an offset in the queue's part of the memory.
    pub fn descriptor(
        &self,
        queue: usize,
        at: u64,
        address: u64,
        length: u32,
        flags: u16,
        next: u16,
    ) {
        let mut bytes = Vec::new();
        bytes.extend(address.to_le_bytes());
        bytes.extend(length.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(next.to_le_bytes());
        self.put(queue, at, &bytes);
    }

    pub fn offer(&mut self, queue: usize, head: u16) {
        let available = self.queues[queue].available;
        let slot = u64::from(available % SIZE) * 2;
        self.put(queue, AVAILABLE + 4 + slot, &head.to_le_bytes());
        self.queues[queue].available = available.wrapping_add(1);
        let index = self.queues[queue].available;
        self.put(queue, AVAILABLE + 2, &index.to_le_bytes());
        self.queues[queue].kick.write(1).unwrap();
    }

    pub fn set_available(&self, queue: usize, index: u16) {
        self.put(queue, AVAILABLE + 2, &index.to_le_bytes());
        self.queues[queue].kick.write(1).unwrap();
    }

    /// Where the replies to `head` go, as an offset.
    pub fn reply_at(head: u16) -> u64 {
        REQUESTS + u64::from(head) * 2 * HALF_BYTES + HALF_BYTES
    }

    /// Submits a request, by a table of descriptors: its header, the rest in pieces of odd sizes, and
    /// room for a reply, likewise. Returns the head.
    pub fn submit(&mut self, queue: usize, request: &[u8], room: usize) -> u16 {
        let head = self.queues[queue].next_head;
        self.queues[queue].next_head = (head + 1) % SIZE;
        let at = REQUESTS + u64::from(head) * 2 * HALF_BYTES;
        assert!(request.len() as u64 <= HALF_BYTES && room as u64 <= HALF_BYTES);
        self.put(queue, at, request);
        let mut pieces = Vec::new();
        cut(at, request.len(), 40, 0, &mut pieces);
        cut(Guest::reply_at(head), room, 16, WRITE, &mut pieces);
        let table = TABLES + u64::from(head) * TABLE_BYTES;
        let count = pieces.len();
        for (index, (at, length, flags)) in pieces.into_iter().enumerate() {
            let flags = flags | (NEXT * u16::from(index + 1 < count));
            let (address, place) = (self.guest_address(queue, at), table + index as u64 * 16);
            self.descriptor(
                queue,
                place,
                address,
                length as u32,
                flags,
                index as u16 + 1,
            );
        }
        let address = self.guest_address(queue, table);
        let place = u64::from(head) * 16;
        self.descriptor(queue, place, address, count as u32 * 16, INDIRECT, 0);
        self.offer(queue, head);
        head
    }

    /// Submits several requests to queue 1 that the device sees at once.
    pub fn at_once<T>(&mut self, submit: impl FnOnce(&mut Guest) -> T) -> T {
        self.front_end.set_vring_enable(1, false).unwrap();
        let submitted = submit(self);
        self.front_end.set_vring_enable(1, true).unwrap();
        submitted
    }

    pub fn guest_address(&self, queue: usize, at: u64) -> u64 {
        GUEST + self.offset(queue, at)
    }

    /// The next used element within `patience`: the head and the bytes written.
    pub fn next_used_within(&mut self, queue: usize, patience: Duration) -> Option<(u16, u32)> {
        let deadline = Instant::now() + patience;
        loop {
            let mut index = [0; 2];
            self.get(queue, USED + 2, &mut index);
            let used = self.queues[queue].used;
            if u16::from_le_bytes(index) != used {
                let mut element = [0; 8];
                self.get(queue, USED + 4 + u64::from(used % SIZE) * 8, &mut element);
                self.queues[queue].used = used.wrapping_add(1);
                // Asks for a call with the next.
                let event = self.queues[queue].used.to_le_bytes();
                self.put(queue, AVAILABLE + 4 + u64::from(SIZE) * 2, &event);
                let (head, length) = element.split_at(4);
                let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
                return Some((word(head) as u16, word(length)));
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            wait_for(&self.queues[queue].call, left);
        }
    }

    pub fn next_used(&mut self, queue: usize) -> (u16, u32) {
        let used = self.next_used_within(queue, PATIENCE);
        used.expect("an answer within a reasonable time")
    }

    pub fn reply(&self, queue: usize, head: u16, length: u32) -> Vec<u8> {
        self.bytes(queue, Guest::reply_at(head), length)
    }

    pub fn bytes(&self, queue: usize, at: u64, length: u32) -> Vec<u8> {
        let mut bytes = vec![0; length as usize];
        self.get(queue, at, &mut bytes);
        bytes
    }

    pub fn transact(&mut self, queue: usize, request: &[u8], room: usize) -> Vec<u8> {
        let head = self.submit(queue, request, room);
        let (used, length) = self.next_used(queue);
        assert_eq!(used, head);
        self.reply(queue, head, length)
    }

    pub fn request(&mut self, opcode: Opcode, node: u64) -> RequestBuilder {
        let unique = Unique(self.next_unique);
        self.next_unique += 2;
        // The ids of the test process, so that a directory can be served without privilege.
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        RequestBuilder::new(opcode, unique, NodeId(node)).ids(uid.as_raw(), gid.as_raw(), 0)
    }

    pub fn getattr(&mut self, node: u64) -> RequestBuilder {
        self.request(Opcode::Getattr, node)
            .arg(&GetattrIn::default())
    }

    pub fn read_request(&mut self, node: u64, fh: u64, offset: u64, size: u32) -> Vec<u8> {
        let arg = ReadIn {
            fh,
            offset,
            size,
            ..ReadIn::default()
        };
        self.request(Opcode::Read, node).arg(&arg).finish()
    }

    pub fn write_request(
        &mut self,
        node: u64,
        fh: u64,
        offset: u64,
        data: &[u8],
    ) -> RequestBuilder {
        let arg = WriteIn {
            fh,
            offset,
            size: data.len() as u32,
            ..WriteIn::default()
        };
        self.request(Opcode::Write, node).arg(&arg).bytes(data)
    }

    /// Makes a file; returns its node and handle.
    pub fn create(&mut self, name: &str) -> (u64, u64) {
        let arg = CreateIn {
            flags: 2,
            mode: 0o100_644,
            ..CreateIn::default()
        };
        let request = self
            .request(Opcode::Create, 1)
            .arg(&arg)
            .name(name.as_bytes());
        let made: [u8; size_of::<EntryOut>() + size_of::<OpenOut>()] = self.ask(request).unwrap();
        let (entry, rest) = EntryOut::read_from_prefix(&made).unwrap();
        let (opened, _) = OpenOut::read_from_prefix(rest).unwrap();
        (entry.nodeid, opened.fh)
    }

    /// Sends a request on queue 1 whose reply is a structure.
    pub fn ask<T: FromBytes>(&mut self, request: RequestBuilder) -> Result<T, i32> {
        body_of(&self.transact(1, &request.finish(), 4096))
    }

    /// The same with an empty reply.
    pub fn tell(&mut self, request: RequestBuilder) -> Result<(), i32> {
        self.ask::<[u8; 0]>(request).map(|_| ())
    }

    /// The same with any reply that is no error.
    pub fn tell_any(&mut self, request: RequestBuilder) {
        let reply = self.transact(1, &request.finish(), 4096);
        let reply = Reply::parse(&reply).expect("a reply of the length that it says");
        assert_eq!(reply.error, 0);
    }

    /// INIT, offering everything.
    pub fn init(&mut self) -> Result<InitOut, i32> {
        let request = self.init_request();
        body_of(&self.transact(1, &request, 4096))
    }

    pub fn init_request(&mut self) -> Vec<u8> {
        let flags = InitFlags::all().bits();
        let arg = InitIn {
            major: KERNEL_VERSION,
            minor: KERNEL_MINOR,
            max_readahead: 1 << 17,
            flags: flags as u32,
            flags2: (flags >> 32) as u32,
            ..InitIn::default()
        };
        self.request(Opcode::Init, 0).arg(&arg).finish()
    }

    /// Whether the error eventfd of `queue` was signalled.
    pub fn error_reported(&self, queue: usize) -> bool {
        wait_for(&self.queues[queue].error, PATIENCE)
    }
}

fn body_of<T: FromBytes>(reply: &[u8]) -> Result<T, i32> {
    let reply = Reply::parse(reply).expect("a reply of the length that it says");
    match reply.error {
        0 => Ok(reply.structure().expect("a body")),
        error => Err(-error),
    }
}

/// The error of a reply, which must be a header alone.
pub fn error_of(reply: &[u8]) -> i32 {
    assert_eq!(reply.len(), size_of::<OutHeader>());
    let header = OutHeader::read_from_bytes(reply).unwrap();
    assert_eq!(header.len as usize, header.as_bytes().len());
    -header.error
}

fn cut(mut at: u64, length: usize, first: usize, flags: u16, pieces: &mut Vec<(u64, usize, u16)>) {
    let (mut left, mut piece) = (length, first);
    while left > 0 {
        let length = piece.min(left);
        pieces.push((at, length, flags));
        at += length as u64;
        left -= length;
        piece = 4096 - 1;
    }
}

/// Waits until an eventfd has counted, and takes the count.
fn wait_for(eventfd: &EventFd, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    let epoll = Epoll::new().unwrap();
    let event = EpollEvent::new(EventSet::IN, 0);
    epoll
        .ctl(ControlOperation::Add, eventfd.as_raw_fd(), event)
        .unwrap();
    while eventfd.read().is_err() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        let milliseconds = left.as_millis() as i32 + 1;
        let _ = epoll.wait(milliseconds, &mut [EpollEvent::default()]);
    }
    true
}
