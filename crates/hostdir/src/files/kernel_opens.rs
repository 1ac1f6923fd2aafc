//! Regular files that the kernel above opens by itself, since its first OPEN was answered with ENOSYS: their requests
//! come without a handle, and no RELEASE says when they are closed. So each request opens the file beneath for
//! itself, and closes it before a change is answered: after close(2), nothing here has the file open. Who may open
//! what was decided above.
//!
//! A file that is removed through the mount keeps its descriptor until FORGET, as removed directories do.

use super::Files;
use super::open::access;
use super::open_file::{NewOpenFile, OpenFile};
use crate::judge::PASSTHROUGH;
use crate::stat::stat_open;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thrufs::{LowerFile, Opened, Result};
use thrufs_abi::{FileHandle, NodeId, OpenReplyFlags};
use thrufs_policy::Access;

impl Files {
    pub(crate) fn is_opened_by_kernel(&self, handle: FileHandle) -> bool {
        handle == FileHandle(0) && self.kernel_opens_files.load(Ordering::Relaxed)
    }

    /// The open file of a request that needs it with `flags`: for this request alone if the kernel has opened it.
    pub(crate) fn file_for(
        &self,
        node: NodeId,
        handle: FileHandle,
        flags: i32,
    ) -> Result<Arc<OpenFile>> {
        if !self.is_opened_by_kernel(handle) {
            return self.file_of(node, handle);
        }
        let may_append = flags & libc::O_APPEND != 0;
        let flags = flags & !libc::O_APPEND;
        let inode = self.to_be_opened(node, access(flags))?;
        let guard = self.use_file(&inode, flags, None, &PASSTHROUGH)?;
        let (fd, appends) = self.open_to_append(&inode, flags, may_append)?;
        if access(flags) == Access::Change {
            inode.noted.record_mode(u32::from(stat_open(&fd)?.stx_mode));
        }
        let lower = LowerFile::new(fd, inode.mount().no_wait);
        Ok(Arc::new(OpenFile::new(NewOpenFile {
            guard,
            lower: Some(Arc::new(lower)),
            flags,
            appends,
            version: 0,
        })))
    }

    /// The answer about a file that was created, and is not open here. CREATE cannot be left to the kernel: it would
    /// open what another client has created meanwhile.
    pub(crate) fn created_for_kernel(&self) -> Option<Opened> {
        let is_by_kernel = self.kernel_opens_files.load(Ordering::Relaxed);
        is_by_kernel.then_some(Opened {
            handle: FileHandle(0),
            flags: OpenReplyFlags::KEEP_CACHE,
            backing: None,
        })
    }
}
