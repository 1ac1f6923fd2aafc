//! FUSE over io_uring (Linux 6.14, `linux/fuse.h`, section "FUSE over io-uring"): a thread's ring, and
//! the memory of requests and replies.
//!
//! A [`Slot`] is the memory of one request at a time. [`register`](FuseRing::register) passes it to the
//! kernel, [`Event::Request`] returns it with a request, [`commit`](FuseRing::commit) passes it back with
//! the reply, and so on. A slot moves, so code that does not have it cannot touch its memory.
//!
//! ```text
//! 0      128        256      288   512                    32K−16   32K
//! │header│operation │ sizes  │     │ names, small replies │ header │ data of the request, then
//! └──────── fuse_uring_req_header ─┴──────────────────────┴────────┴ body of the reply (payload)
//! ```
//!
//! The kernel reads and writes the headers and the payload; the rest is ours. Request and reply share the
//! payload, so one of the two has to be elsewhere: names are few bytes and are moved away; data of a WRITE
//! are many and stay, and their reply is small.
//!
//! # Safety
//! While a slot is the kernel's, the ring owns its memory (`held`) and nothing borrows it. The ring returns
//! it after the kernel's completion, and leaks it when the ring is dropped before that. A [`PageBuffer`]
//! does not move with its owner.

#![allow(unsafe_code)]

use crate::buffer::PageBuffer;
use crate::io_uring::{enter, errno, new_ring, peek};
use ::io_uring::squeue::Entry128;
use ::io_uring::types::{Fd, Fixed};
use ::io_uring::{IoUring, cqueue, opcode};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, Result};
use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// `struct fuse_uring_req_header`: two of 128 bytes, and `struct fuse_uring_ent_in_out`.
const HEADERS_BYTES: usize = 288;
const OPERATION: usize = 128;
const SIZES: usize = 256;
/// `commit_id` and `payload_sz` of `struct fuse_uring_ent_in_out`.
const COMMIT_ID: usize = SIZES + 8;
const PAYLOAD_SIZE: usize = SIZES + 16;
/// `struct fuse_in_header` and `struct fuse_out_header`.
const IN_HEADER_BYTES: usize = 40;
const OUT_HEADER_BYTES: usize = 16;

const OPCODE: usize = 4;
/// `FUSE_WRITE`: its data are never moved.
const OPCODE_WRITE: u32 = 16;

/// Where names are moved to, and replies to requests with much data.
const SMALL: usize = 512;
const PAYLOAD: usize = 32 << 10;
const REPLY: usize = PAYLOAD - OUT_HEADER_BYTES;

/// The smallest payload that the kernel takes (`FUSE_MIN_READ_BUFFER`).
const PAYLOAD_BYTES_MIN: usize = 8192;

/// How long INIT's reply may take to have an effect, and the interval of tries.
const INIT_PATIENCE: Duration = Duration::from_secs(3);
const INIT_INTERVAL: Duration = Duration::from_micros(50);

/// Bytes of a slot whose memory is kept: up to the first page of the payload.
const KEPT_BYTES: usize = PAYLOAD + 4096;

/// The `io_uring_register(2)` operation of a thread that enables its ring, for seccomp filters
/// (`IORING_REGISTER_ENABLE_RINGS`).
pub const ENABLE: u32 = 12;

const CMD_REGISTER: u32 = 1;
const CMD_COMMIT_AND_FETCH: u32 = 2;

/// Registered files.
const DEVICE: Fixed = Fixed(0);
const WAKER: Fixed = Fixed(1);

/// A queue of the kernel, one for each possible CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueIndex(pub u16);

/// The memory of one request on a queue.
pub struct Slot {
    place: u32,
    queue: QueueIndex,
    memory: PageBuffer,
    /// Two `struct iovec`. The kernel reads them when it registers the slot, perhaps later on a kernel
    /// thread.
    pieces: Box<[u64; 4]>,
    reply_at: usize,
    /// The highest byte that was used since memory was released.
    used: usize,
}

impl fmt::Debug for Slot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Slot({} of queue {})", self.place, self.queue.0)
    }
}

/// A request in the pieces in which it arrives, and the buffer for its reply, header first.
#[derive(Debug)]
pub struct RingRequest<'a> {
    /// `struct fuse_in_header`.
    pub header: &'a [u8],
    /// The structure of the operation, followed by anything.
    pub structure: &'a [u8],
    /// All other arguments.
    pub rest: &'a [u8],
    /// The reply's buffer: at least 31 KiB, and the whole payload unless the request has much data.
    pub reply: &'a mut [u8],
}

