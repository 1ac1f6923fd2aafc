//! Reads a directory in whole buffers.
//!
//! Unlike with `rustix::fs::RawDir`, buffer and descriptor are the caller's between calls: a server reads
//! as much as one request asks for, from the offset that it asks for.
//!
//! # Safety
//! The kernel fills a slice by pointer and length. Its entries are then parsed as bytes, checked,
//! without a single pointer cast.

#![allow(unsafe_code)]

use crate::raw::check;
use rustix::io::Result;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd};

/// Fills `buffer` with entries from the descriptor's offset on and returns the bytes filled, zero at the
/// end; read them with [`DirEntries`]. One entry takes at most 280 bytes.
///
/// # Errors
/// EINVAL when not even one entry fits, ENOTDIR, ENOENT for a directory that was removed.
pub fn getdents64(directory: impl AsFd, buffer: &mut [u8]) -> Result<usize> {
    let directory = directory.as_fd().as_raw_fd();
    // The kernel counts in unsigned int.
    let room = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
    // SAFETY: at most `room` bytes are written, and `buffer` has no fewer.
    let answer =
        unsafe { libc::syscall(libc::SYS_getdents64, directory, buffer.as_mut_ptr(), room) };
    check(answer)
}

/// One entry of a directory, `struct linux_dirent64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The inode number that the file system lists (for a mount point: of the directory beneath).
    pub ino: u64,
    /// The offset behind this entry; opaque.
    pub off: i64,
    /// `DT_*`; zero where the file system does not say.
    pub kind: u8,
    /// The name, `.` and `..` among them.
    pub name: &'a CStr,
}

/// The entries in the bytes that [`getdents64`] filled. Ends at the first malformed one, which a kernel
/// does not write.
#[derive(Clone, Debug)]
pub struct DirEntries<'a> {
    rest: &'a [u8],
}

impl<'a> DirEntries<'a> {
    /// Over `filled`, the filled part only.
    #[must_use]
    pub const fn new(filled: &'a [u8]) -> Self {
        Self { rest: filled }
    }
}

/// Bytes before the name: ino 8, off 8, reclen 2, type 1.
const NAME_OFFSET: usize = 19;

impl<'a> Iterator for DirEntries<'a> {
    type Item = DirEntry<'a>;

    fn next(&mut self) -> Option<DirEntry<'a>> {
        let (ino, tail) = self.rest.split_first_chunk::<8>()?;
        let (off, tail) = tail.split_first_chunk::<8>()?;
        let (length, tail) = tail.split_first_chunk::<2>()?;
        let kind = *tail.first()?;
        let length = usize::from(u16::from_ne_bytes(*length));
        let name = self.rest.get(NAME_OFFSET..length)?;
        let name = CStr::from_bytes_until_nul(name).ok()?;
        self.rest = &self.rest[length..];
        Some(DirEntry {
            ino: u64::from_ne_bytes(*ino),
            off: i64::from_ne_bytes(*off),
            kind,
            name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_ground::open;
    use rustix::fs::OFlags;

    #[test]
    fn any_bytes_end_the_listing() {
        let directory = open("/", OFlags::DIRECTORY);
        let mut buffer = [0; 4096];
        let filled = getdents64(directory, &mut buffer).unwrap();
        let all: Vec<_> = DirEntries::new(&buffer[..filled]).collect();
        assert!(all.len() > 3);
        for length in 0..filled {
            let some: Vec<_> = DirEntries::new(&buffer[..length]).collect();
            assert!(some.len() < all.len());
            assert_eq!(some, all[..some.len()]);
        }
        // Lengths of zero, shorter than a header, and names without an end.
        for byte in [0, 1, 20, 0xff] {
            assert_eq!(DirEntries::new(&[byte; 300]).count(), 0);
        }
        let mut bytes = [0; 24 * 3];
        bytes[16] = 24;
        bytes[40] = 24;
        assert_eq!(DirEntries::new(&bytes).count(), 2);
    }
}
