//! What rules are asked about: a file by one of its names, and a caller.

use super::HEAD_BYTES;
use rustix::fs::FileType;

/// What rules match on that can change while a file keeps its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Owner, as on the host.
    pub uid: u32,
    /// Group, as on the host.
    pub gid: u32,
    /// `st_mode`; its type is not looked at.
    pub mode: u32,
    /// Bytes.
    pub size: u64,
}

/// What can be found out about a file. Only what a rule asks for is, and at most once for each
/// question.
pub trait AttributeSource {
    /// Its attributes as they are now, or as they will be for a file that is about to be made.
    /// `None` when they cannot be had.
    fn attributes(&self) -> Option<Attributes>;

    /// Its first bytes, and how many; fewer than there is room for at its end alone. `None` when
    /// they cannot be had; 0 for a file that is about to be made. Asked of regular files alone.
    fn head(&self, buffer: &mut [u8; HEAD_BYTES]) -> Option<usize>;
}

/// A file by one of its names.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The name from the served root: components with `/` between them, none before them; empty
    /// for the root. Any bytes.
    pub path: &'a [u8],
    /// What kind of file.
    pub file_type: FileType,
    /// The rest.
    pub source: &'a dyn AttributeSource,
}

/// Who asks.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// The user, as in the request (and on the host: ids are not mapped where rules match on
    /// callers).
    pub uid: u32,
    /// The one group that is in the request.
    pub gid: u32,
    /// The path of the program that the caller runs; `None` when it cannot be found out. Called
    /// only when a rule asks, and at most once.
    pub executable: &'a dyn Fn() -> Option<Vec<u8>>,
}
