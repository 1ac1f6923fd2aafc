//! The trait of a file system whose methods are `async fn`.

use crate::context::Context;
use crate::methods::methods;
use std::ffi::OsString;
use thrufs::{
    Attributes, CopyArgs, DirectorySink, Entry, Errno, ExtendedAttributes, Features, FileHandle,
    FileSystemStatistics, LockArgs, LockOwner, MountOptions, Negotiation, NewNode, NodeId,
    OpenArgs, Opened, ReadArgs, ReleaseArgs, Result, Services, SetAttr, WriteArgs,
};

macro_rules! declare {
    () => { Err(Errno::ENOSYS) };
    ({ $default:expr }) => { $default };
    ($(
        $(#[$documentation:meta])*
        fn $method:ident($($argument:ident: $owned:ty $(= $lent:ty)?),* $(; $buffer:tt)?)
            -> $answer:ty $(= $result:ty)? $({ $default:expr })?;
    )*) => { $(
        #[doc = concat!("As [`FileSystem::", stringify!($method), "`](thrufs::FileSystem::", stringify!($method), ").")]
        $(#[$documentation])*
        fn $method(
            &self,
            context: Context,
            $($argument: $owned),*
        ) -> impl Future<Output = Result<$answer>> + Send {
            async { declare!($({ $default })?) }
        }
    )* };
}

/// A file system whose methods are `async fn`. [`Async`](crate::Async) makes a [`thrufs::FileSystem`] of it.
///
/// The methods are those of [`thrufs::FileSystem`], which says what their answers mean to the kernel, about nodes and
/// their lookups, permissions and errors: this page says what differs. An implementation writes each as
/// `async fn lookup(&self, …) -> Result<Entry>`. Arguments are owned, and data are returned instead of written to a
/// buffer. A future may run for as long as it wants, on any thread; it borrows the file system meanwhile.
///
/// [`init`](Self::init), [`started`](Self::started), [`forget`](Self::forget), [`release`](Self::release) and
/// [`destroy`](Self::destroy) are ordinary methods: they run on a thread that reads requests, and do not sleep.
///
/// **Clients that no longer wait.** A program that is signalled, or killed, waits for the answer all the same: see
/// [`Context::interruptible`]. When the session ends, all requests are interrupted; answers that are later than
/// [`SessionConfig::drain_timeout`](thrufs::SessionConfig::drain_timeout) have no effect.
///
/// **What fails.** A future that panics, or that its executor drops, answers `EIO`, and a line is logged.
#[allow(unused_variables)]
pub trait AsyncFileSystem: Send + Sync + 'static {
    /// The bytes of a read: `Vec<u8>`, or any other owner of bytes, which are not copied.
    type Data: AsRef<[u8]> + Send + 'static;

    /// See [`FileSystem::may_be_mounted`](thrufs::FileSystem::may_be_mounted).
    ///
    /// # Errors
    /// The reason, as a sentence.
    fn may_be_mounted(&self, options: &MountOptions) -> std::result::Result<(), &'static str> {
        Ok(())
    }

    /// Called once, before anything else, to ask for capabilities. [`Negotiation::set_prompt`] is set.
    ///
    /// # Errors
    /// Refuses the mount.
    fn init(&self, negotiation: &mut Negotiation) -> Result<()> {
        Ok(())
    }

    /// See [`FileSystem::started`](thrufs::FileSystem::started).
    fn started(&self, features: &Features, services: Services) {}

    /// Called once, when the connection has ended. Futures that were not done may still run; their answers have no
    /// effect.
    fn destroy(&self) {}

    /// Subtracts `count` lookups of `node`.
    fn forget(&self, node: NodeId, count: u64) {}

    /// The last descriptor of an open file was closed. Nothing waits for it: what takes long and may fail belongs
    /// into [`flush`](Self::flush).
    fn release(&self, node: NodeId, args: ReleaseArgs) {}

    /// The last descriptor of an open directory is gone.
    fn releasedir(&self, node: NodeId, args: ReleaseArgs) {}

    /// As [`FileSystem::lookup`](thrufs::FileSystem::lookup).
    fn lookup(
        &self,
        context: Context,
        parent: NodeId,
        name: OsString,
    ) -> impl Future<Output = Result<Entry>> + Send;

    /// As [`FileSystem::getattr`](thrufs::FileSystem::getattr).
    fn getattr(
        &self,
        context: Context,
        node: NodeId,
        handle: Option<FileHandle>,
    ) -> impl Future<Output = Result<Attributes>> + Send;

    declare! {
        /// Reads `size` bytes. Fewer mean the end of the file; what is more is cut off.
        fn read(node: NodeId, args: ReadArgs, size: usize) -> Self::Data;
        /// The lookup of an entry with attributes is counted once it is in the sink.
        fn readdir(node: NodeId, handle: FileHandle, offset: u64, sink: &mut DirectorySink<'_>) -> ();
    }

    methods!(declare);
}
