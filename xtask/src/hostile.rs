//! A hostile time, as long as one likes: `tests/tests/hostile.rs`, in the build that checks most.

use crate::step::{Failure, Step};

/// Has front ends and guests misbehave towards a share, and processes towards mounts, for so many seconds.
pub(crate) fn run(seconds: &str) -> Result<(), Failure> {
    let _: u64 = seconds
        .parse()
        .map_err(|_| Failure::new(format!("not a number of seconds: {seconds}")))?;
    Step::cargo()
        .args(["build", "--locked", "-p", "thrufs-cli"])
        .run()?;
    Step::cargo()
        .args(["test", "--locked", "-p", "thrufs-tests"])
        .args(["--test", "hostile", "--", "--nocapture", "--test-threads=3"])
        .env("THRUFS_HOSTILE_SECONDS", seconds)
        .run()
}
