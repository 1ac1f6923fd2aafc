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

/// Where programs from crates.io are installed; `THRUFS_TOOLS` moves it, to be shared by clones.
pub(crate) fn tools() -> PathBuf {
    match std::env::var_os("THRUFS_TOOLS") {
        Some(path) => root().join(path),
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
