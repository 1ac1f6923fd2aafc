//! IOCTL: inode flags, through an open file or directory.

use super::ownership::OwnerChange;
use crate::host::Host;
use std::os::fd::{AsFd, BorrowedFd};
use thrufs::{Context, Result};
use thrufs_abi::{FileHandle, NodeId};
use thrufs_sys::ioctl;

impl Host {
    pub(crate) fn ioctl(
        &self,
        context: &Context<'_>,
        node: NodeId,
        handle: FileHandle,
        command: u32,
        data: &mut [u8],
        _: usize,
    ) -> Result<(i32, usize)> {
        let changes = ioctl::changes(command);
        if changes {
            self.config.writable()?;
        }
        let inode = self.tree.nodes.get(node)?;
        if changes {
            self.judge.may_change(&inode, context)?;
            self.files.require_mapped(&inode)?;
        }
        let mut send = |fd: BorrowedFd<'_>| {
            if !changes {
                return Ok(ioctl::file_ioctl(fd, command, data)?);
            }
            self.as_owner(context, &inode, fd, OwnerChange::Flags, || {
                Ok(ioctl::file_ioctl(fd, command, data)?)
            })
        };
        let result = if inode.is_directory() {
            let directory = self.files.directory_of(node, handle)?;
            send(self.files.directory_fd(&directory)?.as_fd())?
        } else {
            let file = self.files.file_for(node, handle, libc::O_RDONLY)?;
            send(self.files.lower(&file, false)?.as_fd())?
        };
        if changes {
            // The kernel does not expect this ioctl to change attributes.
            self.tree.attributes_changed(&inode);
        }
        Ok((result, if changes { 0 } else { data.len() }))
    }
}
