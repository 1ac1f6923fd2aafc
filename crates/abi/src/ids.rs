//! The ids of the protocol, each of a type of its own.

use std::fmt;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub struct $name(pub $inner);

            impl fmt::Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    fmt::Display::fmt(&self.0, f)
                }
            }
        )*
    };
}

ids! {
    /// An inode as kernel and server name it (`nodeid`). 0 is none.
    NodeId(u64);
    /// An open file (`fh`); any value of the server.
    FileHandle(u64);
    /// A request; even, and never reused on a connection. Its INTERRUPT has the lowest bit set.
    Unique(u64);
    /// A lower file registered for passthrough.
    BackingId(i32);
    /// The owner of a lock: a process or an open file, hashed by the kernel.
    LockOwner(u64);
    /// Distinguishes inodes that have the same node id one after the other.
    Generation(u64);
}

impl NodeId {
    /// The root of every FUSE file system (`FUSE_ROOT_ID`).
    pub const ROOT: NodeId = NodeId(1);
}
