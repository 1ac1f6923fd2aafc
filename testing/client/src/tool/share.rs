//! A mounted share, with lookup counts.

use super::connection::Connection;
use super::error::ToolError;
use crate::front_end::FrontEnd;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use thrufs::Errno;
use thrufs_abi::{NodeId, Opcode, RequestBuilder};
use thrufs_testing::Caller;
use thrufs_testing::Client;

/// The kernel's minimum of `max_write` (`FUSE_MIN_READ_BUFFER` less headers).
const TRANSFER_BYTES_MIN: usize = 4096;
/// Most data of a request: the room of its buffers.
const TRANSFER_BYTES_MAX: usize = 1 << 20;

pub(crate) struct Share {
    client: Client<FrontEnd>,
    /// Lookup counts by node, to be forgotten.
    lookups: Mutex<HashMap<u64, u64>>,
}

impl Share {
    pub(crate) fn mount(connection: &Connection) -> Result<Share, ToolError> {
        Share::over(connection.connect()?).map_err(|source| ToolError::Mount {
            socket: connection.socket.clone(),
            source,
        })
    }

    pub(crate) fn over(front_end: FrontEnd) -> Result<Share, thrufs_testing::ClientError> {
        Ok(Share {
            client: Client::mount(front_end)?,
            lookups: Mutex::default(),
        })
    }

    pub(crate) fn client(&self) -> &Client<FrontEnd> {
        &self.client
    }

    pub(crate) fn root(&self) -> Caller<'_, FrontEnd> {
        self.client.root()
    }

    /// Most bytes of a READ or WRITE.
    pub(crate) fn transfer_bytes(&self) -> usize {
        let most = self.client.greeting().max_write as usize;
        most.clamp(TRANSFER_BYTES_MIN, TRANSFER_BYTES_MAX)
    }

    pub(crate) fn counted(&self, node: u64) {
        self.counted_times(node, 1);
    }

    pub(crate) fn counted_times(&self, node: u64, times: u64) {
        if node > NodeId::ROOT.0 && times > 0 {
            let mut lookups = self.lookups.lock().unwrap_or_else(PoisonError::into_inner);
            *lookups.entry(node).or_default() += times;
        }
    }

    pub(crate) fn forget_all(&self) {
        let mut counted = self.lookups.lock().unwrap_or_else(PoisonError::into_inner);
        let lookups = std::mem::take(&mut *counted);
        drop(counted);
        for (node, count) in lookups {
            self.root().forget(NodeId(node), count);
        }
    }
}

impl Drop for Share {
    /// As a guest at unmount: forgets all lookups and sends DESTROY.
    fn drop(&mut self) {
        self.forget_all();
        let unique = self.client.next_unique();
        let request = RequestBuilder::new(Opcode::Destroy, unique, NodeId(0));
        self.client.transact(&request.finish());
    }
}

pub(crate) fn failed(path: &str, errno: Errno) -> ToolError {
    ToolError::Share {
        path: path.to_owned(),
        errno,
    }
}
