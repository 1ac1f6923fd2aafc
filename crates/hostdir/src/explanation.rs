//! What a served directory tells about one of its files, for people and for the programs they use.

use serde::{Deserialize, Serialize};

/// Everything there is to be told about one file at one moment.
///
/// Its JSON (`serde`) is what the control socket of a mount answers with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// What it is.
    pub kind: FileKind,
    /// The inode number that clients see.
    pub ino: u64,
    /// How its data go between a client and the file beneath: now if it is open, else at the next
    /// open.
    pub data_path: DataPath,
    /// Why they go like that.
    pub reason: String,
    /// The rule that decided it, where one did.
    #[serde(default)]
    pub rule: Option<String>,
    /// The kernel's number for the file beneath, where data go straight to it.
    #[serde(default)]
    pub backing: Option<u32>,
    /// How often it is open.
    pub opens: Opens,
    /// For how long the kernel may answer by itself.
    pub cache: CacheState,
    /// The inode that the kernel was told of; none when nobody has looked it up, or when the kernel
    /// has forgotten it.
    pub node: Option<NodeState>,
    /// The mount beneath that it lies on.
    pub lower: LowerState,
}

/// What a file is.
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

/// How the data of a file go between a client and the file beneath.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataPath {
    /// The kernel reads and writes the file beneath itself.
    Passthrough,
    /// Through the server, and the kernel keeps what was read.
    Cached,
    /// Through the server, each time.
    Direct,
    /// Through the server, which alters them.
    Filtered,
    /// It has no data that are read or written through the server.
    None,
}

/// How often a file is open through the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opens {
    /// Altogether.
    pub total: usize,
    /// For writing, among these.
    pub writable: usize,
}

/// For how long the kernel may answer by itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheState {
    /// `never`, `auto` or `always`.
    pub mode: CacheWord,
    /// Written data are kept too, and written later.
    pub writeback: bool,
    /// How long its name is believed, in seconds.
    pub entry_timeout_s: f64,
    /// How long its attributes are believed, in seconds.
    pub attr_timeout_s: f64,
    /// How long the absence of a name is believed, in seconds.
    pub negative_timeout_s: f64,
    /// Whether it is remembered what the file was like when the kernel last kept data of it, so
    /// that these stay good at the next open if it has not changed.
    pub data_version_remembered: bool,
}

/// [`CacheMode`](crate::CacheMode), as a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "those of CacheMode")]
pub enum CacheWord {
    Never,
    Metadata,
    Auto,
    Always,
}

/// An inode that the server has in its tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    /// The number by which the kernel asks about it.
    pub id: u64,
    /// How many lookups of it the kernel has not taken back yet; 0 for one that is dormant.
    pub lookups: u64,
    /// Whether the server holds a descriptor of it between requests.
    pub descriptor_held: bool,
    /// Forgotten by the kernel, and kept for file handles of clients (`export`).
    pub dormant: bool,
}

/// A mount beneath the served tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LowerState {
    /// What its file system is called, where that is known.
    pub file_system: Option<String>,
    /// The number of its file system (`statfs(2)`).
    pub magic: u64,
    /// Inodes there are found again by file handle; if not, by name.
    pub handles: bool,
    /// Another machine or process serves it.
    pub remote: bool,
    /// It lives in memory.
    pub memory: bool,
}
