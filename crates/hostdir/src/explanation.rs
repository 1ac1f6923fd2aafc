//! How one file of a served directory is served, for people and programs.

use crate::config::CacheMode;
use serde::{Deserialize, Serialize};
use thrufs_policy::DataPath;

/// How one file is served at one moment.
///
/// Its JSON (`serde`) is the answer of a mount's control socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The type of the file.
    pub kind: FileKind,
    /// The inode number that clients see.
    pub ino: u64,
    /// The data path: now if the file is open, else at its next open. `None` for a file without data that
    /// are read or written through the server.
    #[serde(with = "data_path_or_none")]
    pub data_path: Option<DataPath>,
    /// Why it has this data path.
    pub reason: String,
    /// The rule that decided it, if any.
    #[serde(default)]
    pub rule: Option<String>,
    /// The kernel's number of the backing file, under passthrough.
    #[serde(default)]
    pub backing: Option<u32>,
    /// How often it is open.
    pub opens: Opens,
    /// Whether the mount has locked it as a whole, for programs above that may map it.
    #[serde(default)]
    pub locked_by_mount: bool,
    /// What the policy forbids or records, by this name and for all callers, for people.
    #[serde(default)]
    pub restrictions: Vec<String>,
    /// Whether a program on the host has it open for writing, so that the next open for reading and writing
    /// cannot be mapped shared.
    #[serde(default)]
    pub maps_refused: bool,
    /// Whether a guest maps it, for a regular file of a share with a DAX window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<WindowUse>,
    /// How long the kernel may answer from its cache.
    pub cache: CacheState,
    /// The inode that the kernel has looked up; `None` if it never did, or has forgotten it.
    pub node: Option<NodeState>,
    /// The lower mount that it is on.
    pub lower: LowerState,
}

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "named by what they are (inode(7))")]
pub enum FileKind {
    Regular,
    Directory,
    SymbolicLink,
    Fifo,
    Socket,
    CharacterDevice,
    BlockDevice,
    Unknown,
}

impl FileKind {
    pub(crate) fn of_mode(mode: u32) -> FileKind {
        match mode & libc::S_IFMT {
            libc::S_IFREG => FileKind::Regular,
            libc::S_IFDIR => FileKind::Directory,
            libc::S_IFLNK => FileKind::SymbolicLink,
            libc::S_IFIFO => FileKind::Fifo,
            libc::S_IFSOCK => FileKind::Socket,
            libc::S_IFCHR => FileKind::CharacterDevice,
            libc::S_IFBLK => FileKind::BlockDevice,
            _ => FileKind::Unknown,
        }
    }
}

/// How often a file is open through the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opens {
    /// All opens.
    pub total: usize,
    /// Those for writing.
    pub writable: usize,
    /// Not counted: the kernel opens files by itself.
    #[serde(default)]
    pub by_kernel: bool,
}

/// Whether a guest maps a file from the host's page cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowUse {
    /// Whether the guest was told to.
    pub mapped: bool,
    /// Ranges of the window that it has mapped from the file, now.
    pub ranges: usize,
    /// Why it maps it or not, for people.
    pub reason: String,
}

/// How long the kernel may answer from its cache. For an inode that it has not looked up: once it has.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheState {
    /// `never`, `metadata`, `auto` or `always`.
    pub mode: CacheMode,
    /// Whether the kernel is told of changes beneath.
    #[serde(default)]
    pub followed: bool,
    /// Written data is cached too, and written back later.
    pub writeback: bool,
    /// How long its name is valid, in seconds.
    pub entry_timeout_s: f64,
    /// How long its attributes are valid, in seconds.
    pub attr_timeout_s: f64,
    /// How long the kernel caches that a name does not exist, in seconds.
    pub negative_timeout_s: f64,
    /// Whether the data version that the kernel has cached is known, so that its pages stay valid at the
    /// next open of the unchanged file.
    pub data_version_remembered: bool,
}

/// An inode in the server's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    /// Its node id.
    pub id: u64,
    /// Lookups that the kernel has not taken back (FORGET); 0 for a dormant one.
    pub lookups: u64,
    /// Whether the server holds a descriptor of it between requests.
    pub descriptor_held: bool,
    /// Forgotten by the kernel, and kept for file handles of clients (`export`).
    pub dormant: bool,
}

/// A lower mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LowerState {
    /// The name of its file system, if known.
    pub file_system: Option<String>,
    /// The magic number of its file system (`statfs(2)`).
    pub magic: u64,
    /// Whether inodes are found again by file handle; if not, by name.
    pub handles: bool,
    /// Whether another machine or process serves it.
    pub remote: bool,
    /// Whether it is in memory.
    pub memory: bool,
}

/// The name of a data path, or `none`.
mod data_path_or_none {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;
    use thrufs_policy::DataPath;

    const NONE: &str = "none";

    pub(super) fn serialize<S: Serializer>(
        path: &Option<DataPath>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(path.map_or(NONE, DataPath::name))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<DataPath>, D::Error> {
        let name = String::deserialize(deserializer)?;
        match DataPath::named(&name) {
            None if name != NONE => Err(D::Error::custom("this is no data path")),
            path => Ok(path),
        }
    }
}
