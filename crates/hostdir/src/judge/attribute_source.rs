//! Attributes and first bytes of files, read only when a rule asks for them.

use crate::tree::{End, Inode, Tree};
use rustix::fs::Statx;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use thrufs_policy::{AttributeSource, Attributes, FileType, HEAD_BYTES, Subject};

fn attributes(stat: &Statx) -> Attributes {
    Attributes {
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        mode: u32::from(stat.stx_mode),
        size: stat.stx_size,
    }
}

pub(crate) struct InodeSource<'a> {
    tree: &'a Tree,
    inode: &'a Arc<Inode>,
}

impl<'a> InodeSource<'a> {
    pub(crate) fn new(tree: &'a Tree, inode: &'a Arc<Inode>) -> InodeSource<'a> {
        InodeSource { tree, inode }
    }

    /// The inode by one of its paths.
    pub(crate) fn at<'s>(&'s self, path: &'s [u8]) -> Subject<'s> {
        Subject {
            path,
            file_type: self.inode.file_type(),
            source: self,
        }
    }
}

impl AttributeSource for InodeSource<'_> {
    fn attributes(&self) -> Option<Attributes> {
        Some(attributes(&self.tree.stat(self.inode).ok()?))
    }

    fn head(&self, buffer: &mut [u8; HEAD_BYTES]) -> Option<usize> {
        let file = self.tree.open_inode(self.inode, libc::O_RDONLY).ok()?;
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

/// What stands under a name.
pub(crate) struct NameSource<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) end: End<'a>,
    pub(crate) stat: &'a Statx,
}

pub(super) fn is_same_inode(one: &Statx, other: &Statx) -> bool {
    let number = |stat: &Statx| (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
    number(one) == number(other)
}

impl NameSource<'_> {
    /// Opens the file if it is still the one that `stat` describes.
    fn open(&self) -> Option<OwnedFd> {
        let end = self.end;
        let (fd, stat) = self.tree.open_component(end.fd, end.name).ok()?;
        let is_it = is_same_inode(&stat, self.stat) && stat.stx_mode == self.stat.stx_mode;
        is_it.then(|| self.tree.reopen(fd, libc::O_RDONLY).ok())?
    }
}

impl AttributeSource for NameSource<'_> {
    fn attributes(&self) -> Option<Attributes> {
        Some(attributes(self.stat))
    }

    fn head(&self, buffer: &mut [u8; HEAD_BYTES]) -> Option<usize> {
        read_head(&self.open()?, buffer)
    }
}

/// A file that is open for reading, if it could be opened; without it, only the attributes are known.
pub(crate) struct OpenFileSource<'a> {
    pub(crate) stat: &'a Statx,
    pub(crate) file: Option<&'a OwnedFd>,
}

impl AttributeSource for OpenFileSource<'_> {
    fn attributes(&self) -> Option<Attributes> {
        Some(attributes(self.stat))
    }

    fn head(&self, buffer: &mut [u8; HEAD_BYTES]) -> Option<usize> {
        read_head(self.file?, buffer)
    }
}

pub(crate) struct NewFile {
    pub(crate) file_type: FileType,
    pub(crate) attributes: Attributes,
}

impl AttributeSource for NewFile {
    fn attributes(&self) -> Option<Attributes> {
        Some(self.attributes)
    }

    fn head(&self, _: &mut [u8; HEAD_BYTES]) -> Option<usize> {
        Some(0)
    }
}
