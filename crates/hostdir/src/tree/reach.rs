//! From an inode to a descriptor: by handle, by name, or by one that is held; and what is opened through it.
//! Makes room under the budget of descriptors.

use super::Tree;
use super::inode::{Inode, LowerMount};
use super::lower_inode::Descriptor;
use super::mounts::{open_beneath, opened_identity};
use crate::stat::stat_open;
use rustix::fs::{AtFlags, OFlags, ResolveFlags, StatVfsMountFlags, Statx, StatxFlags};
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use thrufs::{Errno, Result};
use thrufs_sys::{handle, proc_fd};

/// Most attempts to read a name, its handle and its attributes consistently while the file is being
/// replaced.
pub(super) const ATTEMPTS_MAX: usize = 16;

/// Most levels to climb to find an inode without a file handle again.
const CLIMB_MAX: usize = 4096;

/// How long the flags of a lower mount are cached, in milliseconds, so that programs that open one file
/// after another do not pay for reading them.
const MOUNT_FLAGS_MS: u64 = 10;

impl Tree {
    pub(crate) fn descriptor(&self, inode: &Arc<Inode>) -> Result<Descriptor> {
        self.descriptor_within(inode, CLIMB_MAX)
    }

    /// A directory's descriptor, readable unless one is cached already that is `O_PATH`.
    pub(super) fn readable_descriptor(&self, directory: &Arc<Inode>) -> Result<Descriptor> {
        if let Some(fd) = directory.lower.cached_descriptor() {
            return Ok(Descriptor::Cached(fd));
        }
        let fd = self.open_inode(directory, libc::O_RDONLY | libc::O_DIRECTORY)?;
        Ok(Descriptor::Cached(self.descriptors.keep(directory, fd)))
    }

    /// The attributes of an inode.
    pub(crate) fn stat(&self, inode: &Arc<Inode>) -> Result<Statx> {
        stat_open(self.descriptor(inode)?)
    }

    /// Whether the lower mount is read-only, cached for at most [`MOUNT_FLAGS_MS`].
    pub(crate) fn mount_is_read_only(&self, inode: &Arc<Inode>) -> Result<bool> {
        let now_ms = self.mounts.now_ms();
        if let Some(known) = inode.mount().known_read_only(now_ms, MOUNT_FLAGS_MS) {
            return Ok(known);
        }
        let descriptor = self.descriptor(inode)?;
        let flags = rustix::fs::fstatvfs(descriptor.as_fd())?.f_flag;
        let is_read_only = flags.contains(StatVfsMountFlags::RDONLY);
        inode.mount().record_read_only(now_ms, is_read_only);
        Ok(is_read_only)
    }

    fn descriptor_within(&self, inode: &Arc<Inode>, climb: usize) -> Result<Descriptor> {
        if let Some(fd) = inode.lower.cached_descriptor() {
            return Ok(Descriptor::Cached(fd));
        }
        let opened = match inode.identity().handle() {
            Some(handle) => self.open_by_handle(inode, handle, libc::O_PATH | libc::O_NOFOLLOW),
            None => self.walk_again(inode, climb),
        };
        match opened {
            Ok(fd) => Ok(Descriptor::Cached(self.descriptors.keep(inode, fd))),
            Err(error) => match inode.lower.opened() {
                // Its last name is gone, but a client has it open.
                Some(file) => Ok(Descriptor::Opened(file)),
                // Or a retrying thread has just looked it up.
                None => match self.retries.kept(inode.node()) {
                    Some(fd) => Ok(Descriptor::Cached(fd)),
                    None => Err(error),
                },
            },
        }
    }

    fn open_by_handle(
        &self,
        inode: &Inode,
        (kind, bytes): (i32, &[u8]),
        flags: i32,
    ) -> Result<OwnedFd> {
        let anchor = self.anchor_of(inode.mount())?;
        let open = || handle::open_by_handle_parts(anchor.as_fd(), kind, bytes, flags);
        self.with_room(|| Ok(open()?))
    }

    /// The directory against which file handles of a mount are opened.
    pub(crate) fn anchor_of(&self, mount: &LowerMount) -> Result<Arc<OwnedFd>> {
        self.mounts.anchor(mount, |parent| self.descriptor(parent))
    }

    /// Finds an inode without a file handle at one of its last places. With ESTALE, the kernel above looks a path up again,
    /// and what it leads to may have another place.
    fn walk_again(&self, inode: &Arc<Inode>, climb: usize) -> Result<OwnedFd> {
        let climb = climb.checked_sub(1).ok_or(Errno::ELOOP)?;
        let mut found = Err(Errno::ESTALE);
        for place in inode.lower.places() {
            found = self.walk_to(inode, &place, climb);
            if found.is_ok() {
                break;
            }
        }
        match found {
            Err(Errno::ENOENT | Errno::ENOTDIR) => Err(Errno::ESTALE),
            found => found,
        }
    }

