//! File systems mounted beneath a served directory for the time of a test. No program is started for that:
//! until exec, it would hold every descriptor of this process, and with them removed files whose end other
//! tests wait for.

use super::{Served, is_root, serve_in};
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::path::{Path, PathBuf};
use thrufs_hostdir::Config;

/// A mount point, detached on drop.
pub struct Beneath(PathBuf);

impl Drop for Beneath {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

pub fn tmpfs(at: &Path) -> Beneath {
    let mounted = rustix::mount::mount("thrufs-test", at, "tmpfs", MountFlags::empty(), None);
    mounted.unwrap();
    Beneath(at.to_owned())
}

/// The directories of an overlay, on a tmpfs.
pub fn layers(base: &Path) -> Beneath {
    let layers = tmpfs(base);
    for name in ["below", "above", "work"] {
        std::fs::create_dir(base.join(name)).unwrap();
    }
    layers
}

/// An overlay of the [`layers`] in `base`. Its files have no handles by default; with `nfs_export`, handles
/// that do not show the inode's number.
pub fn overlay(base: &Path, at: &Path, more: &str) -> Beneath {
    let base = base.display();
    let data = format!("lowerdir={base}/below,upperdir={base}/above,workdir={base}/work{more}");
    let (data, flags) = (CString::new(data).unwrap(), MountFlags::empty());
    rustix::mount::mount("thrufs-test", at, "overlay", flags, &*data).unwrap();
    Beneath(at.to_owned())
}

/// Serves an overlay with its defaults: without file handles.
pub fn on_overlay(config: Config, test: impl FnOnce(&Served)) {
    if !is_root() {
        return;
    }
    let (directory, base) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let layers = layers(base.path());
    let overlay = overlay(base.path(), directory.path(), "");
    let served = serve_in(directory, config);
    test(&served);
    drop((served.client, overlay, layers));
}
