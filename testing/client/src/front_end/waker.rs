//! Waiting for the device's signal or its end.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

const SIGNAL: u64 = 0;
const SOCKET: u64 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The device may have signalled.
    Signal,
    /// The deadline has passed.
    Late,
    /// The server closed the socket.
    Gone,
}

pub(crate) struct Waker {
    epoll: Epoll,
    /// The device writes to it; it is never read.
    call: EventFd,
}

impl Waker {
    /// A new eventfd. The end of `socket` ends all waits.
    pub(crate) fn new(socket: &UnixStream) -> io::Result<Waker> {
        let call = EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)?;
        let epoll = Epoll::new()?;
        // Edge-triggered: every write wakes, and none has to be read.
        let signal = EpollEvent::new(EventSet::IN | EventSet::EDGE_TRIGGERED, SIGNAL);
        epoll.ctl(ControlOperation::Add, call.as_raw_fd(), signal)?;
        let end = EpollEvent::new(EventSet::READ_HANG_UP, SOCKET);
        epoll.ctl(ControlOperation::Add, socket.as_raw_fd(), end)?;
        Ok(Waker { epoll, call })
    }

    pub(crate) fn call(&self) -> &EventFd {
        &self.call
    }

    /// Waits for the end of another socket from now on, also in threads that sleep.
    pub(crate) fn follow(&self, before: &UnixStream, socket: &UnixStream) -> io::Result<()> {
        let end = || EpollEvent::new(EventSet::READ_HANG_UP, SOCKET);
        self.epoll
            .ctl(ControlOperation::Delete, before.as_raw_fd(), end())?;
        self.epoll
            .ctl(ControlOperation::Add, socket.as_raw_fd(), end())
    }

    /// Sleeps until an event or `deadline`, to the millisecond.
    pub(crate) fn sleep(&self, deadline: Option<Instant>) -> io::Result<Woken> {
        let timeout_ms = deadline.map_or(-1, |deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = left + Duration::from_nanos(999_999);
            i32::try_from(left.as_millis()).unwrap_or(i32::MAX)
        });
        let mut events = [EpollEvent::default(); 2];
        let count = match self.epoll.wait(timeout_ms, &mut events) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Woken::Signal),
            Err(error) => return Err(error),
        };
        let by = |source| events[..count].iter().any(|event| event.data() == source);
        Ok(if by(SIGNAL) {
            Woken::Signal
        } else if by(SOCKET) {
            Woken::Gone
        } else {
            Woken::Late
        })
    }
}
