//! An open directory, from OPENDIR to RELEASEDIR. It may give its descriptor and buffer back at any time.

use crate::ledger::{Listing, OpenerIds};
use crate::quota::QuotaCharge;
use crate::tree::Inode;
use parking_lot::Mutex;
use rustix::fs::SeekFrom;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thrufs::Result;
use thrufs_abi::NodeId;
use thrufs_sys::dir::getdents64;

/// Most bytes of one getdents64(2).
const BUFFER_BYTES: usize = 32 * 1024;

pub(crate) struct OpenDirectory {
    pub(super) inode: Arc<Inode>,
    /// This process could not find it again.
    pub(super) is_lost: bool,
    pub(super) stream: Mutex<Stream>,
    /// User and group that opened it, as one word of [`OpenerIds`]; under a policy.
    pub(super) opener: AtomicU64,
    pub(super) _charge: Option<QuotaCharge>,
}

/// Entries that were read from the directory and not yet returned.
#[derive(Default)]
pub(super) struct Stream {
    /// `None` while it is given back.
    pub(super) fd: Option<Arc<OwnedFd>>,
    /// It is among the [`Listings`](crate::files::listings::Listings).
    pub(super) is_entered: bool,
    pub(super) buffer: Vec<u8>,
    /// The unread part of the buffer.
    pub(super) start: usize,
    pub(super) end: usize,
    /// The lower file system's position of the unread part.
    pub(super) position: u64,
    /// Nothing was read by the descriptor yet.
    pub(super) is_fresh: bool,
    /// The end was met behind entries that were returned: the next request for more gets none.
    pub(super) is_at_end: bool,
    /// The client's next position is one of another directory, of which this is a copy.
    pub(super) is_elsewhere: bool,
    /// The kernel has asked for some entries without attributes.
    pub(super) is_without_attributes: bool,
}

impl OpenDirectory {
    pub(crate) fn node(&self) -> NodeId {
        self.inode.node()
    }

    pub(crate) fn opener(&self) -> OpenerIds {
        OpenerIds::from_word(self.opener.load(Ordering::Relaxed))
    }

    pub(crate) fn set_opener(&self, opener: OpenerIds) {
        self.opener.store(opener.word(), Ordering::Relaxed);
    }

    pub(super) fn new(
        inode: Arc<Inode>,
        fd: OwnedFd,
        charge: Option<QuotaCharge>,
    ) -> OpenDirectory {
        inode.mount().idle_expiry.file_opened();
        OpenDirectory {
            inode,
            is_lost: false,
            stream: Mutex::new(Stream {
                fd: Some(Arc::new(fd)),
                is_entered: true,
                is_fresh: true,
                ..Stream::default()
            }),
            opener: AtomicU64::new(0),
            _charge: charge,
        }
    }

    /// Gives back the buffer, and the descriptor if positions stay valid for another one; nothing while it
    /// is in use.
    pub(crate) fn give_back(&self) -> Option<(Vec<u8>, Option<Arc<OwnedFd>>)> {
        let mut stream = self.stream.try_lock()?;
        stream.is_entered = false;
        (stream.start, stream.end) = (0, 0);
        let buffer = std::mem::take(&mut stream.buffer);
        let mount = self.inode.mount();
        let fd = mount.keeps_positions().then(|| stream.fd.take());
        Some((buffer, fd.flatten()))
    }

    /// A directory that was open in another process, there with the listing `was`. Positions are not valid
    /// in a copy of it: a listing that had begun starts over, so that no entry is left out.
    pub(crate) fn again(
        inode: Arc<Inode>,
        fd: Option<OwnedFd>,
        was: Option<Listing>,
        charge: Option<QuotaCharge>,
    ) -> OpenDirectory {
        let is_elsewhere =
            was.is_some_and(|listing| fd.as_ref().is_none_or(|fd| Listing::of(fd) != listing));
        OpenDirectory {
            inode,
            is_lost: fd.is_none(),
            stream: Mutex::new(Stream {
                fd: fd.map(Arc::new),
                is_entered: true,
                is_elsewhere,
                ..Stream::default()
            }),
            opener: AtomicU64::new(0),
            _charge: charge,
        }
    }
}

