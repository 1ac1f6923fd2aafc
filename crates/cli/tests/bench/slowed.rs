//! A file system that wraps another and sleeps in one of its methods.

use std::time::Duration;
use thrufs::{
    Attributes, Context, DirectorySink, Entry, Features, FileHandle, FileSystem,
    FileSystemStatistics, LockOwner, Name, Negotiation, NewNode, NodeId, OpenArgs, Opened,
    ReadAnswer, ReadArgs, ReadReply, ReleaseArgs, Result, Services, SetAttr, WriteArgs,
    WriteSource,
};

pub(crate) struct Slowed<F> {
    pub(crate) inner: F,
    pub(crate) method: &'static str,
    pub(crate) delay: Duration,
}

/// Forwards the methods that the benchmark uses.
macro_rules! slowed {
    ($($method:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*) => {
        impl<F: FileSystem> FileSystem for Slowed<F> {
            fn init(&self, negotiation: &mut Negotiation) -> Result<()> {
                self.inner.init(negotiation)
            }

            fn started(&self, features: &Features, services: Services) {
                self.inner.started(features, services);
            }

            fn destroy(&self) {
                self.inner.destroy();
            }

            fn forget(&self, node: NodeId, count: u64) {
                self.inner.forget(node, count);
            }

            $(fn $method(&self, context: &Context<'_>, $($argument: $kind),*) -> $answer {
                if self.method == stringify!($method) {
                    std::thread::sleep(self.delay);
                }
                self.inner.$method(context, $($argument),*)
            })*
        }
    };
}

slowed! {
    lookup(parent: NodeId, name: Name<'_>) -> Result<Entry>;
    getattr(node: NodeId, handle: Option<FileHandle>) -> Result<Attributes>;
    setattr(node: NodeId, set: &SetAttr) -> Result<Attributes>;
    mkdir(parent: NodeId, name: Name<'_>, new: &NewNode) -> Result<Entry>;
    unlink(parent: NodeId, name: Name<'_>) -> Result<()>;
    rmdir(parent: NodeId, name: Name<'_>) -> Result<()>;
    rename(parent: NodeId, name: Name<'_>, new_parent: NodeId, new_name: Name<'_>, flags: u32) -> Result<()>;
    open(node: NodeId, args: &OpenArgs) -> Result<Opened>;
    create(parent: NodeId, name: Name<'_>, new: &NewNode, args: &OpenArgs) -> Result<(Entry, Opened)>;
    read(node: NodeId, args: &ReadArgs, reply: ReadReply<'_>) -> Result<ReadAnswer>;
    write(node: NodeId, args: &WriteArgs, data: WriteSource<'_>) -> Result<usize>;
    flush(node: NodeId, handle: FileHandle, owner: LockOwner) -> Result<()>;
    release(node: NodeId, args: &ReleaseArgs) -> ();
    fsync(node: NodeId, handle: FileHandle, data_only: bool) -> Result<()>;
    opendir(node: NodeId, args: &OpenArgs) -> Result<Opened>;
    readdir(node: NodeId, handle: FileHandle, offset: u64, sink: &mut DirectorySink<'_>) -> Result<()>;
    releasedir(node: NodeId, args: &ReleaseArgs) -> ();
    statfs(node: NodeId) -> Result<FileSystemStatistics>;
    syncfs(node: NodeId) -> Result<()>;
}
