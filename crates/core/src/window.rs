//! The DAX window of virtio-fs: a range of the guest's address space into which the machine monitor maps parts
//! of files. A [`FileSystem`](crate::FileSystem) says which file; the transport has it mapped.

use std::fmt;
use std::os::fd::OwnedFd;
use std::time::Instant;
use thrufs_abi::{NodeId, Opcode, Unique};

/// Log2 of the alignment of everything that is mapped, for INIT (`map_alignment`): pages of 4 KiB.
pub(crate) const MAP_ALIGNMENT_LOG2: u16 = 12;

/// A SETUPMAPPING: a part of a file for the window. The kernel maps ranges of 2 MiB, also beyond the end of the
/// file, and repeats a range to write where it has only read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapArgs {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Whether the guest will write to it.
    pub write: bool,
}

/// The file to map, opened for this.
#[derive(Debug)]
pub struct MappedFile {
    /// Open for reading, and for writing if `writable`. Sent to the machine monitor.
    pub file: OwnedFd,
    /// Whether the guest may write.
    pub writable: bool,
}

/// A change of the window that a request asks for.
#[derive(Debug)]
pub enum WindowChange {
    /// Map part of a file.
    Map {
        /// Its node.
        node: NodeId,
        /// The file.
        file: MappedFile,
        /// The part.
        args: MapArgs,
        /// Where, in bytes from the start of the window.
        at: u64,
    },
    /// Unmap these ranges: start in the window and length, in bytes.
    Unmap(Vec<(u64, u64)>),
}

/// What the window's mappings cover, and what the machine monitor can map.
pub trait WindowCoverage: fmt::Debug + Send + Sync {
    /// Whether it maps beyond the end of a file. If not, the guest reads zeroes behind the last whole page, and in
    /// what is added to the file while it is mapped.
    fn maps_beyond_end(&self) -> bool;

    /// Whether it maps a file that is open for reading.
    fn maps_read_only(&self) -> bool;

    /// How many parts of the file the guest has mapped.
    fn mappings(&self, node: NodeId) -> usize;

    /// The largest size of the file that the guest may be told: up to which it reads the file's bytes by the
    /// mappings that it has now. `None` for any.
    fn covered(&self, node: NodeId) -> Option<u64>;

    /// Unmaps what the guest has mapped of the file, without waiting. The guest does not notice, and reads what its
    /// machine monitor shows where nothing is mapped.
    fn withdraw(&self, node: NodeId);
}

/// The reply to a request that changes the window, and the change.
#[derive(Debug)]
pub struct WindowReply {
    pub(crate) unique: Unique,
    pub(crate) opcode: Opcode,
    pub(crate) started: Instant,
    pub(crate) change: WindowChange,
}

impl WindowReply {
    /// The change.
    pub fn change(&self) -> &WindowChange {
        &self.change
    }
}
