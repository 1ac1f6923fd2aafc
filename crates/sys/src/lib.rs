//! The system calls that a FUSE server needs and that `rustix` does not offer.
//!
//! All unsafe code of Thrufs that makes system calls is here: every module is a thin, safe wrapper, and
//! the rest of the project forbids `unsafe`. Where `rustix` has a safe call, callers use it (statx with
//! every field and mask bit, `chownat` and `utimensat` with `EMPTY_PATH`, `preadv2`/`pwritev2`, resource
//! limits, pidfds, CPU affinity, the mount API).
//!
//! Conventions: errors are [`rustix::io::Errno`], descriptors are borrowed, paths are [`CStr`]s, and nothing
//! allocates on a request's path. A call that the kernel lacks is remembered once per process, in an atomic,
//! and replaced by the older call from then on.
//!
//! # Safety
//! Three invariants hold everywhere. A pointer given to the kernel comes from a reference that lives
//! across the call, with the length of its target. A descriptor comes from a `BorrowedFd`, so it is open
//! during the call; one that the kernel returns is owned exactly once. Credentials, masks and limits change
//! what calls may do, never what memory means.
//!
//! [`CStr`]: std::ffi::CStr

#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    target_endian = "little"
)))]
compile_error!("thrufs-sys knows the system calls of 64-bit little-endian Linux only");

pub mod apart;
pub mod attr;
pub mod buffer;
pub mod cache;
pub mod clock;
pub mod closing;
pub mod cred;
pub mod dir;
pub mod fanotify;
pub mod fd_passing;
pub mod fuse_dev;
pub mod fuse_ring;
pub mod handle;
pub mod heap;
pub mod inherited;
pub mod ioctl;
pub mod lease;
pub mod lock;
pub mod mount;
pub mod proc_fd;
pub mod process;
pub mod sched;
pub mod shared_memory;
pub mod signal;
pub mod socket;

pub mod xattr;

mod io_uring;
mod raw;
#[cfg(test)]
mod test_ground;
