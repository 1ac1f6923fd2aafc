//! poll(2) on a few descriptors, with a deadline: which of them can be read.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// Waits until a descriptor is readable or hung up; returns which. All `false` after `deadline`; without
/// one, blocks for ever.
pub(crate) fn readable<const COUNT: usize>(
    descriptors: [Option<BorrowedFd<'_>>; COUNT],
    deadline: Option<Instant>,
) -> [bool; COUNT] {
    let mut results = readable_of(&descriptors, deadline).into_iter();
    descriptors.map(|_| results.next().unwrap_or(false))
}

/// As [`readable`], for a slice.
pub(crate) fn readable_of(
    descriptors: &[Option<BorrowedFd<'_>>],
    deadline: Option<Instant>,
) -> Vec<bool> {
    let mut polled: Vec<PollFd<'_>> = descriptors
        .iter()
        .flatten()
        .map(|descriptor| PollFd::from_borrowed_fd(*descriptor, PollFlags::IN))
        .collect();
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // A time that it does not hold is as good as none.
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        // EINTR: wait for the rest of the time.
        if poll(&mut polled, timeout.as_ref()).is_ok() {
            break;
        }
    }
    let mut results = polled
        .iter()
        .map(|descriptor| !descriptor.revents().is_empty());
    descriptors
        .iter()
        .map(|descriptor| descriptor.is_some() && results.next().unwrap_or(false))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::time::Duration;

    #[test]
    fn returns_readable_descriptors_and_honours_the_deadline() {
        let (quiet, _writer) = rustix::pipe::pipe().unwrap();
        let (ended, writer) = rustix::pipe::pipe().unwrap();
        drop(writer);
        let soon = Instant::now() + Duration::from_millis(20);
        let both = [Some(quiet.as_fd()), None, Some(ended.as_fd())];
        assert_eq!(readable(both, None), [false, false, true]);
        assert_eq!(readable([Some(quiet.as_fd())], Some(soon)), [false]);
        assert!(Instant::now() >= soon);
    }
}
