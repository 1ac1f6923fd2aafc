//! Format, lints, documentation, dependencies: whatever needs no mount.

use crate::failure::Failure;
use crate::project;
use crate::skips;
use crate::step::Step;
use crate::structure;
use crate::tools;
use std::fs;

const DENY: &str = "cargo-deny";

/// The crate outside the workspace.
const FUZZ: [&str; 2] = ["--manifest-path", "fuzz/Cargo.toml"];

const WARNINGS: [&str; 3] = ["--", "-D", "warnings"];

/// Documents with figures, each with the commit that was measured.
const MEASURED: [&str; 2] = ["README.md", "docs/performance.md"];

/// How many commits may have changed the crates since.
const COMMITS_MAX: usize = 300;

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

/// The rest: the fuzz crate, documentation, licences and advisories, the age of figures.
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
    advisories()?;
    old_figures()
}

/// Fails if a figure is older than the code that it speaks of.
fn old_figures() -> Result<(), Failure> {
    let mut old = Vec::new();
    for name in MEASURED {
        let path = project::root().join(name);
        let text = fs::read_to_string(&path).map_err(Failure::of(&path))?;
        let words = text.split(|it: char| !it.is_ascii_alphanumeric());
        for commit in words.filter(|word| is_commit(word)) {
            let since = [
                "rev-list",
                "--count",
                &format!("{commit}..HEAD"),
                "--",
                "crates",
            ];
            let since = Step::new("git").args(since).text()?;
            if since.parse().is_ok_and(|since: usize| since > COMMITS_MAX) {
                old.push(format!("{name}: {commit}, {since} commits ago"));
            }
        }
    }
    Failure::if_any("figures that have to be measured again", &old)
}

fn is_commit(word: &str) -> bool {
    let is_digit = |it: char| matches!(it, '0'..='9' | 'a'..='f');
    let has_both = word.contains(|it: char| it.is_ascii_digit())
        && word.contains(|it: char| it.is_ascii_lowercase());
    (7..=12).contains(&word.len()) && has_both && word.chars().all(is_digit)
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
