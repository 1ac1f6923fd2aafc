//! Whether the run is to end: by the parent pipe, which is this process's standard input (see
//! [`isolation`](crate::isolation)). The first process writes to it on Ctrl-C, and it closes when that is gone.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

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
        let parent_pipe = io::stdin();
        Stop { parent_pipe }
    }

    /// Whether it was asked for.
    pub(crate) fn is_wanted(&self) -> bool {
        self.has(PollFlags::IN)
    }

    /// Whether the front has gone: then no report is made.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.has(PollFlags::empty())
    }

    fn has(&self, flags: PollFlags) -> bool {
        let mut polled = [PollFd::new(&self.parent_pipe, flags)];
        poll(&mut polled, Some(&Timespec::default())).is_ok() && !polled[0].revents().is_empty()
    }

    /// Waits until `descriptor` can be read, the run is to end, or the time is over.
    pub(crate) fn wait(&self, descriptor: BorrowedFd<'_>, until: Instant) -> io::Result<First> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut polled = [
                PollFd::from_borrowed_fd(descriptor, PollFlags::IN),
                PollFd::from_borrowed_fd(self.parent_pipe.as_fd(), PollFlags::IN),
            ];
            // In pieces, which are well within its range.
            let piece = Timespec::try_from(left.min(Duration::from_secs(60)));
            match poll(&mut polled, Some(&piece.unwrap_or_default())) {
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
