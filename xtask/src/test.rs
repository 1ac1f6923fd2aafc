//! The tests that are deterministic, in two tiers: those that decide whether a change lands, and all.

use crate::check;
use crate::dist;
use crate::failure::Failure;
use crate::programs;
use crate::project;
use crate::real;
use crate::release;
use crate::step::Step;
use crate::tools::{self, Tier};
use crate::vm_test;

/// Real programs of the first tier, over each transport, with the tests' build.
const REAL: [&str; 4] = ["git", "install", "make", "sqlite"];

/// What `dist` makes is installed, used and removed by this one.
const PACKED: [&str; 1] = ["install"];

const GUEST: [&str; 5] = ["posix", "quota", "casefold", "workspace", "follow"];

/// In a guest that has a PCI bus, and an emulator that maps files into it.
const WINDOW: [&str; 3] = ["--guest", "qemu", "dax"];

/// As `thrufs_test_report::FULL`.
const FULL: &str = "THRUFS_FULL";

/// The test programs, or those whose names have one of `parts`; without `parts` the examples of
/// documentation and some real programs too.
pub(crate) fn gate(parts: &[String]) -> Result<(), Failure> {
    let programs = programs::build(parts, Tier::Gate)?;
    if !parts.is_empty() {
        return programs::run(&programs, Vec::new(), &[]);
    }
    let server = project::target().join("debug/thrufs");
    let real = real::jobs(&server, &REAL.map(str::to_owned), &[])?;
    all([programs::run(&programs, real, &[]), examples()])
}

/// The examples of documentation, as tests.
fn examples() -> Result<(), Failure> {
    Step::cargo()
        .args(["test", "--doc", "--workspace", "--locked"])
        .run()
}

/// The same with all cases, then all real programs, documentation, licences and the guest. Later steps run
/// even when tests have failed.
pub(crate) fn full(parts: &[String]) -> Result<(), Failure> {
    let peer = tools::program("virtiofsd")?;
    let variables = [(FULL, "1"), ("VIRTIOFSD", &peer.to_string_lossy())];
    let tested = programs::run(&programs::build(parts, Tier::Full)?, Vec::new(), &variables);
    if !parts.is_empty() {
        return tested;
    }
    let documented = examples();
    let (checked, real) = (check::full(), real::run(&[]));
    let packed = dist::run().and_then(|directory| {
        let variables = [("DIST", &*directory.to_string_lossy())];
        real::run_with(&release::build()?, &PACKED.map(str::to_owned), &variables)
    });
    let guest = vm_test::run(&GUEST.map(str::to_owned));
    let window = vm_test::run(&WINDOW.map(str::to_owned));
    all([tested, documented, checked, real, packed, guest, window])
}

fn all<const N: usize>(outcomes: [Result<(), Failure>; N]) -> Result<(), Failure> {
    let failures = outcomes.into_iter().filter_map(Result::err);
    let failures: Vec<String> = failures.map(|failure| failure.to_string()).collect();
    match failures.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(failures.join("\nxtask: "))),
    }
}
