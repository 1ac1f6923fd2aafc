//! The methods with a default, whose result is the answer: one table, of which the trait and its adapter are made.

/// Calls the macro `$then` with a row for each method. `argument: type = type` is lent by the request as the second;
/// `; _` is a buffer behind the arguments, for what is a result here. Of `-> type = type`, the second is the result
/// of [`thrufs::FileSystem`]'s method. The default is `ENOSYS`, or what is in braces.
macro_rules! methods {
    ($then:ident) => {
        $then! {
            fn statx(node: NodeId, handle: Option<FileHandle>, flags: u32, mask: u32) -> ExtendedAttributes;
            fn setattr(node: NodeId, set: SetAttr = &SetAttr) -> Attributes;
            /// Of 4,095 bytes at most.
            fn readlink(node: NodeId; _) -> Vec<u8> = usize;
            fn symlink(parent: NodeId, name: OsString = Name<'_>, target: OsString = &CStr) -> Entry;
            fn mknod(parent: NodeId, name: OsString = Name<'_>, new: NewNode = &NewNode) -> Entry;
            fn mkdir(parent: NodeId, name: OsString = Name<'_>, new: NewNode = &NewNode) -> Entry;
            fn unlink(parent: NodeId, name: OsString = Name<'_>) -> ();
            fn rmdir(parent: NodeId, name: OsString = Name<'_>) -> ();
            fn rename(
                parent: NodeId,
                name: OsString = Name<'_>,
                new_parent: NodeId,
                new_name: OsString = Name<'_>,
                flags: u32
            ) -> ();
            fn link(node: NodeId, new_parent: NodeId, new_name: OsString = Name<'_>) -> Entry;
            fn open(node: NodeId, args: OpenArgs = &OpenArgs) -> Opened;
            fn create(
                parent: NodeId,
                name: OsString = Name<'_>,
                new: NewNode = &NewNode,
                args: OpenArgs = &OpenArgs
            ) -> (Entry, Opened);
            fn tmpfile(parent: NodeId, new: NewNode = &NewNode, args: OpenArgs = &OpenArgs) -> (Entry, Opened);
            fn write(node: NodeId, args: WriteArgs = &WriteArgs, data: Vec<u8> = WriteSource<'_>) -> usize;
            fn flush(node: NodeId, handle: FileHandle, owner: LockOwner) -> ();
            fn fsync(node: NodeId, handle: FileHandle, data_only: bool) -> ();
            fn opendir(node: NodeId, args: OpenArgs = &OpenArgs) -> Opened;
            fn fsyncdir(node: NodeId, handle: FileHandle, data_only: bool) -> ();
            fn statfs(node: NodeId) -> FileSystemStatistics {
                Ok(FileSystemStatistics {
                    bsize: 4096,
                    frsize: 4096,
                    namelen: 255,
                    ..FileSystemStatistics::default()
                })
            };
            fn syncfs(node: NodeId) -> ();
            fn setxattr(
                node: NodeId,
                name: OsString = &CStr,
                value: Vec<u8> = &[u8],
                flags: u32,
                clear_set_group_id: bool
            ) -> ();
            /// The whole value, whatever room its caller has.
            fn getxattr(node: NodeId, name: OsString = &CStr; _) -> Vec<u8> = usize;
            /// All names, each ended by a NUL, whatever room the caller has.
            fn listxattr(node: NodeId; _) -> Vec<u8> = usize;
            fn removexattr(node: NodeId, name: OsString = &CStr) -> ();
            fn access(node: NodeId, mask: u32) -> ();
            fn getlk(node: NodeId, lock: LockArgs = &LockArgs) -> Option<LockArgs>;
            /// One that waits does so in [`Context::interruptible`].
            fn setlk(node: NodeId, lock: LockArgs = &LockArgs, wait: bool) -> ();
            fn fallocate(node: NodeId, handle: FileHandle, offset: u64, length: u64, mode: u32) -> ();
            fn lseek(node: NodeId, handle: FileHandle, offset: u64, whence: u32) -> u64;
            fn copy_file_range(node: NodeId, copy: CopyArgs = &CopyArgs) -> u64;
            /// `data` is as long as the input and as the output may be; returned is the output.
            fn ioctl(
                node: NodeId,
                handle: FileHandle,
                command: u32,
                data: Vec<u8> = &mut [u8],
                input_length: usize
            ) -> (i32, Vec<u8>) = (i32, usize);
            fn poll(node: NodeId, handle: FileHandle, events: u32) -> u32;
            fn bmap(node: NodeId, block: u64, block_bytes: u32) -> u64;
        }
    };
}

pub(crate) use methods;
