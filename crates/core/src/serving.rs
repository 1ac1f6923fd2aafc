//! What serving threads share, for transports here and in other crates: their start, their CPUs, the
//! stall monitor, the pool for requests that sleep, and the end of their session. It knows no transport.

mod blocked_counts;
mod blocking_pool;
pub(crate) mod config;
pub(crate) mod control;
pub(crate) mod journal;
mod live_count;
mod pairing;
pub(crate) mod scheduling;
mod stall_monitor;
mod threads;

pub use blocked_counts::BlockingLimits;
pub(crate) use blocked_counts::{BlockedCounts, count_refused};
pub use blocking_pool::{BlockingJob, BlockingPool};
pub(crate) use config::SessionConfig;
pub(crate) use control::{Control, End};
pub use live_count::{LiveCount, LiveGuard};
pub use pairing::{Pairing, Sample};
pub use scheduling::{allowed_cpus, bind, cpu_in_stat, move_to, release, times_in_schedstat};
pub use stall_monitor::{LOOK_INTERVAL, Monitor, MonitorWaker, start_monitor};
pub(crate) use threads::confine_signals;
pub use threads::{OnPanic, ServingThread, ServingThreads};