    fn walk_to(
        &self,
        inode: &Inode,
        (parent, name): &(Arc<Inode>, CString),
        climb: usize,
    ) -> Result<OwnedFd> {
        let parent = self.descriptor_within(parent, climb)?;
        let (fd, stat) = self.open_component(&parent, name)?;
        let identity = opened_identity(inode.mount(), &fd, &stat)?;
        if identity == *inode.identity() && stat.stx_mnt_id == inode.mount().id {
            Ok(fd)
        } else {
            Err(Errno::ESTALE)
        }
    }

    /// Opens a component `O_PATH`, without following symbolic links, and reads its attributes.
    pub(crate) fn open_component(
        &self,
        parent: impl AsFd,
        name: &std::ffi::CStr,
    ) -> Result<(OwnedFd, Statx)> {
        for _ in 0..ATTEMPTS_MAX {
            let resolve = ResolveFlags::NO_SYMLINKS;
            let opened = self.with_room(|| open_beneath(&parent, name, OFlags::PATH, resolve));
            match opened {
                Ok(fd) => {
                    let mask =
                        StatxFlags::BASIC_STATS | StatxFlags::BTIME | crate::tree::mount_id_mask();
                    let stat = rustix::fs::statx(&fd, c"", AtFlags::EMPTY_PATH, mask)?;
                    return Ok((fd, stat));
                }
                // A concurrent rename: the kernel cannot tell whether the walk stayed beneath.
                Err(Errno::EAGAIN) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::EAGAIN)
    }

    pub(crate) fn open_inode(&self, inode: &Arc<Inode>, flags: i32) -> Result<OwnedFd> {
        if inode.mount().is_remote {
            self.credentials.as_server()?;
        }
        let flags = flags | libc::O_CLOEXEC | libc::O_NOCTTY;
        match self.open_inode_with(inode, flags) {
            // Granted by the owner that the client's kernel sees. Overlayfs sets it for every layer.
            Err(Errno::EPERM) if flags & libc::O_NOATIME != 0 => {
                self.open_inode_with(inode, flags & !libc::O_NOATIME)
            }
            opened => opened,
        }
    }

    fn open_inode_with(&self, inode: &Arc<Inode>, flags: i32) -> Result<OwnedFd> {
        if let Some(handle) = inode.identity().handle() {
            match self.open_by_handle(inode, handle, flags) {
                Err(Errno::ESTALE) => {}
                other => return other,
            }
        }
        let descriptor = self.descriptor(inode)?;
        self.reopen(descriptor.as_fd(), flags)
    }

    pub(crate) fn reopen(&self, fd: impl AsFd, flags: i32) -> Result<OwnedFd> {
        let flags = OFlags::from_bits_retain((flags & !libc::O_NOFOLLOW) as u32);
        self.with_room(|| Ok(proc_fd::reopen(fd.as_fd(), flags)?))
    }

    /// Runs `open`, and once more after evicting descriptors of inodes if the process has none left.
    pub(crate) fn with_room<T>(&self, mut open: impl FnMut() -> Result<T>) -> Result<T> {
        match open() {
            Err(Errno::EMFILE) => {
                self.descriptors.shrink(64);
                open()
            }
            result => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use crate::config::{Config, FileHandles};
    use std::fs::{self, File};
    use thrufs::Errno;

    #[test]
    fn inode_is_reached_after_its_descriptor_was_evicted() {
        for file_handles in [FileHandles::Prefer, FileHandles::Never] {
            let place = tempfile::tempdir().unwrap();
            let path = place.path().join("file");
            fs::write(&path, "content").unwrap();
            let config = Config {
                file_handles,
                ..Config::default()
            };
            let source = File::open(place.path()).unwrap();
            let tree = Tree::new(source.into(), &config, None, None, false).unwrap();
            let (inode, found) = tree.lookup_name(&tree.root, c"file").unwrap();
            for _ in 0..2 {
                assert_eq!(tree.stat(&inode).unwrap().stx_ino, found.stx_ino);
                assert!(inode.lower.has_descriptor());
                inode.lower.drop_descriptor();
                assert!(!inode.lower.has_descriptor());
            }
            fs::remove_file(&path).unwrap();
            let nothing_leads_to_it = tree.descriptor(&inode).err();
            assert_eq!(nothing_leads_to_it, Some(Errno::ESTALE));
            tree.forget(inode.node(), 1);
            assert!(tree.nodes.get(inode.node()).is_err());
        }
    }
}
