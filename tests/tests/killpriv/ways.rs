//! The data paths of files.

use thrufs_tests::transport::Transport;

/// A mount whose files all take one data path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// The kernel uses backing files.
    Passthrough,
    /// The same, with io_uring for all other requests.
    PassthroughByRing,
    /// Through the kernel's page cache, written through to the server.
    Cached,
    /// The same over io_uring.
    CachedByRing,
    /// Every read and write goes to the server.
    Direct,
    /// The same over io_uring.
    DirectByRing,
    /// Through the kernel's page cache, written back later.
    Writeback,
}

impl Way {
    pub const ALL: &[Way] = &[
        Way::Passthrough,
        Way::PassthroughByRing,
        Way::Cached,
        Way::CachedByRing,
        Way::Direct,
        Way::DirectByRing,
        Way::Writeback,
    ];

    pub fn transport(self) -> Transport {
        match self {
            Way::PassthroughByRing | Way::CachedByRing | Way::DirectByRing => Transport::Uring,
            Way::Passthrough | Way::Cached | Way::Direct | Way::Writeback => Transport::Dev,
        }
    }

    /// Mount options. ACLs are served, since setting one is among the operations. Where names and
    /// attributes are cached, they never expire: so that the kernel does not learn a change by chance.
    pub fn options(self) -> String {
        const LONG: &str = "attr_timeout=1000,entry_timeout=1000";
        let way = match self {
            Way::Passthrough | Way::PassthroughByRing => format!("passthrough,{LONG}"),
            Way::Cached | Way::CachedByRing => format!("nopassthrough,{LONG}"),
            Way::Direct | Way::DirectByRing => "nopassthrough,cache=never".to_owned(),
            Way::Writeback => format!("writeback,{LONG}"),
        };
        self.transport().with(&format!("acl,{way}"))
    }
}
