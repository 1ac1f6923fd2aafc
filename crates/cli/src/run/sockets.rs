//! Sockets in the file system, which a network namespace does not contain.
//!
//! Those in the tree lead nowhere: FUSE has inodes of its own. Those in directories that are empty in the sandbox are
//! not there. Of the others, what is bound when the sandbox is built is covered. What a program outside binds later, or
//! by a relative path, or in another network namespace, is not.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// The sockets outside of `tree` that are bound in this process's network namespace, by their real paths.
pub(super) fn bound_outside(tree: &Path) -> io::Result<Vec<PathBuf>> {
    let text = fs::read("/proc/thread-self/net/unix")?;
    let paths = text.split(|byte| *byte == b'\n').filter_map(path_in);
    let found = paths.filter_map(|path| fs::canonicalize(path).ok());
    let is_socket = |path: &PathBuf| fs::metadata(path).is_ok_and(|it| it.file_type().is_socket());
    Ok(found
        .filter(|it| !it.starts_with(tree) && is_socket(it))
        .collect())
}

/// The last field (proc_pid_net(5)). Names of abstract sockets begin with `@`.
fn path_in(line: &[u8]) -> Option<&Path> {
    let space = line.windows(2).position(|it| it == b" /")?;
    Some(Path::new(OsStr::from_bytes(&line[space + 1..])))
}
