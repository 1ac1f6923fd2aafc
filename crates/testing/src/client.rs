//! The connection: INIT, and unique ids of requests.

use crate::carrier::{Carrier, InProcess};
use crate::shape::Shape;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thrufs::{Dispatcher, Errno, FileSystem, Services};
use thrufs_abi::layout::{InitIn, InitOut};
use thrufs_abi::version::{KERNEL_MINOR, KERNEL_VERSION};
use thrufs_abi::{InitFlags, NodeId, Opcode, Reply, RequestBuilder, Unique};

/// Features that Linux 6.18 offers on `/dev/fuse`, without those of virtio-fs or another transport.
pub const OFFERED_ON_DEV_FUSE: InitFlags = InitFlags::all().difference(
    InitFlags::FILE_OPS
        .union(InitFlags::MAP_ALIGNMENT)
        .union(InitFlags::SUBMOUNTS)
        .union(InitFlags::HAS_INODE_DAX)
        .union(InitFlags::OVER_IO_URING)
        .union(InitFlags::PASSTHROUGH)
        .union(InitFlags::RESERVED),
);

/// Features that Linux 6.18 offers as a guest, to a device without a DAX window.
pub const OFFERED_BY_GUESTS: InitFlags = OFFERED_ON_DEV_FUSE.union(InitFlags::SUBMOUNTS);

/// Features that Linux 6.18 offers as a guest, to a device with a DAX window, mounted without `dax=`.
pub const OFFERED_WITH_WINDOW: InitFlags = OFFERED_BY_GUESTS
    .union(InitFlags::MAP_ALIGNMENT)
    .union(InitFlags::HAS_INODE_DAX);

/// Why INIT failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// INIT was refused.
    #[error("the file system refused INIT with error {0}")]
    Refused(i32),
    /// The reply to INIT is malformed.
    #[error("the answer to INIT is malformed")]
    Malformed,
    /// INIT was not answered: the server has gone, or takes too long.
    #[error("INIT was not answered")]
    NoAnswer,
}

/// A client with a session, over a [`Carrier`]. Threads may share it.
pub struct Client<C: Carrier> {
    carrier: C,
    greeting: InitOut,
    unique: AtomicU64,
}

impl<F: FileSystem> Client<InProcess<F>> {
    /// Connects to `fs` as a 6.18 kernel would.
    pub fn connect(fs: Arc<F>) -> Result<Client<InProcess<F>>, ClientError> {
        Client::connect_offering(fs, KERNEL_MINOR, OFFERED_ON_DEV_FUSE)
    }

    /// Connects with this minor version and these capabilities.
    pub fn connect_offering(
        fs: Arc<F>,
        minor: u32,
        offered: InitFlags,
    ) -> Result<Client<InProcess<F>>, ClientError> {
        let client = Client::over_offering(InProcess::new(fs), minor, offered)?;
        if let Some(features) = client.dispatcher().features() {
            client
                .file_system()
                .started(features, Services::unavailable());
        }
        Ok(client)
    }

    /// The file system behind the connection.
    pub fn file_system(&self) -> &F {
        self.carrier.dispatcher().file_system()
    }

    /// The dispatcher.
    pub fn dispatcher(&self) -> &Dispatcher<F> {
        self.carrier.dispatcher()
    }
}

impl<C: Carrier> Client<C> {
    /// Sends INIT over a carrier, as a 6.18 guest would.
    pub fn mount(carrier: C) -> Result<Client<C>, ClientError> {
        Client::over_offering(carrier, KERNEL_MINOR, OFFERED_BY_GUESTS)
    }

    /// As [`mount`](Self::mount), by a guest whose device has a DAX window.
    pub fn mount_with_window(carrier: C) -> Result<Client<C>, ClientError> {
        Client::over_offering(carrier, KERNEL_MINOR, OFFERED_WITH_WINDOW)
    }

    /// Ends the session by DESTROY, as a guest's unmount, and returns the carrier, for another mount. A dropped
    /// client sends no DESTROY, as a machine that is switched off.
    pub fn unmount(self) -> C {
        let request = RequestBuilder::new(Opcode::Destroy, self.next_unique(), NodeId(0)).finish();
        self.transact(&request);
        self.carrier
    }

