//! SETUPMAPPING: the file that a guest maps.

use crate::host::Host;
use crate::tree::{Inode, Noted, Use};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use thrufs::{Context, Errno, MapArgs, MappedFile, Result, WindowCoverage};
use thrufs_abi::NodeId;
use thrufs_policy::Access;

impl Host {
    /// Opens the file anew: the descriptor is for the machine monitor. The guest must have the file open; the
    /// kernel sends no handle.
    ///
    /// A file that the guest writes, or may come to write, is open for writing from the start: a mapping cannot be
    /// exchanged for another while the guest uses it. A program that the guest only reads is not, since it could
    /// not be executed on the host meanwhile (`ETXTBSY`); unless the monitor maps nothing else, and the file has
    /// become a program after the guest was told to map it.
    pub(crate) fn map(&self, _: &Context<'_>, node: NodeId, args: &MapArgs) -> Result<MappedFile> {
        let window = self.tree.dax.window().ok_or(Errno::ENOSYS)?;
        let mapped = self.open_to_map(window, node, args);
        mapped.inspect_err(|_| self.tree.dax.count_refused())
    }

    fn open_to_map(
        &self,
        window: &dyn WindowCoverage,
        node: NodeId,
        args: &MapArgs,
    ) -> Result<MappedFile> {
        let inode = self.tree.nodes.get(node)?;
        if !inode.is_regular() || !inode.uses.is_open() {
            return Err(Errno::EBADF);
        }
        self.tree.dax.may_map(&inode, self.judge.has_policy())?;
        if args.write {
            self.config.writable()?;
        }
        let is_read_only = self.config.read_only
            || inode.dax.granted() == Some(Access::Read)
            || self.files.require_mapped(&inode).is_err();
        let may_come_to_write = inode.uses.is_some_and(Use::has_writers)
            || !inode.noted.has(Noted::Executable)
            || !window.maps_read_only();
        if !is_read_only
            && may_come_to_write
            && let Some(file) = self.open_to_write(&inode)?
        {
            return Ok(MappedFile {
                file,
                writable: true,
            });
        }
        if args.write || !window.maps_read_only() {
            return Err(Errno::EACCES);
        }
        Ok(MappedFile {
            file: self.tree.open_inode(&inode, libc::O_RDONLY)?,
            writable: false,
        })
    }

    /// `None` when it may only be read.
    fn open_to_write(&self, inode: &Arc<Inode>) -> Result<Option<OwnedFd>> {
        match self.tree.open_inode(inode, libc::O_RDWR) {
            Ok(file) => Ok(Some(file)),
            Err(Errno::EACCES | Errno::EPERM | Errno::EROFS | Errno::ETXTBSY) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
