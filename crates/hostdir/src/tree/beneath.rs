//! Names beneath: what the kernel has looked up under a name, and whether a name or path leads to an inode.

use super::Tree;
use super::inode::{Inode, Place};
use super::mounts::opened_identity;
use crate::identity::{Identity, KnownName};
use crate::stat::{stat_open, stat_with_birth};
use rustix::fs::{Mode, OFlags, Statx};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use thrufs::{Errno, Result};
use thrufs_abi::Name;
use thrufs_sys::handle::{self, FileHandleBuf};
use thrufs_sys::proc_fd;

/// Less than the longest path of a system call (`PATH_MAX`), more than a name.
const PIECE_BYTES_MAX: usize = 4000;

/// The largest file that is freed later.
const FREED_BYTES_MAX: u64 = 64 << 10;

/// One end of a rename: a name, and its directory.
#[derive(Clone, Copy)]
pub(crate) struct End<'a> {
    pub(crate) parent: &'a Arc<Inode>,
    pub(crate) fd: BorrowedFd<'a>,
    pub(crate) name: &'a CStr,
}

impl<'a> End<'a> {
    pub(crate) fn new(parent: &'a Arc<Inode>, fd: BorrowedFd<'a>, name: &'a CStr) -> End<'a> {
        End { parent, fd, name }
    }

    pub(crate) fn known_name(self) -> KnownName {
        KnownName::new(self.parent.node(), self.name.to_bytes())
    }

    pub(crate) fn place(self) -> Box<Place> {
        Place::new(Arc::clone(self.parent), self.name.to_owned())
    }
}

/// Refuses `.` and `..`, which the kernel never sends here.
pub(crate) fn component<'a>(name: Name<'a>) -> Result<&'a CStr> {
    if name.is_dot() || name.is_dot_dot() {
        Err(Errno::EINVAL)
    } else {
        Ok(name.as_cstr())
    }
}

/// A valid name.
pub(crate) fn component_of(name: &[u8]) -> Result<CString> {
    let is_one = !(name.is_empty() || name.contains(&b'/') || name == b"." || name == b"..");
    if !is_one || name.len() > 255 {
        return Err(Errno::ENOENT);
    }
    CString::new(name).map_err(|_| Errno::ENOENT)
}

impl Tree {
    /// The inode behind a name, if it has a handle and the kernel has looked it up.
    pub(crate) fn known(&self, End { parent, fd, name }: End<'_>) -> Option<Arc<Inode>> {
        if !parent.mount().has_handles {
            return None;
        }
        let mut buffer = FileHandleBuf::default();
        let mount_id = handle::name_to_handle(fd, name, 0, &mut buffer).ok()?;
        if mount_id != parent.mount().id {
            return None;
        }
        self.nodes
            .find(&Identity::by_handle(parent.mount().index, &buffer))
    }

    /// For mounts without file handles: the inode behind a name that is about to be removed, with its
    /// descriptor cached, since nothing else will lead to it. `None` where that is not needed.
    pub(crate) fn hold_without_handles(&self, end: End<'_>) -> Option<Arc<Inode>> {
        if end.parent.mount().has_handles {
            return None;
        }
        self.hold(end)
    }

    /// A reference to a file whose name is about to be removed, if it is a small one, to be [freed later](super::freeing).
    pub(crate) fn reference_to_free(
        &self,
        inode: &Inode,
        End { fd, name, .. }: End<'_>,
    ) -> Option<Arc<OwnedFd>> {
        let mount = inode.mount();
        // NFS would give an open file another name. A submount would stay busy.
        let is_here = mount.is_source() && !mount.is_remote && !mount.is_layered;
        if !is_here || !inode.is_regular() || !self.freeing.runs() {
            return None;
        }
        let open = || {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(fd, name, flags, Mode::empty());
            opened.ok().map(Arc::new)
        };
        let file = inode.lower.cached_descriptor().or_else(open)?;
        let stat = stat_open(&*file).ok()?;
        (stat.stx_nlink == 1 && stat.stx_size <= FREED_BYTES_MAX).then_some(file)
    }

    /// The inode behind a name, with its descriptor cached; `None` if the kernel has not looked it up.
    pub(crate) fn hold(&self, end: End<'_>) -> Option<Arc<Inode>> {
        let parent = end.parent;
        let (fd, stat) = self.open_component(end.fd, end.name).ok()?;
        if stat.stx_mnt_id != parent.mount().id {
            // The root of a submount: its handle may be that of another file on this mount.
            return None;
        }
        let identity = opened_identity(parent.mount(), &fd, &stat).ok()?;
        let inode = self.nodes.find(&identity)?;
        self.descriptors.keep(&inode, fd);
        Some(inode)
    }

