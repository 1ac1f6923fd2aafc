//! Parses the reply to READDIR(PLUS) into entries.

use thrufs_abi::layout::EntryOut;
use thrufs_abi::reply::DirectoryEntries;

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name.
    pub name: Vec<u8>,
    /// Inode number.
    pub ino: u64,
    /// The offset of the next entry.
    pub offset: u64,
    /// `DT_*`.
    pub kind: u32,
    /// The entry of READDIRPLUS; node id 0 without one.
    pub entry: Option<EntryOut>,
}

pub(crate) fn collect(body: &[u8], plus: bool) -> Vec<Listed> {
    DirectoryEntries::new(body, plus)
        .map(|entry| Listed {
            name: entry.name.to_vec(),
            ino: entry.ino,
            offset: entry.off,
            kind: entry.kind,
            entry: entry.entry,
        })
        .collect()
}
