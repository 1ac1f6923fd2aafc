//! The thread of one request queue: requests from `/dev/fuse` to the queue, and replies back.
//!
//! It sleeps in one epoll_wait(2): for the kernel's requests while the queue has room, for the server's
//! signal, for the end. The signal is edge-triggered and never read; before the thread sleeps it has armed it
//! and found the queue empty.

use super::error::{RelayError, system};
use super::greeting::message;
use super::high_priority;
use super::shared::Shared;
use crate::front_end::{
    Completion, FIRST_REQUEST_QUEUE, Parts, QueueError, QueueGuard, SubmitError,
};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use thrufs_abi::layout::{InHeader, OutHeader};
use thrufs_testing::Shape;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use zerocopy::FromBytes;

/// Room for a request: the largest `max_write`, with headers and arguments.
const REQUEST_BYTES_MAX: usize = (1 << 20) + (128 << 10);

/// How long to wait for requests in flight after the unmount.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Sources of epoll events.
const SIGNAL: u64 = 0;
const GONE: u64 = 1;
const EVENTFD: u64 = 2;
const REQUEST: u64 = 3;

pub(super) struct Channel<'a> {
    shared: &'a Shared,
    device: OwnedFd,
    /// Kept open for epoll.
    _socket: UnixStream,
    queue: QueueGuard<'a>,
    open: Epoll,
    /// Waits for all events but requests.
    full: Epoll,
    /// Unique ids of requests in flight, by slot.
    uniques: Vec<Option<u64>>,
    request: Vec<u8>,
    /// Length of a request that was read and waits for room.
    held: Option<usize>,
    reply: Vec<u8>,
    unmounted: bool,
    server_gone: bool,
}

impl<'a> Channel<'a> {
    /// Serves until the mount is gone or the relay ends.
    pub(super) fn serve(
        shared: &'a Shared,
        device: OwnedFd,
        number: u16,
    ) -> Result<(), RelayError> {
        let mut channel = Channel::new(shared, device, number)?;
        let served = channel.run();
        if served.is_err() {
            channel.refuse_all();
        }
        served
    }

    fn new(shared: &'a Shared, device: OwnedFd, number: u16) -> Result<Self, RelayError> {
        rustix::io::ioctl_fionbio(&device, true).map_err(system("change a channel"))?;
        let queue = shared.front_end.queue(FIRST_REQUEST_QUEUE + number);
        let queue = queue.expect("there is a channel for each request queue");
        let socket = shared.front_end.socket();
        let socket = socket.map_err(system("wait for the server"))?;
        let make = || -> io::Result<Epoll> {
            let epoll = Epoll::new()?;
            let add = |descriptor, set, data| {
                epoll.ctl(
                    ControlOperation::Add,
                    descriptor,
                    EpollEvent::new(set, data),
                )
            };
            let edge = EventSet::IN | EventSet::EDGE_TRIGGERED;
            add(queue.waker().call().as_raw_fd(), edge, SIGNAL)?;
            add(socket.as_raw_fd(), EventSet::READ_HANG_UP, GONE)?;
            add(shared.eventfd.as_raw_fd(), EventSet::IN, EVENTFD)?;
            Ok(epoll)
        };
        let open = make().map_err(system("wait for requests"))?;
        let full = make().map_err(system("wait for replies"))?;
        let requests = EpollEvent::new(EventSet::IN, REQUEST);
        open.ctl(ControlOperation::Add, device.as_raw_fd(), requests)
            .map_err(system("wait for requests"))?;
        Ok(Channel {
            shared,
            device,
            _socket: socket,
            uniques: vec![None; queue.buffers()],
            queue,
            open,
            full,
            request: vec![0; REQUEST_BYTES_MAX],
            held: None,
            reply: Vec::new(),
            unmounted: false,
            server_gone: false,
        })
    }