    /// Sends INIT over a carrier, with this minor version and these capabilities.
    pub fn over_offering(
        carrier: C,
        minor: u32,
        offered: InitFlags,
    ) -> Result<Client<C>, ClientError> {
        let mut client = Client {
            carrier,
            greeting: InitOut::default(),
            unique: AtomicU64::new(2),
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
        let reply = client.transact(&message).ok_or(ClientError::NoAnswer)?;
        let reply = Reply::parse(&reply).ok_or(ClientError::Malformed)?;
        if reply.error != 0 {
            return Err(ClientError::Refused(-reply.error));
        }
        client.greeting = reply.structure().ok_or(ClientError::Malformed)?;
        Ok(client)
    }

    /// A client of the same session, over another carrier.
    pub fn beside<D: Carrier>(&self, carrier: D) -> Client<D> {
        Client {
            carrier,
            greeting: self.greeting,
            unique: AtomicU64::new(2),
        }
    }

    /// The carrier.
    pub fn carrier(&self) -> &C {
        &self.carrier
    }

    /// The reply to INIT.
    pub fn greeting(&self) -> &InitOut {
        &self.greeting
    }

    /// The negotiated flags.
    pub fn agreed(&self) -> InitFlags {
        let low = InitFlags::from_bits_retain(u64::from(self.greeting.flags));
        if low.contains(InitFlags::INIT_EXT) {
            low | InitFlags::from_bits_retain(u64::from(self.greeting.flags2) << 32)
        } else {
            low
        }
    }

    /// A caller with root's ids.
    pub fn root(&self) -> Caller<'_, C> {
        self.user(0, 0)
    }

    /// A caller with a user's ids.
    pub fn user(&self, uid: u32, gid: u32) -> Caller<'_, C> {
        let client = self;
        Caller { client, uid, gid }
    }

    /// A unique id for the next request.
    pub fn next_unique(&self) -> Unique {
        Unique(self.unique.fetch_add(2, Ordering::Relaxed))
    }

    /// Sends bytes, a valid request or not, with as much room for the reply as a kernel makes. `None` without a
    /// reply.
    pub fn transact(&self, message: &[u8]) -> Option<Vec<u8>> {
        let room = Shape::of(message).reply.map_or(0, |reply| reply.bytes());
        let reply = self.carrier.transact(message, room);
        (!reply.is_empty()).then_some(reply)
    }
}

/// A client with a caller's ids.
pub struct Caller<'a, C: Carrier> {
    pub(crate) client: &'a Client<C>,
    uid: u32,
    gid: u32,
}

// Not derived, which would require it of the carrier.
impl<C: Carrier> Clone for Caller<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C: Carrier> Copy for Caller<'_, C> {}

impl<C: Carrier> Caller<'_, C> {
    /// A request of this caller, to be completed and passed to [`call`](Self::call).
    pub fn request(&self, opcode: Opcode, node: NodeId) -> RequestBuilder {
        let unique = self.client.next_unique();
        RequestBuilder::new(opcode, unique, node).ids(self.uid, self.gid, 4242)
    }

    /// Sends a request and returns the body of its reply.
    ///
    /// # Errors
    ///
    /// The reply's; EPROTO when there is none or it is malformed.
    pub fn call(&self, request: RequestBuilder) -> thrufs::Result<Vec<u8>> {
        let message = request.finish();
        let unique = Unique(u64::from_ne_bytes(
            message[8..16].try_into().map_err(|_| Errno::EPROTO)?,
        ));
        let reply = self.client.transact(&message).ok_or(Errno::EPROTO)?;
        let reply = Reply::parse(&reply).ok_or(Errno::EPROTO)?;
        if reply.unique != unique || reply.error > 0 || (reply.error != 0 && !reply.body.is_empty())
        {
            return Err(Errno::EPROTO);
        }
        if reply.error < 0 {
            Err(Errno::from_raw(-reply.error))
        } else {
            Ok(reply.body.to_vec())
        }
    }
}
