//! SETUPMAPPING and REMOVEMAPPING, which the transport completes.

use super::{Dispatcher, Done};
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::file_system::FileSystem;
use crate::reply::put_header;
use crate::window::{MapArgs, WindowChange, WindowReply};
use thrufs_abi::NodeId;
use thrufs_abi::layout::{RemovemappingOne, SetupmappingIn};

/// `FUSE_SETUPMAPPING_FLAG_WRITE`.
const FLAG_WRITE: u64 = 1;
/// `FUSE_SETUPMAPPING_FLAG_READ`.
const FLAG_READ: u64 = 2;

impl<F: FileSystem> Dispatcher<F> {
    /// Completes the reply after the window was changed, or could not be. Returns the bytes to send.
    pub fn finish_window_reply(
        &self,
        window_reply: &WindowReply,
        reply: &mut [u8],
        result: Result<()>,
    ) -> usize {
        let (latency, error) = (window_reply.started.elapsed(), result.err());
        self.metrics.record(window_reply.opcode, latency, error, 0);
        put_header(reply, window_reply.unique, result.map(|()| 0))
    }

    pub(super) fn set_up_mapping(
        &self,
        context: &Context<'_>,
        node: NodeId,
        arg: &SetupmappingIn,
    ) -> Result<Done> {
        if self.window.is_none() {
            return Err(Errno::ENOSYS);
        }
        let end = arg.foffset.checked_add(arg.len);
        if arg.flags & !(FLAG_READ | FLAG_WRITE) != 0
            || end.is_none_or(|end| i64::try_from(end).is_err())
        {
            return Err(self.invalid(Errno::EINVAL));
        }
        let args = MapArgs {
            offset: arg.foffset,
            length: arg.len,
            write: arg.flags & FLAG_WRITE != 0,
        };
        let file = self.fs.map(context, node, &args)?;
        let change = WindowChange::Map {
            node,
            file,
            args,
            at: arg.moffset,
        };
        Ok(Done::Window(Box::new(change)))
    }

    pub(super) fn remove_mappings(
        &self,
        mappings: impl Iterator<Item = RemovemappingOne>,
    ) -> Result<Done> {
        if self.window.is_none() {
            return Err(Errno::ENOSYS);
        }
        let ranges = mappings.map(|one| (one.moffset, one.len)).collect();
        Ok(Done::Window(Box::new(WindowChange::Unmap(ranges))))
    }
}
