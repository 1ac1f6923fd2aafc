//! The data path of a file.

use std::fmt;

/// The data path of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DataPath {
    /// The kernel uses the lower file itself.
    Passthrough,
    /// Through the kernel's page cache, which we fill and write back.
    Cached,
    /// We serve every read and write.
    Direct,
    /// We serve reads, with metadata redacted.
    Filtered,
}

impl fmt::Display for DataPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DataPath::Passthrough => "passthrough",
            DataPath::Cached => "cached",
            DataPath::Direct => "direct",
            DataPath::Filtered => "filtered",
        })
    }
}
