//! Whether the run is to end: by the parent pipe, which the first process writes to on Ctrl-C and which
//! closes when that process is gone.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// The parent pipe: this process's standard input (see [`isolation`](crate::isolation)).
pub(crate) struct Stop {
    parent_pipe: io::Stdin,
}

/// What came first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    Readable,
    Stopped,
    TimeIsOver,
}

impl Stop {
    pub(crate) fn new() -> Stop {
        Stop {
            parent_pipe: io::stdin(),
        }
    }

    /// Whether it was asked for.
    pub(crate) fn is_wanted(&self) -> bool {
        let mut polled = [PollFd::new(&self.parent_pipe, PollFlags::IN)];
        let at_once = Timespec::default();
        poll(&mut polled, Some(&at_once)).is_ok() && !polled[0].revents().is_empty()
    }

    /// Whether the front has gone: then no report is made.
    pub(crate) fn is_abandoned(&self) -> bool {
        let mut polled = [PollFd::new(&self.parent_pipe, PollFlags::empty())];
        let at_once = Timespec::default();
        poll(&mut polled, Some(&at_once)).is_ok() && !polled[0].revents().is_empty()
    }

    /// Waits until `descriptor` can be read, the run is to end, or the time is over.
    ///
    /// # Errors
    ///
    /// As of poll(2).
    pub(crate) fn wait(&self, descriptor: BorrowedFd<'_>, until: Instant) -> io::Result<First> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut polled = [
                PollFd::from_borrowed_fd(descriptor, PollFlags::IN),
                PollFd::from_borrowed_fd(self.parent_pipe.as_fd(), PollFlags::IN),
            ];
            match poll(&mut polled, Some(&time(left))) {
                Ok(0) if left.is_zero() => return Ok(First::TimeIsOver),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if !polled[1].revents().is_empty() {
                return Ok(First::Stopped);
            }
            if !polled[0].revents().is_empty() {
                return Ok(First::Readable);
            }
        }
    }
}

fn time(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
