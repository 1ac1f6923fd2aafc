//! The tests: cargo's own, then the real programs on a real mount.

use crate::mounts;
use crate::real;
use crate::step::{Failure, Step};
use crate::tools;

/// Installs what is missing and runs everything.
pub(crate) fn run() -> Result<(), Failure> {
    tools::set_up()?;
    run_prepared()
}

/// The same on a machine that is set up already.
pub(crate) fn run_prepared() -> Result<(), Failure> {
    let before = mounts::fuse_mounts()?;
    Step::cargo()
        .args(["test", "--workspace", "--locked", "--no-fail-fast"])
        .run()?;
    mounts::nothing_left(&before)?;
    real::run(&[])?;
    mounts::nothing_left(&before)
}
