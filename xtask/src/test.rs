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
    let mut failures = Failures::default();
    let outcome = Step::cargo()
        .args(["test", "--workspace", "--locked", "--no-fail-fast"])
        .args(["--config", &time_limit()])
        .run_heard(|line| failures.hear(line));
    failures.tell();
    outcome?;
    mounts::nothing_left(&before)?;
    real::run(&[])?;
    mounts::nothing_left(&before)?;
    vm_test::run(&GUEST.map(str::to_owned))?;
    mounts::nothing_left(&before)
}

/// What failing tests said, which is told once more where nobody has to look for it.
#[derive(Default)]
struct Failures {
    lines: Vec<String>,
    is_listening: bool,
}

impl Failures {
    /// No more of it is kept, in lines.
    const MAX: usize = 500;

    fn hear(&mut self, line: &str) {
        self.is_listening |= line == "failures:";
        if self.is_listening && self.lines.len() < Self::MAX {
            self.lines.push(line.to_owned());
        }
        self.is_listening &= !line.starts_with("test result:");
    }

    fn tell(&self) {
        if !self.lines.is_empty() {
            println!("\nxtask: what failed, once more:\n");
            println!("{}", self.lines.join("\n"));
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failing_tests_say_is_kept_and_nothing_else() {
        let mut failures = Failures::default();
        for line in [
            "test one ... ok",
            "test result: ok. 1 passed",
            "test two ... FAILED",
            "failures:",
            "---- two stdout ----",
            "failures:",
            "    two",
            "test result: FAILED. 0 passed; 1 failed",
            "test three ... ok",
        ] {
            failures.hear(line);
        }
        let kept: Vec<&str> = failures.lines.iter().map(String::as_str).collect();
        assert_eq!(
            kept,
            [
                "failures:",
                "---- two stdout ----",
                "failures:",
                "    two",
                "test result: FAILED. 0 passed; 1 failed"
            ]
        );
    }
}
