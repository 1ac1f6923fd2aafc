//! The subject of a decision: a file by one of its names, and a caller.

use super::HEAD_BYTES;
use rustix::fs::FileType;

/// Attributes that can change while a file keeps its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Owner, as on the host.
    pub uid: u32,
    /// Group, as on the host.
    pub gid: u32,
    /// `st_mode`; its type is ignored.
    pub mode: u32,
    /// Bytes.
    pub size: u64,
}

/// Reads attributes and content of a file, only if a rule asks for them, and at most once for each
/// decision.
pub trait AttributeSource {
    /// Its attributes now, or the future ones of a file that is about to be created. `None` if they are not
    /// available.
    fn attributes(&self) -> Option<Attributes>;

    /// Its first bytes, and how many; fewer than fit only at the end of the file. `None` if they are not
    /// available; 0 for a file that is about to be created. For regular files only.
    fn head(&self, buffer: &mut [u8; HEAD_BYTES]) -> Option<usize>;
}

/// A file of which nothing but its name is known.
#[derive(Clone, Copy, Debug)]
pub struct Unknown;

impl AttributeSource for Unknown {
    fn attributes(&self) -> Option<Attributes> {
        None
    }

    fn head(&self, _: &mut [u8; HEAD_BYTES]) -> Option<usize> {
        None
    }
}

/// A file by one of its names.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The path from the served root: components separated by `/`, without a leading one; empty for the
    /// root. Any bytes.
    pub path: &'a [u8],
    /// The type of the file.
    pub file_type: FileType,
    /// Its attributes and first bytes.
    pub source: &'a dyn AttributeSource,
}

/// The caller.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// The user, as in the request and on the host: ids are not mapped where rules match on callers.
    pub uid: u32,
    /// The group in the request.
    pub gid: u32,
    /// The path of the caller's program; `None` if unknown. Called only if a rule asks, and at most once.
    pub executable: &'a dyn Fn() -> Option<Vec<u8>>,
}
