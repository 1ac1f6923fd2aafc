//! What can be found out about files that rules ask about.

use crate::host::{BASIC, Host};
use crate::inode::Inode;
use crate::policy::{Attributes, Evidence, FileType, HEAD_BYTES};
use rustix::fs::{AtFlags, Statx};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

fn attributes(stat: &Statx) -> Attributes {
    Attributes {
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        mode: u32::from(stat.stx_mode),
        size: stat.stx_size,
    }
}

/// An inode, asked when a rule asks.
pub(crate) struct InodeSource<'a> {
    host: &'a Host,
    inode: &'a Arc<Inode>,
}

impl<'a> InodeSource<'a> {
    pub(crate) fn new(host: &'a Host, inode: &'a Arc<Inode>) -> InodeSource<'a> {
        InodeSource { host, inode }
    }
}

impl Evidence for InodeSource<'_> {
    fn attributes(&self) -> Option<Attributes> {
        let descriptor = self.host.descriptor(self.inode).ok()?;
        let flags = AtFlags::EMPTY_PATH;
        let stat = rustix::fs::statx(descriptor.as_fd(), c"", flags, BASIC).ok()?;
        Some(attributes(&stat))
    }

    fn head(&self, buffer: &mut [u8; HEAD_BYTES]) -> Option<usize> {
        let file = self.host.open_inode(self.inode, libc::O_RDONLY).ok()?;
        read_head(&file, buffer)
    }
}

fn read_head(file: &OwnedFd, buffer: &mut [u8; HEAD_BYTES]) -> Option<usize> {
    let mut filled = 0;
    while filled < HEAD_BYTES {
        match rustix::io::pread(file, &mut buffer[filled..], filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    Some(filled)
}

/// What lies under a name, asked when a rule asks.
pub(crate) struct NameSource<'a> {
    pub(crate) host: &'a Host,
    pub(crate) parent: BorrowedFd<'a>,
    pub(crate) name: &'a CStr,
    /// What was found there.
    pub(crate) stat: &'a Statx,
}

impl NameSource<'_> {
    /// The file that was found, opened, if it is still there.
    fn open(&self) -> Option<OwnedFd> {
        let (fd, stat) = self.host.open_component(self.parent, self.name).ok()?;
        let number = |stat: &Statx| (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
        let is_it = number(&stat) == number(self.stat) && stat.stx_mode == self.stat.stx_mode;
        is_it.then(|| self.host.reopen(fd, libc::O_RDONLY).ok())?
    }
}

impl Evidence for NameSource<'_> {
    fn attributes(&self) -> Option<Attributes> {
        Some(attributes(self.stat))
    }

    fn head(&self, buffer: &mut [u8; HEAD_BYTES]) -> Option<usize> {
        read_head(&self.open()?, buffer)
    }
}

/// What was found under a name; it is not opened.
pub(crate) struct StatSource<'a>(pub(crate) &'a Statx);

impl Evidence for StatSource<'_> {
    fn attributes(&self) -> Option<Attributes> {
        Some(attributes(self.0))
    }

    fn head(&self, _: &mut [u8; HEAD_BYTES]) -> Option<usize> {
        None
    }
}

/// What is about to be made.
pub(crate) struct NewFile {
    pub(crate) file_type: FileType,
    /// Permission bits.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Evidence for NewFile {
    fn attributes(&self) -> Option<Attributes> {
        Some(Attributes {
            uid: self.uid,
            gid: self.gid,
            mode: self.mode,
            size: 0,
        })
    }

    fn head(&self, _: &mut [u8; HEAD_BYTES]) -> Option<usize> {
        Some(0)
    }
}
