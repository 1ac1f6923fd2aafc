//! The file that every server has.

use std::time::Duration;

pub const LATENCY: Duration = Duration::from_millis(5);
pub const VALID: Duration = Duration::from_secs(3600);
pub const NAME: &str = "file";
pub const BYTES: u64 = 1 << 30;
pub const DIRECT_IO: u32 = 1;
