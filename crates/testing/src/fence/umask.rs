//! A umask of one's own.
#![allow(unsafe_code)]

use rustix::thread::UnshareFlags;

/// Gives this thread, and threads it starts from now on, a umask and a working directory of their
/// own, so that a case can set them while others run.
///
/// # Errors
///
/// As `unshare(2)`.
pub fn private_umask() -> rustix::io::Result<()> {
    // SAFETY: only `CLONE_FILES` can make descriptors of other threads disappear; this is `CLONE_FS`.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }
}
