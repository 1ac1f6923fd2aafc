//! The unsafe code of the tests, fenced: what `rustix` has no safe call for.
//!
//! * [`clock`]: `clock_gettime`, which `rustix` has not everywhere.
//! * [`inject`]: `ptrace`. A thread of another process makes a system call.
//! * [`ioctl`]: `ioctl` with any command.
//! * [`lease`]: `fcntl` with a number.
//! * [`mapping`]: `mmap`. A map lives as long as its value; bytes are copied in and out and never
//!   borrowed, because others change the file under the map.
//! * [`record_lock`]: `fcntl` with a `struct flock`, which the kernel only reads and writes during
//!   the call.
//! * [`seccomp`]: system calls that fail as on a kernel that lacks them.
//! * [`truncate`]: `truncate` by path.
//! * [`umask`]: a umask and working directory of the thread's own, so that cases run side by side.
//! * [`interrupt`]: a signal handler that does nothing, so that a blocking call ends with EINTR.

pub mod clock;
pub mod inject;
pub mod interrupt;
pub mod ioctl;
pub mod lease;
pub mod mapping;
pub mod record_lock;
pub mod seccomp;
pub mod truncate;
pub mod umask;