    /// The inode behind a name, if the kernel has looked it up.
    pub(crate) fn tracked(&self, end: End<'_>) -> Option<Arc<Inode>> {
        if end.parent.mount().has_handles {
            self.known(end)
        } else {
            self.hold(end)
        }
    }

    /// Whether an inode without a file handle is also at another known place than this.
    pub(crate) fn is_also_elsewhere(&self, inode: &Inode, end: End<'_>) -> bool {
        let here = end.known_name();
        let places = inode.lower.places().into_iter();
        let mut names = places.map(|(parent, name)| KnownName::new(parent.node(), name.to_bytes()));
        names.any(|name| name != here && self.leads_to(&name, inode).unwrap_or(false))
    }

    /// Whether an inode has this name now.
    pub(crate) fn leads_to(&self, name: &KnownName, inode: &Inode) -> Result<bool> {
        let directory = self.nodes.get(name.directory)?;
        let descriptor = self.descriptor(&directory)?;
        let component = component_of(&name.name)?;
        let (fd, stat) = self.open_component(&descriptor, &component)?;
        // On another file system, a handle may be that of another file.
        let is_there = stat.stx_mnt_id == inode.mount().id;
        Ok(is_there && opened_identity(inode.mount(), &fd, &stat)? == *inode.identity())
    }

    /// Whether the inode is at this path now.
    pub(crate) fn path_leads_to(&self, path: &[u8], inode: &Inode) -> Result<bool> {
        let (fd, _) = self.walk(path)?;
        Ok(self.is_of(&fd, inode))
    }

    /// Another descriptor of an inode, by the path that the kernel shows of the first one, which may be from another
    /// mount of the source.
    pub(crate) fn find_by_link(&self, fd: &OwnedFd, inode: &Inode) -> Option<OwnedFd> {
        let path = proc_fd::path_hint(fd.as_fd()).ok()?;
        let root = self.descriptor(&self.root).ok()?;
        let root = proc_fd::path_hint(root.as_fd()).ok()?;
        // Of a mount that no process has mounted any more, it begins at the source.
        let path = path.strip_prefix(root.as_slice()).unwrap_or(&path);
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let (found, _) = self.walk(path).ok()?;
        self.is_of(&found, inode).then_some(found)
    }

    /// Walks to a path beneath the root, `O_PATH`. Symbolic links are not followed.
    pub(crate) fn walk(&self, path: &[u8]) -> Result<(OwnedFd, Statx)> {
        let mut at = None;
        let mut rest = path;
        loop {
            let (piece, behind) = piece_of(rest);
            let piece = CString::new(piece).map_err(|_| Errno::ENOENT)?;
            let (fd, stat) = match &at {
                None => self.open_component(self.descriptor(&self.root)?, &piece)?,
                Some(at) => self.open_component(at, &piece)?,
            };
            if behind.is_empty() {
                return Ok((fd, stat));
            }
            at = Some(fd);
            rest = behind;
        }
    }

    pub(crate) fn is_of(&self, fd: &OwnedFd, inode: &Inode) -> bool {
        let identity =
            stat_with_birth(fd).and_then(|stat| opened_identity(inode.mount(), fd, &stat));
        identity.is_ok_and(|identity| identity == *inode.identity())
    }
}

/// The longest prefix of a path that a system call takes, and the rest.
fn piece_of(path: &[u8]) -> (&[u8], &[u8]) {
    let is_longer = path.get(..PIECE_BYTES_MAX);
    match is_longer.and_then(|piece| piece.iter().rposition(|&byte| byte == b'/')) {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (path, b""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_paths_are_walked_in_pieces() {
        let name = "n".repeat(255);
        let path = vec![name.as_str(); 40].join("/");
        let mut rest = path.as_bytes();
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let (piece, behind) = piece_of(rest);
            assert!(piece.len() < PIECE_BYTES_MAX);
            pieces.push(piece);
            rest = behind;
        }
        assert_eq!(pieces.join(&b'/'), path.as_bytes());
        assert_eq!(piece_of(b"a/b"), (&b"a/b"[..], &b""[..]));
    }
}