impl Slot {
    /// Its queue.
    pub fn queue(&self) -> QueueIndex {
        self.queue
    }

    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.memory[at..at + N]);
        bytes
    }

    fn commit_id(&self) -> u64 {
        u64::from_ne_bytes(self.bytes(COMMIT_ID))
    }

    fn payload_length(&self) -> usize {
        let length = u32::from_ne_bytes(self.bytes(PAYLOAD_SIZE)) as usize;
        length.min(self.memory.len() - PAYLOAD)
    }

    /// Makes room for the reply to a request that has arrived.
    fn take_in(&mut self) {
        let length = self.payload_length();
        self.used = self.used.max(PAYLOAD + length);
        let opcode = u32::from_ne_bytes(self.bytes(OPCODE));
        if length <= NAMES_BYTES_MAX && opcode != OPCODE_WRITE {
            let (before, payload) = self.memory.split_at_mut(PAYLOAD);
            before[SMALL..SMALL + length].copy_from_slice(&payload[..length]);
            self.reply_at = REPLY;
        } else {
            self.reply_at = SMALL;
        }
    }

    /// The request, and the buffer for its reply.
    pub fn request(&mut self) -> RingRequest<'_> {
        let length = self.payload_length();
        let (headers, rest) = self.memory.split_at_mut(SMALL);
        let (rest, reply) = if self.reply_at == REPLY {
            let (small, reply) = rest.split_at_mut(REPLY - SMALL);
            (&small[..length], reply)
        } else {
            let (small, payload) = rest.split_at_mut(PAYLOAD - SMALL);
            (&payload[..length], small)
        };
        RingRequest {
            header: &headers[..IN_HEADER_BYTES],
            structure: &headers[OPERATION..SIZES],
            rest,
            reply,
        }
    }

    /// Puts a reply of `length` bytes, header included, where the kernel reads it. Without a reply, 0, the
    /// kernel takes an empty one.
    fn put_reply(&mut self, length: usize) {
        let (at, end) = (self.reply_at, self.reply_at + length.max(OUT_HEADER_BYTES));
        if length < OUT_HEADER_BYTES {
            let unique = self.commit_id();
            let header = &mut self.memory[at..at + OUT_HEADER_BYTES];
            header[..8].copy_from_slice(&(OUT_HEADER_BYTES as u64).to_ne_bytes());
            header[8..].copy_from_slice(&unique.to_ne_bytes());
        }
        self.memory.copy_within(at..at + OUT_HEADER_BYTES, 0);
        if at != REPLY {
            self.memory.copy_within(at + OUT_HEADER_BYTES..end, PAYLOAD);
        }
        let body = end - at - OUT_HEADER_BYTES;
        self.used = self.used.max(PAYLOAD + body);
        self.memory[PAYLOAD_SIZE..PAYLOAD_SIZE + 4].copy_from_slice(&(body as u32).to_ne_bytes());
    }

    /// Releases the memory that large requests left behind.
    fn release_memory(&mut self) {
        if self.used > KEPT_BYTES {
            let end = self.memory.len();
            // madvise(2) that fails costs memory and nothing else.
            let _ = self.memory.release(KEPT_BYTES..end);
            self.used = 0;
        }
    }
}

/// Arguments up to this size are names: two of them, or a name and a link's target.
const NAMES_BYTES_MAX: usize = 6 << 10;

/// What has happened on a ring.
#[derive(Debug)]
pub enum Event<J> {
    /// A request has arrived.
    Request(Slot),
    /// The kernel has returned a slot, or refused it.
    Gone(Slot, Errno),
    /// [`read`](FuseRing::read) has completed.
    Read(Slot, J, Result<usize>),
    /// [`Waker::wake`] was called, once or several times.
    Woken,
}

#[derive(Debug)]
enum Holder<J> {
    Free,
    Request(Slot),
    Read(Slot, J),
}

