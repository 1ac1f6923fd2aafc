//! The unsafe code of the cases, fenced: what `rustix` has no safe call for.
//!
//! * `clock`: `clock_gettime`, which `rustix` has not everywhere.
//! * `interrupt`: a signal handler that does nothing, so that a blocking call ends with EINTR.
//! * [`mapping`]: `mmap`. A map lives as long as its value; bytes are copied in and out and never
//!   borrowed, because others change the file under the map.
//! * [`record_lock`]: `fcntl` with a `struct flock`, which the kernel only reads and writes during
//!   the call.
//! * [`truncate`]: `truncate` by path.
//! * [`umask`]: a umask and working directory of the thread's own, so that cases run side by side.

pub(crate) mod clock;
pub(crate) mod interrupt;
pub mod mapping;
pub mod record_lock;
pub mod truncate;
pub mod umask;
