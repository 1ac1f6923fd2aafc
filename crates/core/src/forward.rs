//! File systems behind a pointer: each method is that of the file system itself.

use crate::attributes::{
    Attributes, CopyArgs, Entry, ExtendedAttributes, FileSystemStatistics, LockArgs, NewNode,
    OpenArgs, Opened, ReadArgs, ReleaseArgs, SetAttr, WriteArgs,
};
use crate::backing::Services;
use crate::context::Context;
use crate::data::{ReadAnswer, ReadReply, WriteSource};
use crate::directory::DirectorySink;
use crate::errno::Result;
use crate::features::{Features, Negotiation};
use crate::file_system::FileSystem;
use crate::mount::MountOptions;
use crate::window::{MapArgs, MappedFile};
use std::ffi::CStr;
use std::io;
use std::sync::Arc;
use thrufs_abi::{FileHandle, LockOwner, Name, NodeId, Unique};

macro_rules! forward {
    ($($pointer:ty)*) => { $(
        impl<F: FileSystem + ?Sized> FileSystem for $pointer {
            methods! {
                fn may_be_mounted(options: &MountOptions) -> std::result::Result<(), &'static str>;
                fn init(negotiation: &mut Negotiation) -> Result<()>;
                fn started(features: &Features, services: Services) -> ();
                fn destroy() -> ();
                fn save(sink: &mut dyn io::Write) -> io::Result<()>;
                fn restore(source: &mut dyn io::Read) -> io::Result<()>;
                fn recover() -> io::Result<()>;
                fn lookup(c: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry>;
                fn forget(node: NodeId, count: u64) -> ();
                fn getattr(c: &Context<'_>, node: NodeId, handle: Option<FileHandle>) -> Result<Attributes>;
                fn statx(
                    c: &Context<'_>, node: NodeId, handle: Option<FileHandle>, flags: u32, mask: u32
                ) -> Result<ExtendedAttributes>;
                fn setattr(c: &Context<'_>, node: NodeId, set: &SetAttr) -> Result<Attributes>;
                fn readlink(c: &Context<'_>, node: NodeId, buffer: &mut [u8]) -> Result<usize>;
                fn symlink(c: &Context<'_>, parent: NodeId, name: Name<'_>, target: &CStr) -> Result<Entry>;
                fn mknod(c: &Context<'_>, parent: NodeId, name: Name<'_>, new: &NewNode) -> Result<Entry>;
                fn mkdir(c: &Context<'_>, parent: NodeId, name: Name<'_>, new: &NewNode) -> Result<Entry>;
                fn unlink(c: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<()>;
                fn rmdir(c: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<()>;
                fn rename(
                    c: &Context<'_>, parent: NodeId, name: Name<'_>, to: NodeId, new: Name<'_>, flags: u32
                ) -> Result<()>;
                fn link(c: &Context<'_>, node: NodeId, parent: NodeId, name: Name<'_>) -> Result<Entry>;
                fn open(c: &Context<'_>, node: NodeId, args: &OpenArgs) -> Result<Opened>;
                fn create(
                    c: &Context<'_>, parent: NodeId, name: Name<'_>, new: &NewNode, args: &OpenArgs
                ) -> Result<(Entry, Opened)>;
                fn tmpfile(
                    c: &Context<'_>, parent: NodeId, new: &NewNode, args: &OpenArgs
                ) -> Result<(Entry, Opened)>;
                fn read(
                    c: &Context<'_>, node: NodeId, args: &ReadArgs, reply: ReadReply<'_>
                ) -> Result<ReadAnswer>;
                fn write(c: &Context<'_>, node: NodeId, args: &WriteArgs, data: WriteSource<'_>) -> Result<usize>;
                fn flush(c: &Context<'_>, node: NodeId, handle: FileHandle, owner: LockOwner) -> Result<()>;
                fn release(c: &Context<'_>, node: NodeId, args: &ReleaseArgs) -> ();
                fn fsync(c: &Context<'_>, node: NodeId, handle: FileHandle, data_only: bool) -> Result<()>;
                fn opendir(c: &Context<'_>, node: NodeId, args: &OpenArgs) -> Result<Opened>;
                fn readdir(
                    c: &Context<'_>, node: NodeId, handle: FileHandle, offset: u64, sink: &mut DirectorySink<'_>
                ) -> Result<()>;
                fn releasedir(c: &Context<'_>, node: NodeId, args: &ReleaseArgs) -> ();
                fn fsyncdir(c: &Context<'_>, node: NodeId, handle: FileHandle, data_only: bool) -> Result<()>;
                fn statfs(c: &Context<'_>, node: NodeId) -> Result<FileSystemStatistics>;
                fn syncfs(c: &Context<'_>, node: NodeId) -> Result<()>;
                fn setxattr(
                    c: &Context<'_>, node: NodeId, name: &CStr, value: &[u8], flags: u32, clear_set_group_id: bool
                ) -> Result<()>;
                fn getxattr(c: &Context<'_>, node: NodeId, name: &CStr, buffer: &mut [u8]) -> Result<usize>;
                fn listxattr(c: &Context<'_>, node: NodeId, buffer: &mut [u8]) -> Result<usize>;
                fn removexattr(c: &Context<'_>, node: NodeId, name: &CStr) -> Result<()>;
                fn access(c: &Context<'_>, node: NodeId, mask: u32) -> Result<()>;
                fn getlk(c: &Context<'_>, node: NodeId, lock: &LockArgs) -> Result<Option<LockArgs>>;
                fn setlk(c: &Context<'_>, node: NodeId, lock: &LockArgs, wait: bool) -> Result<()>;
                fn fallocate(
                    c: &Context<'_>, node: NodeId, handle: FileHandle, offset: u64, length: u64, mode: u32
                ) -> Result<()>;
                fn lseek(
                    c: &Context<'_>, node: NodeId, handle: FileHandle, offset: u64, whence: u32
                ) -> Result<u64>;
                fn copy_file_range(c: &Context<'_>, node: NodeId, copy: &CopyArgs) -> Result<u64>;
                fn map(c: &Context<'_>, node: NodeId, args: &MapArgs) -> Result<MappedFile>;
                fn ioctl(
                    c: &Context<'_>, node: NodeId, handle: FileHandle, command: u32, data: &mut [u8], input: usize
                ) -> Result<(i32, usize)>;
                fn poll(c: &Context<'_>, node: NodeId, handle: FileHandle, events: u32) -> Result<u32>;
                fn bmap(c: &Context<'_>, node: NodeId, block: u64, block_bytes: u32) -> Result<u64>;
                fn retrieved(node: NodeId, cookie: Unique, offset: u64, data: &[u8]) -> ();
            }
        }
    )* };
}

macro_rules! methods {
    ($(fn $method:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => { $(
        fn $method(&self, $($argument: $type),*) -> $result {
            (**self).$method($($argument),*)
        }
    )* };
}

forward! { Arc<F> Box<F> }

#[cfg(test)]
mod tests {
    /// The names of the methods that a source has.
    fn methods(source: &str) -> Vec<&str> {
        let lines = source.lines().map(str::trim_start);
        let names = lines.filter_map(|line| line.strip_prefix("fn ")?.split_once('('));
        names.map(|(name, _)| name).collect()
    }

    /// One that is left out would be the trait's default.
    #[test]
    fn every_method_is_forwarded() {
        let here = include_str!("forward.rs")
            .split("cfg(test)")
            .next()
            .unwrap();
        let forwarded = methods(here);
        // `fn $method` of the macro.
        let forwarded = forwarded.into_iter().filter(|name| !name.starts_with('$'));
        let of_the_trait = methods(include_str!("file_system.rs"));
        assert_eq!(forwarded.collect::<Vec<_>>(), of_the_trait);
        assert!(of_the_trait.contains(&"lookup"));
    }
}
