//! The data paths of files.

/// A mount whose files all take one data path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// The kernel uses backing files.
    Passthrough,
    /// Through the kernel's page cache, written through to the server.
    Cached,
    /// Every read and write goes to the server.
    Direct,
    /// Through the kernel's page cache, written back later.
    Writeback,
}

impl Way {
    pub const ALL: &[Way] = &[Way::Passthrough, Way::Cached, Way::Direct, Way::Writeback];

    /// Mount options. ACLs are served, since setting one is among the operations. Where names and
    /// attributes are cached, they never expire: so that the kernel does not learn a change by chance.
    pub fn options(self) -> String {
        let way = match self {
            Way::Passthrough => "passthrough",
            Way::Cached => "nopassthrough",
            Way::Direct => return "acl,nopassthrough,cache=never".to_owned(),
            Way::Writeback => "writeback",
        };
        format!("acl,{way},attr_timeout=1000,entry_timeout=1000")
    }
}
