//! Clean-up at the end of a scope, also when a test fails.

use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Returns from a test that cannot run here, which the condition has reported.
#[macro_export]
macro_rules! skip_if {
    ($reported:expr) => {
        if $reported {
            return;
        }
    };
}

/// A mount point, detached in the end.
pub struct Detach<P: AsRef<Path>>(pub P);

impl<P: AsRef<Path>> Detach<P> {
    /// Mounts a tmpfs there.
    #[track_caller]
    pub fn tmpfs(at: P) -> Self {
        let (flags, none) = (MountFlags::empty(), None::<&CStr>);
        rustix::mount::mount("thrufs-test", at.as_ref(), "tmpfs", flags, none).unwrap();
        Self(at)
    }
}

/// Where a file system of the kernel is: `usual`, or where it is mounted for as long as the guard lives, if
/// nothing is at `known` there.
pub fn of_kernel(
    kind: &str,
    usual: &Path,
    known: &str,
) -> std::io::Result<(PathBuf, Option<Detach<TempDir>>)> {
    if usual.join(known).is_dir() {
        return Ok((usual.to_owned(), None));
    }
    let place = TempDir::with_prefix("thrufs-test-")?;
    let (flags, none) = (MountFlags::empty(), None::<&CStr>);
    rustix::mount::mount("thrufs-test", place.path(), kind, flags, none)?;
    Ok((place.path().to_owned(), Some(Detach(place))))
}

impl<P: AsRef<Path>> Drop for Detach<P> {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.as_ref(), UnmountFlags::DETACH);
    }
}

/// Whether the test runs as root; otherwise its skip is reported.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        thrufs_test_report::skipped("needs root");
    }
    root
}