/// Wakes a thread that waits in its ring. Clones are the same.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Ends the thread's wait with [`Event::Woken`], now or when it next waits.
    pub fn wake(&self) {
        // Fails only when the counter is full, after 2^64 calls without a wait.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

/// The ring of one thread, on one `/dev/fuse`. `J` is the context of a file's read.
pub struct FuseRing<J> {
    ring: IoUring<Entry128>,
    waker: Waker,
    held: Vec<Holder<J>>,
}

impl<J> fmt::Debug for FuseRing<J> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "FuseRing({} slots)", self.held.len())
    }
}

impl<J> FuseRing<J> {
    /// A ring for at most `slots` slots on `device`, to be enabled by its thread.
    ///
    /// # Errors
    /// EPERM or EACCES where rings are forbidden (`kernel.io_uring_disabled`, a filter), ENOSYS without
    /// io_uring, EINVAL where a flag is not known, ENOMEM, EMFILE, EBADF.
    pub fn new(device: BorrowedFd<'_>, slots: u16) -> Result<FuseRing<J>> {
        // Each slot has at most one entry in the submission queue, and the waker one.
        let waker = Waker(Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?));
        let files = [device.as_raw_fd(), waker.0.as_raw_fd()];
        let operations = [
            opcode::UringCmd80::CODE,
            opcode::Read::CODE,
            opcode::PollAdd::CODE,
        ];
        Ok(FuseRing {
            ring: new_ring(u32::from(slots) + 1, &files, &operations)?,
            waker,
            held: Vec::new(),
        })
    }

    /// Wakes the ring's thread.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Binds the ring to the calling thread. Comes before all calls below.
    ///
    /// # Errors
    /// EBADFD when it is enabled already.
    pub fn enable(&mut self) -> Result<()> {
        let submitter = self.ring.submitter();
        submitter.register_enable_rings().map_err(errno)?;
        self.watch_waker()
    }

    fn watch_waker(&mut self) -> Result<()> {
        let poll = opcode::PollAdd::new(WAKER, libc::POLLIN as u32).multi(true);
        let entry = poll.build().user_data(user_data(Kind::Waker, 0));
        // SAFETY: it points at nothing.
        unsafe { self.push(&entry.into()) }
    }

    /// Memory for one more request on `queue`, with at most `payload_bytes` of arguments or body.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn slot(&mut self, queue: QueueIndex, payload_bytes: usize) -> Result<Slot> {
        let payload_bytes = payload_bytes.max(PAYLOAD_BYTES_MIN);
        let memory = PageBuffer::new(PAYLOAD + payload_bytes)?;
        let place = u32::try_from(self.held.len()).map_err(|_| Errno::NOMEM)?;
        self.held.push(Holder::Free);
        Ok(Slot {
            place,
            queue,
            memory,
            pieces: Box::default(),
            reply_at: REPLY,
            used: 0,
        })
    }

    /// Waits until the reply to INIT has taken effect. Where `mount(2)` itself waits for INIT
    /// (`FUSE_DEV_IOC_SYNC_INIT`), that is when the mounting thread next runs; until then, slots are refused.
    ///
    /// # Errors
    /// EAGAIN when that lasts for seconds, and those of `io_uring_enter(2)`.
    pub fn await_init(&mut self) -> Result<()> {
        let start = Instant::now();
        // The kernel retries a command refused with EAGAIN on a kernel thread, and refuses it later. So
        // what is tried is a command that is always refused.
        while self.try_in_vain()? == Errno::AGAIN {
            if start.elapsed() >= INIT_PATIENCE {
                return Err(Errno::AGAIN);
            }
            std::thread::sleep(INIT_INTERVAL);
        }
        Ok(())
    }

    /// Commits to no queue, and returns the error.
    fn try_in_vain(&mut self) -> Result<Errno> {
        let command = command(CMD_COMMIT_AND_FETCH, 0, QueueIndex(u16::MAX));
        let entry = command.build().user_data(user_data(Kind::Trial, 0));
        // SAFETY: it points at nothing.
        unsafe { self.push(&entry) }?;
        loop {
            self.wait(None)?;
            // Only a wake-up can precede it, which is reported again at the end.
            while let Some(completion) = self.ring.completion().next() {
                if completion.user_data() == Kind::Trial as u64 {
                    return Ok(Errno::from_raw_os_error(-completion.result().min(-1)));
                }
            }
        }
    }

    /// Passes a new slot to the kernel, at once. After [`await_init`](Self::await_init).
    ///
    /// # Errors
    /// EINVAL for a queue that does not exist or too small a slot, ENOTCONN when the connection is
    /// over, EOPNOTSUPP where INIT did not agree on it. The slot is lost.
    pub fn register(&mut self, mut slot: Slot) -> Result<()> {
        let start = slot.memory.as_ptr() as u64;
        let payload = (slot.memory.len() - PAYLOAD) as u64;
        *slot.pieces = [start, HEADERS_BYTES as u64, start + PAYLOAD as u64, payload];
        let command = command(CMD_REGISTER, 0, slot.queue).addr(Some(slot.pieces.as_ptr() as u64));
        let number = user_data(Kind::Request, slot.place);
        let mut entry = command.build().user_data(number);
        set_length(&mut entry, slot.pieces.len() as u32 / 2);
        let place = slot.place as usize;
        // SAFETY: the pieces, which do not move, and the memory that they name are in `held` until the
        // kernel returns them.
        unsafe { self.push(&entry) }?;
        self.held[place] = Holder::Request(slot);
        self.flush()?;
        // The kernel refuses at once, in the order of its completions.
        let refused = |completion: &cqueue::Entry| completion.user_data() == number;
        let next = peek(&mut self.ring).filter(refused);
        if next.is_none_or(|completion| completion.result() >= 0) {
            return Ok(());
        }
        match self.next_event() {
            Some(Event::Gone(_, errno)) => Err(errno),
            _ => Ok(()),
        }
    }

    /// Sends the reply of `length` bytes in the slot, 0 for none, and takes the next request when it
    /// arrives. Submitted with the next [`wait`](Self::wait).
    ///
    /// # Errors
    /// Those of `io_uring_enter(2)` when the submission queue was full.
    pub fn commit(&mut self, mut slot: Slot, length: usize) -> Result<()> {
        slot.put_reply(length);
        let command = command(CMD_COMMIT_AND_FETCH, slot.commit_id(), slot.queue);
        let number = user_data(Kind::Request, slot.place);
        let entry = command.build().user_data(number);
        let place = slot.place as usize;
        self.held[place] = Holder::Request(slot);
        // SAFETY: it names the memory that was registered, which is held.
        unsafe { self.push(&entry) }
    }

    /// Makes the kernel read `length` bytes of `file` at `offset` into the reply's body, from its byte
    /// `filled` on. Submitted with the next [`wait`](Self::wait); `job` keeps the file open.
    ///
    /// # Errors
    /// EINVAL when they do not fit, and those of `io_uring_enter(2)` when the submission queue was full.
    pub fn read(
        &mut self,
        slot: Slot,
        file: BorrowedFd<'_>,
        offset: u64,
        (filled, length): (usize, usize),
        job: J,
    ) -> Result<()> {
        let start = PAYLOAD + filled;
        let room = slot.memory.len().saturating_sub(start);
        if slot.reply_at != REPLY || length > room {
            return Err(Errno::INVAL);
        }
        let length = u32::try_from(length).map_err(|_| Errno::INVAL)?;
        let target = slot.memory[start..].as_ptr().cast_mut();
        let read = opcode::Read::new(Fd(file.as_raw_fd()), target, length).offset(offset);
        let entry = read.build().user_data(user_data(Kind::Read, slot.place));
        let place = slot.place as usize;
        self.held[place] = Holder::Read(slot, job);
        // SAFETY: `length` bytes of memory that is held until the read has completed.
        unsafe { self.push(&entry.into()) }
    }

    /// Adds an entry to the submission queue.
    ///
    /// # Safety
    /// What the entry points at must be valid, and the kernel's, until its last completion.
    unsafe fn push(&mut self, entry: &Entry128) -> Result<()> {
        // SAFETY: the caller's promise.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.flush()?;
        }
        Ok(())
    }

    /// Submits, and waits for an event. False when `timeout` was over, or a signal came, before.
    ///
    /// # Errors
    /// Those of `io_uring_enter(2)`.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<bool> {
        // When something was submitted, the kernel does not report how the wait has ended.
        match enter(&self.ring, 1, timeout) {
            Ok(()) | Err(Errno::INTR | Errno::TIME) => Ok(self.has_event()),
            Err(errno) => Err(errno),
        }
    }

    /// Submits, without a wait.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn flush(&mut self) -> Result<()> {
        match enter(&self.ring, 0, None) {
            Ok(()) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Whether [`next_event`](Self::next_event) has an event. Reads memory only.
    pub fn has_event(&mut self) -> bool {
        peek(&mut self.ring).is_some()
    }

    /// The next event.
    pub fn next_event(&mut self) -> Option<Event<J>> {
        loop {
            let completion = self.ring.completion().next()?;
            if let Some(event) = self.event(completion) {
                return Some(event);
            }
        }
    }

    fn event(&mut self, completion: cqueue::Entry) -> Option<Event<J>> {
        let place = (completion.user_data() >> 2) as usize;
        if completion.user_data() & 3 == Kind::Trial as u64 {
            return None;
        }
        if completion.user_data() & 3 == Kind::Waker as u64 {
            if !cqueue::more(completion.flags()) {
                // Without it, the thread sees only the end of the connection.
                let _ = self.watch_waker();
            }
            return Some(Event::Woken);
        }
        let held = std::mem::replace(self.held.get_mut(place)?, Holder::Free);
        let result = completion.result();
        let refused = || Errno::from_raw_os_error(-result);
        let event = match held {
            Holder::Free => return None,
            Holder::Request(slot) if result < 0 => Event::Gone(slot, refused()),
            Holder::Request(mut slot) => {
                slot.take_in();
                Event::Request(slot)
            }
            Holder::Read(slot, job) if result < 0 => Event::Read(slot, job, Err(refused())),
            Holder::Read(slot, job) => Event::Read(slot, job, Ok(result.unsigned_abs() as usize)),
        };
        Some(event)
    }

    /// Releases the memory that large requests left behind, in slots that wait for a request. Does nothing
    /// and returns false when replies are not submitted, or completions not read, because their slots are in
    /// use. (The ring takes requests only on its own thread, so none arrives meanwhile.)
    pub fn release_memory(&mut self) -> bool {
        if !self.ring.submission().is_empty() || self.has_event() {
            return false;
        }
        for held in &mut self.held {
            if let Holder::Request(slot) = held {
                slot.release_memory();
            }
        }
        true
    }
}

