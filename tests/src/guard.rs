//! Clean-up at the end of a scope, also when a test fails.

use crate::connection::Connection;
use rustix::mount::{MountFlags, UnmountFlags};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Returns from a test that cannot run here, which the condition has reported.
#[macro_export]
macro_rules! skip_if {
    ($reported:expr) => {
        if $reported {
            return;
        }
    };
}

/// Stops the threads that look at the flag.
pub struct StopAll<'a>(pub &'a AtomicBool);

impl Drop for StopAll<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Aborts the connection when the test fails, so that processes stuck in it can be killed.
pub struct AbortOnPanic(pub Connection);

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.abort();
        }
    }
}

/// A mount point, detached in the end.
pub struct Detach<P: AsRef<Path>>(pub P);

impl<P: AsRef<Path>> Detach<P> {
    /// Mounts a tmpfs there.
    #[track_caller]
    pub fn tmpfs(at: P) -> Self {
        let data = None::<&std::ffi::CStr>;
        let mounted = rustix::mount::mount(
            "thrufs-test",
            at.as_ref(),
            "tmpfs",
            MountFlags::empty(),
            data,
        );
        mounted.unwrap();
        Self(at)
    }
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
