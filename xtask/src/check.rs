//! Format, lints, documentation, dependencies: whatever needs no mount.

use crate::failure::Failure;
use crate::project;
use crate::skips;
use crate::step::Step;
use crate::structure;
use crate::tools;

const DENY: &str = "cargo-deny";

/// The crate outside the workspace.
const FUZZ: [&str; 2] = ["--manifest-path", "fuzz/Cargo.toml"];

const WARNINGS: [&str; 3] = ["--", "-D", "warnings"];

/// Checks without tests: the cheapest first. Licences where their tool is installed.
pub(crate) fn run() -> Result<(), Failure> {
    structure::run()?;
    Step::cargo().args(["fmt", "--all", "--check"]).run()?;
    Step::cargo().args(["fmt", "--check"]).args(FUZZ).run()?;
    let lints = ["clippy", "--workspace", "--all-targets", "--locked"];
    Step::cargo().args(lints).args(WARNINGS).run()?;
    if tools::has(DENY) {
        return licences();
    }
    println!("xtask: licences are not checked: cargo-deny is not there (cargo xtask setup)");
    Ok(())
}

/// The rest: the fuzz crate, documentation, licences and advisories.
pub(crate) fn full() -> Result<(), Failure> {
    // In our build directory: what both need is built once.
    Step::cargo()
        .args(["clippy", "--all-targets"])
        .args(FUZZ)
        .args(["--target-dir".as_ref(), project::target().as_path()])
        .args(WARNINGS)
        .run()?;
    Step::cargo()
        .args(["doc", "--workspace", "--no-deps", "--locked"])
        .args(["--document-private-items"])
        .env("RUSTDOCFLAGS", "-D warnings")
        .run()?;
    licences()?;
    advisories()
}

fn licences() -> Result<(), Failure> {
    Step::new(tools::program(DENY)?)
        .args(["--all-features", "check", "bans", "licenses", "sources"])
        .run()
}

/// Their database is on the network: a failed download alone is reported and passes.
fn advisories() -> Result<(), Failure> {
    let (status, said) = Step::new(tools::program(DENY)?)
        .args(["--all-features", "check", "advisories"])
        .env("GIT_TERMINAL_PROMPT", "0")
        .record()?;
    if status.success() {
        println!("xtask: no advisory against a dependency");
        return Ok(());
    }
    if said.contains("failed to fetch advisory database") && !said.contains("error[") {
        skips::add("advisories", "their database cannot be reached from here");
        return Ok(());
    }
    let what = "cargo deny check advisories";
    Err(Failure::new(format!("{what}:\n{said}")))
}