impl<J> Drop for FuseRing<J> {
    fn drop(&mut self) {
        for held in self.held.drain(..) {
            // The kernel may write to it until the ring is torn down, which is not reported.
            if let Holder::Request(slot) | Holder::Read(slot, _) = held {
                std::mem::forget(slot.memory);
                std::mem::forget(slot.pieces);
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Request = 0,
    Read = 1,
    Waker = 2,
    Trial = 3,
}

fn user_data(kind: Kind, place: u32) -> u64 {
    u64::from(place) << 2 | kind as u64
}

/// `struct fuse_uring_cmd_req` in an entry.
fn command(operation: u32, commit: u64, queue: QueueIndex) -> opcode::UringCmd80 {
    let mut request = [0; 80];
    request[8..16].copy_from_slice(&commit.to_ne_bytes());
    request[16..18].copy_from_slice(&queue.0.to_ne_bytes());
    opcode::UringCmd80::new(DEVICE, operation).cmd(request)
}

/// Sets `len` of `struct io_uring_sqe`, which the crate does not set for commands.
fn set_length(entry: &mut Entry128, length: u32) {
    const LEN: usize = 24;
    let place = (&raw mut *entry).wrapping_byte_add(LEN).cast::<u32>();
    // SAFETY: `Entry128` is that structure of 128 bytes (`repr(C)`), with `len` at this offset.
    unsafe { place.write(length) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_ground::skipped;
    use std::os::fd::AsFd;

    const PAYLOAD_BYTES: usize = 64 << 10;

    fn slot() -> Slot {
        Slot {
            place: 0,
            queue: QueueIndex(0),
            memory: PageBuffer::new(PAYLOAD + PAYLOAD_BYTES).unwrap(),
            pieces: Box::default(),
            reply_at: REPLY,
            used: 0,
        }
    }

    /// Delivers a request as the kernel does.
    fn deliver(slot: &mut Slot, opcode: u32, unique: u64, rest: &[u8]) {
        let memory = &mut slot.memory;
        memory[OPCODE..OPCODE + 4].copy_from_slice(&opcode.to_ne_bytes());
        memory[OPERATION..OPERATION + 4].copy_from_slice(b"arg ");
        memory[COMMIT_ID..COMMIT_ID + 8].copy_from_slice(&unique.to_ne_bytes());
        let length = rest.len() as u32;
        memory[PAYLOAD_SIZE..PAYLOAD_SIZE + 4].copy_from_slice(&length.to_ne_bytes());
        memory[PAYLOAD..PAYLOAD + rest.len()].copy_from_slice(rest);
        slot.take_in();
    }

    fn reply(slot: &mut Slot, header: &[u8; 16], body: &[u8]) {
        let request = slot.request();
        request.reply[..16].copy_from_slice(header);
        request.reply[16..16 + body.len()].copy_from_slice(body);
        slot.put_reply(16 + body.len());
    }

    /// The reply where the kernel reads it: its header and its body.
    fn replied(slot: &Slot) -> (&[u8], &[u8]) {
        let length = slot.payload_length();
        (&slot.memory[..16], &slot.memory[PAYLOAD..PAYLOAD + length])
    }

    #[test]
    fn names_are_moved_away_for_the_reply() {
        let mut slot = slot();
        deliver(&mut slot, 1, 6, b"name\0");
        let request = slot.request();
        assert_eq!(&request.structure[..4], b"arg ");
        assert_eq!(request.rest, b"name\0");
        assert_eq!(request.reply.len(), 16 + PAYLOAD_BYTES);
        request.reply[16..21].copy_from_slice(b"entry");
        assert_eq!(request.rest, b"name\0", "not where the reply is written");
        reply(&mut slot, b"sixteen bytes...", b"entry and more");
        let reply = replied(&slot);
        assert_eq!(reply, (&b"sixteen bytes..."[..], &b"entry and more"[..]));
    }

    #[test]
    fn data_of_requests_are_not_moved() {
        for (opcode, length) in [(OPCODE_WRITE, 10), (OPCODE_WRITE, 40_000), (21, 40_000)] {
            let data: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let mut slot = slot();
            deliver(&mut slot, opcode, 6, &data);
            let start = slot.memory[PAYLOAD..].as_ptr();
            let request = slot.request();
            assert_eq!(request.rest.as_ptr(), start, "{opcode} {length}");
            assert!(request.reply.len() >= 31 << 10);
            reply(&mut slot, b"sixteen bytes...", b"written!");
            assert_eq!(replied(&slot), (&b"sixteen bytes..."[..], &b"written!"[..]));
        }
    }

    #[test]
    fn no_reply_is_sent_as_an_empty_one() {
        let mut slot = slot();
        deliver(&mut slot, 41, 77, b"");
        slot.put_reply(0);
        let (header, body) = replied(&slot);
        assert_eq!(header[..8], 16_u64.to_ne_bytes(), "16 bytes, no error");
        assert_eq!(header[8..], 77_u64.to_ne_bytes());
        assert_eq!(body, b"");
    }

    #[test]
    fn a_size_beyond_the_memory_is_cut() {
        let mut slot = slot();
        deliver(&mut slot, 1, 6, b"");
        slot.memory[PAYLOAD_SIZE..PAYLOAD_SIZE + 4].copy_from_slice(&u32::MAX.to_ne_bytes());
        slot.take_in();
        assert_eq!(slot.request().rest.len(), PAYLOAD_BYTES);
    }

    fn ring() -> Option<FuseRing<()>> {
        let Ok(device) = crate::fuse_dev::open() else {
            skipped("no /dev/fuse");
            return None;
        };
        match FuseRing::new(device.as_fd(), 4) {
            Ok(ring) => Some(ring),
            Err(error) => {
                skipped(&format!("no ring: {error}"));
                None
            }
        }
    }

    #[test]
    fn a_ring_refuses_other_operations() {
        let Some(mut ring) = ring() else { return };
        std::thread::spawn(move || {
            ring.enable().unwrap();
            let write = opcode::Write::new(WAKER, std::ptr::null(), 0).build();
            for entry in [opcode::Nop::new().build(), write] {
                // SAFETY: it points at nothing.
                unsafe { ring.push(&entry.user_data(99).into()) }.unwrap();
                ring.wait(None).unwrap();
                let completion = ring.ring.completion().next().unwrap();
                assert_eq!(
                    (completion.user_data(), completion.result()),
                    (99, -libc::EACCES)
                );
            }
            let more = ring.ring.submitter().register_files(&[0]).unwrap_err();
            assert_eq!(more.raw_os_error(), Some(libc::EACCES), "nor more files");
        })
        .join()
        .unwrap();
    }
}
