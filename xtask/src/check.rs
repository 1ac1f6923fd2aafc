//! Format, lints, documentation, dependencies: whatever needs no mount.

use crate::project;
use crate::skips;
use crate::step::{Failure, Step};
use crate::tools;
use std::path::Path;

const DENY: &str = "cargo-deny";

/// What takes no test: the cheapest first.
pub(crate) fn run() -> Result<(), Failure> {
    format()?;
    lints()?;
    if tools::has(DENY) {
        return licences();
    }
    println!("xtask: licences are not checked: cargo-deny is not installed (cargo xtask setup)");
    Ok(())
}

/// What is left out there: the crate of the fuzz targets, documentation, licences and advisories.
pub(crate) fn full() -> Result<(), Failure> {
    for manifest in project::outside_manifests() {
        of(&["clippy", "--all-targets", "--target-dir"], &manifest)
            .args(["--", "-D", "warnings"])
            .run()?;
    }
    Step::cargo()
        .args([
            "doc",
            "--workspace",
            "--no-deps",
            "--locked",
            "--document-private-items",
        ])
        .env("RUSTDOCFLAGS", "-D warnings")
        .run()?;
    licences()?;
    advisories()
}

fn format() -> Result<(), Failure> {
    Step::cargo().args(["fmt", "--all", "--check"]).run()?;
    for manifest in project::outside_manifests() {
        of(&["fmt"], &manifest).args(["--check"]).run()?;
    }
    Ok(())
}

fn lints() -> Result<(), Failure> {
    Step::cargo()
        .args([
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ])
        .run()
}

/// A cargo command on a crate outside the workspace, built among ours: what both need is built once, and
/// nothing is left in the source tree.
fn of(words: &[&str], manifest: &Path) -> Step {
    let mut step = Step::cargo();
    for word in words {
        step = step.args([word]);
        if *word == "--target-dir" {
            step = step.args([project::target()]);
        }
    }
    step.args([Path::new("--manifest-path"), manifest])
}

fn licences() -> Result<(), Failure> {
    Step::new(tools::program(DENY))
        .args(["--all-features", "check", "bans", "licenses", "sources"])
        .run()
}

/// Their database is on the network: where it cannot be fetched, that alone is let through, and said.
fn advisories() -> Result<(), Failure> {
    let (passed, output, errors) = Step::new(tools::program(DENY))
        .args(["--all-features", "check", "advisories"])
        .env("GIT_TERMINAL_PROMPT", "0")
        .capture()?;
    if passed {
        println!("xtask: no advisory against a dependency");
        return Ok(());
    }
    let unreachable = errors.contains("failed to fetch advisory database");
    if unreachable && !errors.contains("error[") {
        skips::add("advisories", "their database cannot be reached from here");
        return Ok(());
    }
    Err(Failure::new(format!(
        "cargo deny check advisories:\n{output}{errors}"
    )))
}
