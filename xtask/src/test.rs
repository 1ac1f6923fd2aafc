//! The tests: test programs, then the real programs on a real mount, then a guest.

use crate::check;
use crate::programs;
use crate::real;
use crate::step::{Failure, Step};
use crate::vm_test;

/// What runs in a guest before a change goes in: half a minute of `cargo xtask vm-test`, once its kernel
/// is there.
const GUEST: [&str; 3] = ["posix", "quota", "casefold"];

/// The test programs of `quick`: unit tests, and what serves requests in its own process. What needs root
/// or a mount in them skips where there is none.
const QUICK: &[&str] = &[
    "--lib",
    "--bins",
    "--test=allocations",
    "--test=crew",
    "--test=hostile",
    "--test=inflight",
    "--test=known_faults",
    "--test=layout",
    "--test=requests",
    "--test=served",
    "--test=sharing",
];

/// Of those names, what is another matter: it mounts.
const NOT_QUICK: &[&str] = &[
    "thrufs-bench/thrufs_bench",
    "thrufs-tests/hostile",
    "thrufs-tests/requests",
];

/// Format, lints, and the tests that take seconds.
pub(crate) fn quick() -> Result<(), Failure> {
    check::format()?;
    check::lints()?;
    let mut built = programs::build(QUICK)?;
    built.retain(|program| !NOT_QUICK.contains(&program.name.as_str()));
    programs::run(built)
}

/// The test programs alone: those whose names have one of these parts, or all.
pub(crate) fn programs(parts: &[String]) -> Result<(), Failure> {
    let mut built = programs::build(&[])?;
    built.retain(|program| {
        parts.is_empty()
            || parts
                .iter()
                .any(|part| program.name.contains(part.as_str()))
    });
    if built.is_empty() {
        return Err(Failure::new(format!(
            "no test programs: {}",
            parts.join(", ")
        )));
    }
    programs::run(built)
}

/// Runs everything, on a machine that is set up. What comes later runs even when tests have failed.
pub(crate) fn run() -> Result<(), Failure> {
    let built = programs::build(&[])?;
    let tested = programs::run(built);
    let documented = Step::cargo()
        .args(["test", "--doc", "--workspace", "--locked"])
        .run();
    let real = real::run(&[]);
    let guest = match vm_test::has_guest(&GUEST.join("-")) {
        Ok(true) => vm_test::run(&GUEST.map(str::to_owned)),
        other => other.map(|_| ()),
    };
    let mut failures = Vec::new();
    for outcome in [tested, documented, real, guest] {
        failures.extend(outcome.err().map(|failure| failure.to_string()));
    }
    if failures.is_empty() {
        Ok(())
    } else {
        Err(Failure::new(failures.join("\nxtask: ")))
    }
}
