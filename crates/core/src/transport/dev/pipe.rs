//! Large replies to READ by `splice(2)`.
//!
//! `splice(2)` puts references to the pages of a file into a pipe, and `/dev/fuse` copies from them:
//! once, where reading and writing copies twice. It takes three system calls instead of two, so it is
//! for large replies (`cargo xtask bench --splice` measures the gain). Requests are not spliced: a
//! reader learns only afterwards which of them carry data, so all would pass through the pipe.
//!
//! A splice cannot be tried without waiting, as a read can, so a reader first asks whether the pages
//! are in memory. If a splice fails, the kernel has no reply yet, and the bytes are read and written.

use rustix::io::{Errno, Result};
use rustix::pipe::{
    PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Smaller replies are copied.
pub(super) const SPLICE_BYTES_MIN: usize = 128 << 10;
/// The largest pipe of an unprivileged user (`fs.pipe-max-size`).
const PIPE_BYTES: usize = 1 << 20;
const PAGE: usize = 4096;
/// So many failures in a row end all splicing.
const FAILURES_MAX: u32 = 8;

/// A pipe, empty between two replies; created at the first.
#[derive(Debug, Default)]
pub(super) struct ReplyPipe {
    ends: Option<Ends>,
    failures: u32,
}

#[derive(Debug)]
struct Ends {
    reader: OwnedFd,
    writer: OwnedFd,
    bytes: usize,
}

impl ReplyPipe {
    /// Sends `header` and `length` bytes of `file` at `offset` to `device`. False when nothing was sent.
    pub(super) fn send(
        &mut self,
        device: BorrowedFd<'_>,
        header: &[u8],
        file: impl AsFd,
        offset: u64,
        length: usize,
    ) -> bool {
        if self.failures >= FAILURES_MAX {
            return false;
        }
        let Some(ends) = self.ends() else {
            return false;
        };
        // A page for the header, and one for bytes that do not begin on a page.
        if length + 2 * PAGE > ends.bytes {
            return false;
        }
        let sent = ends
            .fill(header, file, offset, length)
            .and_then(|()| ends.empty_into(device, header.len() + length));
        match sent {
            Ok(()) => self.failures = 0,
            Err(error) => {
                tracing::debug!(%error, "cannot splice a reply");
                self.failures += 1;
                // Closed with the bytes that are left in it.
                self.ends = None;
            }
        }
        sent.is_ok()
    }

    pub(super) fn release(&mut self) {
        self.ends = None;
    }

    fn ends(&mut self) -> Option<&Ends> {
        if self.ends.is_none() {
            self.ends = Ends::new().ok();
            if self.ends.is_none() {
                self.failures += 1;
            }
        }
        self.ends.as_ref()
    }
}

impl Ends {
    fn new() -> Result<Ends> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // Refused for an unprivileged user with many pipes.
        let _ = fcntl_setpipe_size(&writer, PIPE_BYTES);
        let bytes = fcntl_getpipe_size(&writer)?;
        Ok(Ends {
            reader,
            writer,
            bytes,
        })
    }

    fn fill(&self, header: &[u8], file: impl AsFd, mut offset: u64, length: usize) -> Result<()> {
        if rustix::io::write(&self.writer, header)? != header.len() {
            return Err(Errno::AGAIN);
        }
        let mut left = length;
        while left > 0 {
            let flags = SpliceFlags::NONBLOCK;
            match splice(&file, Some(&mut offset), &self.writer, None, left, flags)? {
                // The file ends before: the header announces too much.
                0 => return Err(Errno::NODATA),
                moved => left -= moved,
            }
        }
        Ok(())
    }

    fn empty_into(&self, device: BorrowedFd<'_>, bytes: usize) -> Result<()> {
        // The device takes a reply in one piece or not at all.
        match splice(
            &self.reader,
            None,
            device,
            None,
            bytes,
            SpliceFlags::empty(),
        )? {
            sent if sent == bytes => Ok(()),
            _ => Err(Errno::IO),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags};
    use std::io::Read;
    use std::os::unix::fs::FileExt;

    fn sink() -> (std::fs::File, std::fs::File) {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        fcntl_setpipe_size(&writer, PIPE_BYTES).unwrap();
        (reader.into(), writer.into())
    }

    fn file(length: usize) -> (std::fs::File, Vec<u8>) {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(std::env::temp_dir(), flags, Mode::RUSR | Mode::WUSR).unwrap();
        let file = std::fs::File::from(file);
        let bytes: Vec<u8> = (0..length).map(|at| (at / 7 % 251) as u8).collect();
        file.write_all_at(&bytes, 0).unwrap();
        (file, bytes)
    }

    #[test]
    fn header_and_bytes_arrive_in_order() {
        let (file, bytes) = file(300_000);
        let (mut reader, writer) = sink();
        let mut pipe = ReplyPipe::default();
        for (offset, length) in [(0, 128 << 10), (4096, 200_000), (12_345, 131_073)] {
            assert!(pipe.send(writer.as_fd(), b"sixteen bytes...", &file, offset, length));
            let mut got = vec![0; 16 + length];
            reader.read_exact(&mut got).unwrap();
            assert_eq!(&got[..16], b"sixteen bytes...");
            let at = offset as usize;
            assert!(got[16..] == bytes[at..at + length], "{offset} {length}");
        }
    }

    #[test]
    fn a_reply_that_cannot_be_spliced_whole_is_not_sent() {
        let (file, bytes) = file(200_000);
        let (mut reader, writer) = sink();
        let mut pipe = ReplyPipe::default();
        let mut send = |offset, length| pipe.send(writer.as_fd(), b"header", &file, offset, length);
        assert!(!send(100_000, 128 << 10), "the file ends");
        assert!(!send(0, PIPE_BYTES), "the pipe is too small");
        assert!(send(0, 150_000), "and the next one is whole");
        let mut got = vec![0; 150_006];
        reader.read_exact(&mut got).unwrap();
        assert_eq!(&got[..6], b"header");
        assert!(got[6..] == bytes[..150_000], "nothing of the one before");
        for _ in 0..FAILURES_MAX {
            assert!(!send(190_000, 128 << 10));
        }
        assert!(!send(0, 150_000), "it has given up");
    }
}
