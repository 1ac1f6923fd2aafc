//! Paths of the project.

use crate::failure::Failure;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies one below the top")
}

/// Where cargo builds, as cargo itself decides it.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(path) => root().join(path),
        None => root().join("target"),
    }
}

/// Tools and kernels that clones share, each under a name with its version: `THRUFS_TOOLS`, else `thrufs`
/// in the user's cache directory.
pub(crate) fn tools() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|path| !path.is_empty());
    if let Some(path) = variable("THRUFS_TOOLS") {
        return root().join(path);
    }
    let cache = variable("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || variable("HOME").map(|home| Path::new(&home).join(".cache"));
    match cache.or_else(home) {
        Some(cache) => root().join(cache).join("thrufs"),
        None => target().join("tools"),
    }
}

/// Where peers are built; `PEERS` overrides it.
pub(crate) fn peers() -> PathBuf {
    match std::env::var_os("PEERS") {
        Some(path) => root().join(path),
        None => target().join("peers"),
    }
}

/// The files of a directory with this extension, in order.
pub(crate) fn files(directory: &Path, extension: &str) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(Failure::of(directory))? {
        let path = entry.map_err(Failure::of(directory))?.path();
        if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Their names without the extension.
pub(crate) fn names(directory: &str, extension: &str) -> Result<Vec<String>, Failure> {
    let files = files(&root().join(directory), extension)?;
    let stems = files.iter().filter_map(|path| path.file_stem());
    let names = stems.map(|stem| stem.to_string_lossy().into_owned());
    Ok(names.collect())
}
