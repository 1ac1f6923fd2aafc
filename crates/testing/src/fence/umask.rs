//! A umask per thread.
#![allow(unsafe_code)]

use rustix::thread::UnshareFlags;

/// Gives this thread, and those it starts later, an umask and working directory separate from the process's, so
/// that a case can set them while others run.
pub fn private_umask() -> rustix::io::Result<()> {
    // SAFETY: only `CLONE_FILES` can make descriptors of other threads disappear; this is `CLONE_FS`.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }
}
