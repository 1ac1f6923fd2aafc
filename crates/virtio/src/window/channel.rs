//! The back-end channel, on which this side asks the front end to map and unmap (`VHOST_USER_BACKEND_SHMEM_MAP`,
//! `VHOST_USER_BACKEND_SHMEM_UNMAP`; QEMU, `docs/interop/vhost-user.rst`). Its messages have no numbers: one
//! request at a time, and the reply to one that was given up comes before the next.

use crate::wire::{NEED_REPLY, Reader, send};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

const MAP: u32 = 9;
const UNMAP: u32 = 10;
/// `VHOST_USER_FLAG_MAP_RW`.
const FLAG_WRITABLE: u64 = 1;

/// A part of the window, and of the file that is mapped there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// In bytes from the start of the window.
    pub(super) at: u64,
    /// In bytes from the start of the file.
    pub(super) offset: u64,
    pub(super) length: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ChannelError {
    #[error("the front end refused")]
    Refused,
    #[error("the front end does not answer")]
    Unanswered,
    #[error("the front end has closed the back-end channel")]
    Closed,
}

#[derive(Debug)]
pub(super) struct Channel {
    stream: UnixStream,
    /// The code of the request that has no reply yet.
    asked: Option<u32>,
    replies: Reader,
}

/// Until when to wait for a reply.
pub(super) struct WaitLimit<'a> {
    pub(super) deadline: Instant,
    /// Readable when `is_over` may have changed.
    pub(super) eventfd: &'a OwnedFd,
    pub(super) is_over: &'a dyn Fn() -> bool,
}

impl Channel {
    pub(super) fn new(stream: UnixStream) -> Channel {
        Channel {
            stream,
            asked: None,
            replies: Reader::default(),
        }
    }

    /// Has the part mapped, from `file`.
    pub(super) fn map(
        &mut self,
        part: Part,
        file: BorrowedFd<'_>,
        writable: bool,
        limit: &WaitLimit<'_>,
    ) -> Result<(), ChannelError> {
        let flags = if writable { FLAG_WRITABLE } else { 0 };
        self.exchange(MAP, part, flags, &[file], limit)
    }

    /// Has exactly this part unmapped.
    pub(super) fn unmap(&mut self, part: Part, limit: &WaitLimit<'_>) -> Result<(), ChannelError> {
        let part = Part { offset: 0, ..part };
        self.exchange(UNMAP, part, 0, &[], limit)
    }

