//! A file system that is another one and sleeps in one of its methods: the reports have to find it.

use std::ffi::CStr;
use std::io;
use std::time::Duration;
use thrufs::{
    Attributes, Context, CopyArgs, DirectorySink, Entry, ExtendedAttributes, Features, FileHandle,
    FileSystem, FileSystemStatistics, LockArgs, LockOwner, MountOptions, Name, Negotiation,
    NewNode, NodeId, OpenArgs, Opened, ReadAnswer, ReadArgs, ReadReply, ReleaseArgs, Result,
    Services, SetAttr, Unique, WriteArgs, WriteSource,
};

/// The other one; this method takes so much longer.
pub(crate) struct Slowed<F> {
    pub(crate) inner: F,
    pub(crate) method: &'static str,
    pub(crate) delay: Duration,
}

/// What can be slow is called and slowed in one way; the rest is handed on.
macro_rules! slowed {
    ($($method:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*) => {
        const METHODS: &[&str] = &[$(stringify!($method)),*];

        impl<F: FileSystem> FileSystem for Slowed<F> {
            fn may_be_mounted(&self, options: &MountOptions) -> std::result::Result<(), &'static str> {
                self.inner.may_be_mounted(options)
            }

            fn init(&self, negotiation: &mut Negotiation) -> Result<()> {
                self.inner.init(negotiation)
            }

            fn started(&self, features: &Features, services: Services) {
                self.inner.started(features, services);
            }

            fn destroy(&self) {
                self.inner.destroy();
            }

            fn save(&self, sink: &mut dyn io::Write) -> io::Result<()> {
                self.inner.save(sink)
            }

            fn restore(&self, source: &mut dyn io::Read) -> io::Result<()> {
                self.inner.restore(source)
            }

            fn recover(&self) -> io::Result<()> {
                self.inner.recover()
            }

            fn forget(&self, node: NodeId, count: u64) {
                self.inner.forget(node, count);
            }

            fn retrieved(&self, node: NodeId, cookie: Unique, offset: u64, data: &[u8]) {
                self.inner.retrieved(node, cookie, offset, data);
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
    statx(node: NodeId, handle: Option<FileHandle>, flags: u32, mask: u32) -> Result<ExtendedAttributes>;
    setattr(node: NodeId, set: &SetAttr) -> Result<Attributes>;
    readlink(node: NodeId, buffer: &mut [u8]) -> Result<usize>;
    symlink(parent: NodeId, name: Name<'_>, target: &CStr) -> Result<Entry>;
    mknod(parent: NodeId, name: Name<'_>, new: &NewNode) -> Result<Entry>;
    mkdir(parent: NodeId, name: Name<'_>, new: &NewNode) -> Result<Entry>;
    unlink(parent: NodeId, name: Name<'_>) -> Result<()>;
    rmdir(parent: NodeId, name: Name<'_>) -> Result<()>;
    rename(parent: NodeId, name: Name<'_>, new_parent: NodeId, new_name: Name<'_>, flags: u32) -> Result<()>;
    link(node: NodeId, new_parent: NodeId, new_name: Name<'_>) -> Result<Entry>;
    open(node: NodeId, args: &OpenArgs) -> Result<Opened>;
    create(parent: NodeId, name: Name<'_>, new: &NewNode, args: &OpenArgs) -> Result<(Entry, Opened)>;
    tmpfile(parent: NodeId, new: &NewNode, args: &OpenArgs) -> Result<(Entry, Opened)>;
    read(node: NodeId, args: &ReadArgs, reply: ReadReply<'_>) -> Result<ReadAnswer>;
    write(node: NodeId, args: &WriteArgs, data: WriteSource<'_>) -> Result<usize>;
    flush(node: NodeId, handle: FileHandle, owner: LockOwner) -> Result<()>;
    release(node: NodeId, args: &ReleaseArgs) -> ();
    fsync(node: NodeId, handle: FileHandle, data_only: bool) -> Result<()>;
    opendir(node: NodeId, args: &OpenArgs) -> Result<Opened>;
    readdir(node: NodeId, handle: FileHandle, offset: u64, sink: &mut DirectorySink<'_>) -> Result<()>;
    releasedir(node: NodeId, args: &ReleaseArgs) -> ();
    fsyncdir(node: NodeId, handle: FileHandle, data_only: bool) -> Result<()>;
    statfs(node: NodeId) -> Result<FileSystemStatistics>;
    syncfs(node: NodeId) -> Result<()>;
    setxattr(node: NodeId, name: &CStr, value: &[u8], flags: u32, clear_set_group_id: bool) -> Result<()>;
    getxattr(node: NodeId, name: &CStr, buffer: &mut [u8]) -> Result<usize>;
    listxattr(node: NodeId, buffer: &mut [u8]) -> Result<usize>;
    removexattr(node: NodeId, name: &CStr) -> Result<()>;
    access(node: NodeId, mask: u32) -> Result<()>;
    getlk(node: NodeId, lock: &LockArgs) -> Result<Option<LockArgs>>;
    setlk(node: NodeId, lock: &LockArgs, wait: bool) -> Result<()>;
    fallocate(node: NodeId, handle: FileHandle, offset: u64, length: u64, mode: u32) -> Result<()>;
    lseek(node: NodeId, handle: FileHandle, offset: u64, whence: u32) -> Result<u64>;
    copy_file_range(node: NodeId, copy: &CopyArgs) -> Result<u64>;
    ioctl(node: NodeId, handle: FileHandle, command: u32, data: &mut [u8], input_length: usize) -> Result<(i32, usize)>;
    poll(node: NodeId, handle: FileHandle, events: u32) -> Result<u32>;
    bmap(node: NodeId, block: u64, block_bytes: u32) -> Result<u64>;
}

/// One that is not would answer with its default.
#[test]
fn every_method_of_a_file_system_is_handed_on() {
    let text = include_str!("../../../core/src/file_system.rs");
    let methods = text.lines().filter_map(|line| {
        let name = line.strip_prefix("    fn ")?;
        name.split(['(', '<']).next()
    });
    let own = include_str!("slowed.rs");
    let mut count = 0;
    for method in methods {
        count += 1;
        let by_hand = own.contains(&format!("            fn {method}(&self"));
        assert!(METHODS.contains(&method) || by_hand, "{method}");
    }
    assert!(count > 40, "{count}");
}
