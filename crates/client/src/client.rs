//! The connection: buffers, numbers, and the greeting.

use crate::calls::Caller;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use thrufs::{Dispatcher, FileSystem};
use thrufs_abi::layout::{InitIn, InitOut};
use thrufs_abi::version::{KERNEL_MINOR, KERNEL_VERSION};
use thrufs_abi::{InitFlags, NodeId, Opcode, Reply, RequestBuilder, Unique};

/// Room for the largest reply that is asked for: 1 MiB of data and a header.
const REPLY_BYTES: usize = (1 << 20) + 4096;

/// What a 6.18 kernel offers on `/dev/fuse`: everything but what is for virtio-fs alone, and what
/// needs a transport to go with it.
const OFFERED: InitFlags = InitFlags::all().difference(
    InitFlags::FILE_OPS
        .union(InitFlags::MAP_ALIGNMENT)
        .union(InitFlags::SUBMOUNTS)
        .union(InitFlags::HAS_INODE_DAX)
        .union(InitFlags::OVER_IO_URING)
        .union(InitFlags::RESERVED),
);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// INIT was refused.
    #[error("the file system refused INIT with error {0}")]
    Refused(i32),
    /// The answer to INIT is no answer.
    #[error("the answer to INIT is malformed")]
    Malformed,
}

/// A client that drives a file system in the same process.
///
/// It may be shared by threads; each request is carried out by the thread that makes it, to its
/// end, sleeping where needed.
pub struct Client<F: FileSystem> {
    dispatcher: Dispatcher<F>,
    greeting: InitOut,
    unique: AtomicU64,
    replies: Mutex<Vec<Vec<u8>>>,
}

impl<F: FileSystem> Client<F> {
    /// Connects to `fs` as a 6.18 kernel would.
    ///
    /// # Errors
    ///
    /// When INIT is refused.
    pub fn connect(fs: Arc<F>) -> Result<Client<F>, ClientError> {
        Client::connect_offering(fs, KERNEL_MINOR, OFFERED)
    }

    /// Connects with another minor version and other capabilities.
    ///
    /// # Errors
    ///
    /// When INIT is refused.
    pub fn connect_offering(
        fs: Arc<F>,
        minor: u32,
        offered: InitFlags,
    ) -> Result<Client<F>, ClientError> {
        let mut client = Client {
            dispatcher: Dispatcher::new(fs),
            greeting: InitOut::default(),
            unique: AtomicU64::new(2),
            replies: Mutex::default(),
        };
        let flags = offered.bits();
        let arg = InitIn {
            major: KERNEL_VERSION,
            minor,
            max_readahead: 128 * 1024,
            flags: flags as u32,
            flags2: (flags >> 32) as u32,
            ..InitIn::default()
        };
        let message = RequestBuilder::new(Opcode::Init, client.next_unique(), NodeId(0))
            .arg(&arg)
            .finish();
        let reply = client.transact(&message).ok_or(ClientError::Malformed)?;
        let reply = Reply::parse(&reply).ok_or(ClientError::Malformed)?;
        if reply.error != 0 {
            return Err(ClientError::Refused(-reply.error));
        }
        client.greeting = reply.structure().ok_or(ClientError::Malformed)?;
        Ok(client)
    }

    /// The answer to INIT.
    pub fn greeting(&self) -> &InitOut {
        &self.greeting
    }

    /// The file system behind the connection.
    pub fn file_system(&self) -> &F {
        self.dispatcher.file_system()
    }

    /// The dispatch in between.
    pub fn dispatcher(&self) -> &Dispatcher<F> {
        &self.dispatcher
    }

    /// Root, asking.
    pub fn root(&self) -> Caller<'_, F> {
        self.user(0, 0)
    }

    /// A user, asking.
    pub fn user(&self, uid: u32, gid: u32) -> Caller<'_, F> {
        Caller::new(self, uid, gid)
    }

    /// A number for the next request.
    pub fn next_unique(&self) -> Unique {
        Unique(self.unique.fetch_add(2, Ordering::Relaxed))
    }

    /// Sends bytes as they are, a request or not, and returns the reply, `None` when there is none.
    pub fn transact(&self, message: &[u8]) -> Option<Vec<u8>> {
        let pool = || self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = pool().pop();
        let mut buffer = kept.unwrap_or_else(|| vec![0; REPLY_BYTES]);
        let length = self.dispatcher.answer(message, &mut buffer);
        let reply = (length > 0).then(|| buffer[..length].to_vec());
        pool().push(buffer);
        reply
    }
}

impl<F: FileSystem> Drop for Client<F> {
    fn drop(&mut self) {
        self.file_system().destroy();
    }
}