    /// Returns once the front end has done what it does after its last reply. QEMU answers before a mapping is
    /// in force, and reads the next message after: this one names nothing, and is refused.
    pub(super) fn wait_for_front_end(&mut self, limit: &WaitLimit<'_>) -> Result<(), ChannelError> {
        let nothing = Part {
            at: 0,
            offset: 0,
            length: 0,
        };
        match self.unmap(nothing, limit) {
            Ok(()) | Err(ChannelError::Refused) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn exchange(
        &mut self,
        code: u32,
        part: Part,
        flags: u64,
        files: &[BorrowedFd<'_>],
        limit: &WaitLimit<'_>,
    ) -> Result<(), ChannelError> {
        if self.asked.is_some() {
            // Of a request that was given up.
            let _ = self.wait_for_reply(limit)?;
        }
        // `VhostUserMMap`: id and padding, offset in the file, offset in the window, length, flags.
        let body = [0, part.offset, part.at, part.length, flags];
        let body = body.map(u64::to_ne_bytes).concat();
        send(self.stream.as_fd(), code, NEED_REPLY, &body, files)
            .map_err(|_| ChannelError::Closed)?;
        self.asked = Some(code);
        match self.wait_for_reply(limit)? {
            0 => Ok(()),
            _ => Err(ChannelError::Refused),
        }
    }

    /// The value of the reply to the last request.
    fn wait_for_reply(&mut self, limit: &WaitLimit<'_>) -> Result<u64, ChannelError> {
        loop {
            let reply = self.replies.read(&self.stream);
            if let Some(reply) = reply.map_err(|_| ChannelError::Closed)? {
                let asked = self.asked.take();
                let is_its = asked.is_some_and(|code| reply.is_reply_to(code));
                let value = reply.u64_at(0).filter(|_| is_its);
                return value.ok_or(ChannelError::Closed);
            }
            self.wait(limit)?;
        }
    }

    fn wait(&self, limit: &WaitLimit<'_>) -> Result<(), ChannelError> {
        let left = limit.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || (limit.is_over)() {
            return Err(ChannelError::Unanswered);
        }
        let mut polled = [
            PollFd::new(&self.stream, PollFlags::IN),
            PollFd::new(limit.eventfd, PollFlags::IN),
        ];
        let timeout = Timespec::try_from(left).map_err(|_| ChannelError::Unanswered)?;
        let _ = poll(&mut polled, Some(&timeout));
        if !polled[1].revents().is_empty() {
            let _ = rustix::io::read(limit.eventfd, &mut [0_u8; 8]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{REPLY, VERSION};
    use rustix::event::{EventfdFlags, eventfd};
    use std::io::{Read, Write};
    use std::time::Duration;

    const PART: Part = Part {
        at: 0x20_0000,
        offset: 0x40_0000,
        length: 0x20_0000,
    };

    fn reply(code: u32, value: u64) -> Vec<u8> {
        let header = [code, VERSION | REPLY, 8].map(u32::to_ne_bytes).concat();
        [&header[..], &value.to_ne_bytes()].concat()
    }

    fn within(time: Duration, run: impl FnOnce(&WaitLimit<'_>)) {
        let eventfd = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        run(&WaitLimit {
            deadline: Instant::now() + time,
            eventfd: &eventfd,
            is_over: &|| false,
        });
    }

    #[test]
    fn a_message_has_the_layout_of_the_specification_and_its_reply_decides() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut channel = Channel::new(ours);
        let file = tempfile::tempfile().unwrap();
        theirs.write_all(&reply(MAP, 0)).unwrap();
        theirs.write_all(&reply(UNMAP, 1)).unwrap();
        within(Duration::from_secs(60), |limit| {
            let mapped = channel.map(PART, file.as_fd(), true, limit);
            assert_eq!(mapped, Ok(()));
            let refused = channel.unmap(PART, limit);
            assert_eq!(refused, Err(ChannelError::Refused));
        });
        let mut bytes = [0; 104];
        theirs.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes[..12], [9, 0, 0, 0, 9, 0, 0, 0, 40, 0, 0, 0]);
        let words = |from: usize| -> Vec<u64> {
            let words = bytes[from..from + 40].chunks_exact(8);
            words
                .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
                .collect()
        };
        assert_eq!(words(12), [0, 0x40_0000, 0x20_0000, 0x20_0000, 1]);
        assert_eq!(bytes[52..56], [10, 0, 0, 0]);
        assert_eq!(words(64), [0, 0, 0x20_0000, 0x20_0000, 0]);
    }

    #[test]
    fn a_late_reply_is_not_taken_for_the_next() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut channel = Channel::new(ours);
        let file = tempfile::tempfile().unwrap();
        within(Duration::ZERO, |limit| {
            let mapped = channel.map(PART, file.as_fd(), true, limit);
            assert_eq!(mapped, Err(ChannelError::Unanswered));
            let next = channel.unmap(PART, limit);
            assert_eq!(next, Err(ChannelError::Unanswered));
        });
        theirs.write_all(&reply(MAP, 0)).unwrap();
        theirs.write_all(&reply(UNMAP, 1)).unwrap();
        within(Duration::from_secs(60), |limit| {
            assert_eq!(channel.unmap(PART, limit), Err(ChannelError::Refused));
        });
        let mut sent = [0; 104];
        theirs.read_exact(&mut sent).unwrap();
        theirs.set_nonblocking(true).unwrap();
        assert!(
            theirs.read(&mut sent).is_err(),
            "nothing is sent while a reply is late"
        );
    }

    #[test]
    fn a_wait_ends_with_its_session() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut channel = Channel::new(ours);
        let eventfd = eventfd(1, EventfdFlags::NONBLOCK).unwrap();
        let looks = std::cell::Cell::new(0);
        let limit = WaitLimit {
            deadline: Instant::now() + Duration::from_secs(3600),
            eventfd: &eventfd,
            is_over: &|| looks.replace(looks.get() + 1) > 0,
        };
        let unmapped = channel.unmap(PART, &limit);
        assert_eq!(unmapped, Err(ChannelError::Unanswered));
    }

    #[test]
    fn another_message_or_the_end_closes_the_channel() {
        let file = tempfile::tempfile().unwrap();
        for bytes in [Some(reply(UNMAP, 0)), Some(vec![0; 20]), None] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let mut channel = Channel::new(ours);
            match bytes {
                Some(bytes) => theirs.write_all(&bytes).unwrap(),
                None => drop(theirs),
            }
            within(Duration::from_secs(60), |limit| {
                let mapped = channel.map(PART, file.as_fd(), false, limit);
                assert_eq!(mapped, Err(ChannelError::Closed));
            });
        }
    }
}
