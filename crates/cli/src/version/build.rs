//! The build script: the commit of an optimised build, for `thrufs --version`: `THRUFS_COMMIT`, or that of the git checkout.
//!
//! A build with debug assertions names none, so that a new commit does not build the command anew while one works on
//! it. An optimised one is built anew when HEAD has moved, and not otherwise.

use std::path::Path;
use std::process::Command;

const GIVEN: &str = "THRUFS_COMMIT";

fn main() {
    println!("cargo::rerun-if-changed=src/version/build.rs");
    println!("cargo::rerun-if-env-changed={GIVEN}");
    if std::env::var("PROFILE").is_ok_and(|profile| profile != "release") {
        return;
    }
    let given = std::env::var(GIVEN).ok().filter(|text| !text.is_empty());
    if let Some(commit) = given.or_else(of_checkout) {
        println!("cargo::rustc-env=THRUFS_BUILT_FROM={commit}");
    }
}

/// The sources may be unpacked within the repository of something else, which does not track them.
fn of_checkout() -> Option<String> {
    git(&["ls-files", "--error-unmatch", "Cargo.toml"])?;
    // Appended to whenever HEAD moves, by a commit or a checkout; in worktrees too.
    let moves = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if Path::new(&moves).exists() {
        println!("cargo::rerun-if-changed={moves}");
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    command.args(["-c", "safe.directory=*"]).args(arguments);
    let output = command.output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
