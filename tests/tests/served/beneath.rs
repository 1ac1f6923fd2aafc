//! File systems mounted beneath a served directory for the time of a test. No program is started for that:
//! until exec, it would hold every descriptor of this process, and with them removed files whose end other
//! tests wait for.

use super::{Served, Setup, serve_in};
use rustix::mount::MountFlags;
use std::ffi::CString;
use thrufs_tests::prelude::*;

pub fn tmpfs(at: &Path) -> Detach<PathBuf> {
    Detach::tmpfs(at.to_owned())
}

/// The directories of an overlay, on a tmpfs.
pub fn layers(base: &Path) -> Detach<PathBuf> {
    let layers = tmpfs(base);
    for name in ["below", "above", "work"] {
        fs::create_dir(base.join(name)).unwrap();
    }
    layers
}

/// An overlay of the [`layers`] in `base`. Its files have no handles by default; with `nfs_export`, handles
/// that do not show the inode's number.
pub fn overlay(base: &Path, at: &Path, more: &str) -> Detach<PathBuf> {
    let base = base.display();
    let data = format!("lowerdir={base}/below,upperdir={base}/above,workdir={base}/work{more}");
    let (data, flags) = (CString::new(data).unwrap(), MountFlags::empty());
    rustix::mount::mount("thrufs-test", at, "overlay", flags, &*data).unwrap();
    Detach(at.to_owned())
}

/// Serves an overlay with its defaults: without file handles.
pub fn on_overlay(setup: impl Into<Setup>, test: impl FnOnce(&Served)) {
    skip_if!(!is_root());
    let (directory, base) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let layers = layers(base.path());
    let overlay = overlay(base.path(), directory.path(), "");
    let served = serve_in(directory, setup);
    test(&served);
    drop((served.client, overlay, layers));
}
