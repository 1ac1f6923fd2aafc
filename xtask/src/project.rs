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

/// The files of the project whose names are wanted, in order.
pub(crate) fn tree(is_wanted: &dyn Fn(&str) -> bool) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    let mut directories = vec![root().to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).map_err(Failure::of(&directory))? {
            let path = entry.map_err(Failure::of(&directory))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_build = name == "target" && directory.join("Cargo.toml").exists();
            if path.is_dir() && !is_build && !name.starts_with('.') {
                directories.push(path);
            } else if is_wanted(&name) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The names of a directory's files with this extension, without it, in order.
pub(crate) fn names(directory: impl AsRef<Path>, extension: &str) -> Result<Vec<String>, Failure> {
    let directory = root().join(directory);
    let mut found = Vec::new();
    for entry in fs::read_dir(&directory).map_err(Failure::of(&directory))? {
        let name = entry.map_err(Failure::of(&directory))?.file_name();
        let name = name.to_string_lossy();
        found.extend(name.strip_suffix(extension).map(str::to_owned));
    }
    found.sort();
    Ok(found)
}
