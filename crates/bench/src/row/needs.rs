//! What a row takes.

/// Place on a file system, at any moment.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// Bytes at most.
    pub bytes: u64,
    /// Files and directories at most.
    pub inodes: u64,
}
