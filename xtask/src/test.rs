//! The tests: cargo's own, then the real programs on a real mount, then a guest.

use crate::mounts;
use crate::real;
use crate::step::{Failure, Step};
use crate::tools;
use crate::vm_test;
use std::io::IsTerminal;

/// No program of tests may run longer, in seconds; the longest is meant to take a fifth of it. One that
/// hangs is ended with all that it has started, fails, and the others run.
const SECONDS_MAX: u32 = 1200;

/// What runs in a guest before a change goes in: half a minute of `cargo xtask vm-test`, once its kernel
/// is there.
const GUEST: [&str; 1] = ["posix"];

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
        .args(["--config", &time_limit()])
        .run()?;
    mounts::nothing_left(&before)?;
    real::run(&[])?;
    mounts::nothing_left(&before)?;
    vm_test::run(&GUEST.map(str::to_owned))?;
    mounts::nothing_left(&before)
}

/// Cargo's setting by which it runs every program of tests under a limit.
fn time_limit() -> String {
    // Where somebody sits in front of it, the programs stay where an interrupt from there reaches them.
    let group = if std::io::stdin().is_terminal() {
        "'--foreground', "
    } else {
        ""
    };
    format!(
        "target.'cfg(unix)'.runner = ['timeout', {group}'--signal=ABRT', '--kill-after=10', \
         '{SECONDS_MAX}']"
    )
}