impl Listing {
    pub(super) fn of(fd: impl AsFd) -> Listing {
        let fd = fd.as_fd();
        Listing {
            file_system: rustix::fs::fstatvfs(fd).map_or(0, |it| it.f_fsid),
            ino: rustix::fs::fstat(fd).map_or(0, |it| it.st_ino),
        }
    }
}

impl Drop for OpenDirectory {
    fn drop(&mut self) {
        self.inode.mount().idle_expiry.file_closed();
    }
}

impl Stream {
    pub(super) fn seek(&mut self, fd: BorrowedFd<'_>, offset: u64) -> Result<()> {
        let offset = if std::mem::take(&mut self.is_elsewhere) {
            0
        } else {
            offset
        };
        // What was read ahead belongs to the walk that goes on. At 0 another one begins (rewinddir(3)).
        let goes_on = offset != 0 && (self.end > 0 || self.is_at_end);
        if self.position == offset && (goes_on || self.is_fresh) {
            return Ok(());
        }
        self.is_at_end = false;
        rustix::fs::seek(fd, SeekFrom::Start(offset))?;
        self.start = 0;
        self.end = 0;
        self.position = offset;
        Ok(())
    }

    /// Reads more entries if the buffer is empty; false at the end of the directory.
    pub(super) fn fill(&mut self, fd: BorrowedFd<'_>) -> Result<bool> {
        if self.start < self.end {
            return Ok(true);
        }
        if std::mem::take(&mut self.is_at_end) {
            return Ok(false);
        }
        self.is_fresh = false;
        if self.buffer.is_empty() {
            self.buffer = vec![0; BUFFER_BYTES];
        }
        // Also if that fails, as in a directory that was removed: what was returned is not returned again.
        (self.start, self.end) = (0, 0);
        self.end = getdents64(fd, &mut self.buffer)?;
        if self.end == 0 {
            // The directory may stay open for long.
            self.buffer = Vec::new();
        }
        Ok(self.end > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_returned_again_after_an_error() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("removed");
        std::fs::create_dir(&directory).unwrap();
        let fd: OwnedFd = std::fs::File::open(&directory).unwrap().into();
        let mut stream = Stream::default();
        stream.seek(fd.as_fd(), 0).unwrap();
        assert_eq!(stream.fill(fd.as_fd()), Ok(true));
        stream.start = stream.end;
        std::fs::remove_dir(&directory).unwrap();
        for _ in 0..2 {
            assert_eq!(stream.fill(fd.as_fd()), Err(thrufs::Errno::ENOENT));
        }
    }

    #[test]
    fn the_end_is_asked_for_once_and_anew_later() {
        let place = tempfile::tempdir().unwrap();
        let fd: OwnedFd = std::fs::File::open(place.path()).unwrap().into();
        let fill = |stream: &mut Stream, offset| {
            stream.seek(fd.as_fd(), offset).unwrap();
            stream.fill(fd.as_fd()).unwrap()
        };
        let mut stream = Stream::default();
        assert!(fill(&mut stream, 0));
        // All that there is was returned, with what the end said.
        (stream.start, stream.position, stream.is_at_end) = (stream.end, 1 << 20, true);
        std::fs::write(place.path().join("new"), "").unwrap();
        assert!(!fill(&mut stream, 1 << 20));
        assert!(!stream.is_at_end && fill(&mut stream, 0));
    }

    #[test]
    fn listing_buffer_is_freed_at_the_end() {
        let place = tempfile::tempdir().unwrap();
        let fd: OwnedFd = std::fs::File::open(place.path()).unwrap().into();
        let mut stream = Stream::default();
        for _ in 0..2 {
            stream.seek(fd.as_fd(), 0).unwrap();
            assert_eq!(stream.fill(fd.as_fd()), Ok(true));
            stream.start = stream.end;
            assert_eq!(stream.fill(fd.as_fd()), Ok(false));
            assert_eq!(stream.buffer.capacity(), 0);
        }
    }
}
