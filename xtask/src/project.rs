//! Where things are.

use std::path::{Path, PathBuf};

/// The top of the repository.
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

/// Where tools and kernels are kept that clones share, each under a name with its version: `THRUFS_TOOLS`,
/// else `thrufs` in the user's cache directory.
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

/// Where servers that are compared with are built; whoever has built them elsewhere says so, by `PEERS`.
pub(crate) fn peers() -> PathBuf {
    match std::env::var_os("PEERS") {
        Some(path) => root().join(path),
        None => target().join("peers"),
    }
}

/// Manifests of the crates outside the workspace that are there.
pub(crate) fn outside_manifests() -> Vec<PathBuf> {
    ["fuzz/Cargo.toml"]
        .iter()
        .map(|path| root().join(path))
        .filter(|path| path.exists())
        .collect()
}