    fn run(&mut self) -> Result<(), RelayError> {
        let mut deadline = None;
        loop {
            self.answer()?;
            self.fetch()?;
            if self.unmounted || self.shared.is_ending() {
                // Ends the other threads, which may not have seen the unmount yet.
                self.shared.end();
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + DRAIN_TIMEOUT);
                if self.queue.in_flight() == 0 || Instant::now() >= deadline {
                    return Ok(());
                }
            }
            if self.queue.is_armed_and_empty() {
                if self.server_gone {
                    return Err(QueueError::Gone.into());
                }
                self.sleep(deadline)?;
            }
        }
    }

    /// Puts the kernel's requests on the queue while it has room.
    fn fetch(&mut self) -> Result<(), RelayError> {
        while !self.unmounted && !self.shared.is_ending() {
            let length = match self.held.take() {
                Some(length) => length,
                None => match rustix::io::read(&self.device, &mut self.request[..]) {
                    Ok(length) => length,
                    Err(Errno::AGAIN) => return Ok(()),
                    // A signal, or an interrupted request.
                    Err(Errno::INTR | Errno::NOENT) => continue,
                    // Unmounted, or aborted.
                    Err(Errno::NODEV | Errno::CONNABORTED) => {
                        self.unmounted = true;
                        return Ok(());
                    }
                    Err(errno) => return Err(system("read a request")(errno)),
                },
            };
            if !self.send(length)? {
                self.held = Some(length);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Sends the request of `length` bytes. False without room at present.
    fn send(&mut self, length: usize) -> Result<bool, RelayError> {
        let request = &self.request[..length];
        if high_priority::is_silent(request) {
            high_priority::send(self.shared, request)?;
            return Ok(true);
        }
        let unique = InHeader::read_from_prefix(request).map_or(0, |(header, _)| header.unique);
        let shape = Shape::of(request);
        match self.queue.submit(&Parts::of(request, &shape), shape.reply) {
            Ok(token) => {
                self.uniques[token.slot()] = Some(unique);
                self.queue.notify()?;
            }
            Err(SubmitError::Full) => return Ok(false),
            // No buffer will ever hold it.
            Err(_) => self.refuse(unique, Errno::IO),
        }
        Ok(true)
    }

    fn answer(&mut self) -> Result<(), RelayError> {
        while let Some(completion) = self.queue.poll()? {
            self.answer_one(&completion);
            self.queue.free(completion);
        }
        Ok(())
    }

    fn answer_one(&mut self, completion: &Completion) {
        let Some(unique) = self.uniques[completion.token().slot()].take() else {
            return;
        };
        self.queue.copy_reply(completion, &mut self.reply);
        if !is_whole(&self.reply, unique) {
            return self.refuse(unique, Errno::IO);
        }
        match rustix::io::write(&self.device, &self.reply) {
            // The request was interrupted, or the mount has gone.
            Ok(_) | Err(Errno::NOENT | Errno::NODEV) => {}
            // The kernel refused the reply and still waits for one.
            Err(_) => self.refuse(unique, Errno::IO),
        }
    }

    fn refuse(&self, unique: u64, errno: Errno) {
        let bytes = message(unique, -errno.raw_os_error(), &[]);
        let _ = rustix::io::write(&self.device, &bytes);
    }

    /// Fails all requests in flight.
    fn refuse_all(&mut self) {
        let lost: Vec<u64> = self.uniques.iter_mut().filter_map(Option::take).collect();
        for unique in lost {
            self.refuse(unique, Errno::NOTCONN);
        }
    }

    fn sleep(&mut self, deadline: Option<Instant>) -> Result<(), RelayError> {
        let timeout_ms = deadline.map_or(-1, |deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            left.as_millis() as i32 + 1
        });
        // At the end the eventfd stays readable, so only replies are waited for.
        let epoll = if deadline.is_some() {
            return self.sleep_for_replies(timeout_ms);
        } else if self.held.is_some() {
            &self.full
        } else {
            &self.open
        };
        let mut events = [EpollEvent::default(); 4];
        let count = match epoll.wait(timeout_ms, &mut events) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(system("wait")(error)),
        };
        self.server_gone |= events[..count].iter().any(|event| event.data() == GONE);
        Ok(())
    }

    fn sleep_for_replies(&mut self, timeout_ms: i32) -> Result<(), RelayError> {
        let deadline = Instant::now() + Duration::from_millis(timeout_ms as u64);
        self.queue.wait(Some(deadline))?;
        Ok(())
    }
}

/// Whether it is a complete reply to this request and not, for instance, a notification.
fn is_whole(reply: &[u8], unique: u64) -> bool {
    OutHeader::read_from_prefix(reply)
        .is_ok_and(|(header, _)| header.unique == unique && header.len as usize == reply.len())
}
