//! Whether the run is to end: by the parent pipe, which is this process's standard input (see
//! [`isolation`](crate::isolation)). The first process writes to it on Ctrl-C, and it closes when that is gone.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

pub(crate) struct Stop {
    parent_pipe: io::Stdin,
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

    /// Waits until `descriptor` can be read, the run is to end, or the time is over: which of the first two.
    pub(crate) fn wait(&self, descriptor: BorrowedFd<'_>, until: Instant) -> io::Result<[bool; 2]> {
        let readable = PollFd::from_borrowed_fd(descriptor, PollFlags::IN);
        let stopped = PollFd::new(&self.parent_pipe, PollFlags::IN);
        wait_for([readable, stopped], Some(until))
    }
}

/// Waits for one of two descriptors, or until then: which of them have what is asked.
pub(crate) fn wait_for(
    mut polled: [PollFd<'_>; 2],
    until: Option<Instant>,
) -> io::Result<[bool; 2]> {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        // In pieces, which are well within its range.
        let piece = left.map(|left| left.min(Duration::from_secs(60)));
        let piece = piece.and_then(|piece| Timespec::try_from(piece).ok());
        match poll(&mut polled, piece.as_ref()) {
            Ok(0) if left.is_none_or(|left| !left.is_zero()) => {}
            Ok(_) => return Ok(polled.map(|one| !one.revents().is_empty())),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
