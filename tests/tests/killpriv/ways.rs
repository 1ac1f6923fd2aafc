//! By which way the data of the files go.

use thrufs_tests::transport::Transport;

/// A mount whose files all go one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// The kernel uses files beneath by itself.
    Passthrough,
    /// The same, where everything else comes by io_uring.
    PassthroughByRing,
    /// Through the kernel's page cache, written through to the server.
    Cached,
    /// The same over io_uring.
    CachedByRing,
    /// Every read and write comes to the server.
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
    /// attributes are cached, they are believed all the time: so that what the kernel does not know,
    /// it does not learn by chance.
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
