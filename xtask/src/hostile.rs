//! A hostile time, as long as one likes: `tests/tests/hostile.rs`, in the build that checks most.

use crate::project;
use crate::step::{Failure, Step};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

/// A recorded time consists of parts of so many seconds, so that it can go on where it was stopped.
const PART_SECONDS: u64 = 300;

/// Has front ends and guests misbehave towards a share, and processes towards mounts in two ways, all at once,
/// for so many seconds.
pub(crate) fn run(seconds: &str) -> Result<(), Failure> {
    build()?;
    tests(number(seconds)?).run()
}

/// The same in parts, each noted in `tests/results/hostile.txt` when it has passed. What stands there of this
/// commit counts: it goes on where it was stopped.
pub(crate) fn record(seconds: &str) -> Result<(), Failure> {
    let wanted = number(seconds)?;
    let path = project::root().join("tests/results/hostile.txt");
    let heading = heading()?;
    build()?;
    loop {
        let done = recorded(&fs::read_to_string(&path).unwrap_or_default(), &heading);
        if done >= wanted {
            println!("xtask: {done} s are noted in {}", path.display());
            return Ok(());
        }
        let seconds = PART_SECONDS.min(wanted - done);
        println!("xtask: {done} s of {wanted} are done");
        let (passed, output, errors) = tests(seconds).capture()?;
        let said = format!("{output}{errors}");
        if !passed {
            return Err(Failure::new(said));
        }
        let said: String = said
            .lines()
            .filter(|line| is_of_note(line))
            .map(|line| format!("  {line}\n"))
            .collect();
        note(&path, &heading, &format!("{seconds} s\n{said}"))?;
    }
}

/// What tells a commit's parts from others'.
fn heading() -> Result<String, Failure> {
    let ask = |program: &str, arguments: &[&str]| -> Result<String, Failure> {
        let step = Step::new(program)
            .args(arguments)
            .directory(project::root());
        let (passed, output, errors) = step.capture()?;
        if passed {
            Ok(output.trim().to_owned())
        } else {
            Err(Failure::new(format!("{program}: {errors}")))
        }
    };
    // What was built, whatever was noted since.
    let commit = ask(
        "git",
        &[
            "log",
            "-1",
            "--format=%h",
            "--",
            ".",
            ":!*.md",
            ":!tests/results",
        ],
    )?;
    let changes = ask(
        "git",
        &[
            "status",
            "--porcelain",
            "--",
            ".",
            ":!*.md",
            ":!tests/results",
        ],
    )?;
    if !changes.is_empty() {
        return Err(Failure::new(format!(
            "what is recorded is of a commit, and there are changes:\n{changes}"
        )));
    }
    Ok(format!(
        "# {commit}, Linux {}, {} processors",
        ask("uname", &["-r"])?,
        ask("nproc", &[])?
    ))
}

/// Seconds that `text` has under this heading.
fn recorded(text: &str, heading: &str) -> u64 {
    let mut is_ours = false;
    let mut seconds = 0;
    for line in text.lines() {
        if line.starts_with('#') {
            is_ours = line == heading;
        } else if let Some(count) = line.strip_suffix(" s").filter(|_| is_ours) {
            seconds += count.parse().unwrap_or(0);
        }
    }
    seconds
}

fn note(path: &PathBuf, heading: &str, text: &str) -> Result<(), Failure> {
    let failure = |error| Failure::new(format!("{}: {error}", path.display()));
    let before = fs::read_to_string(path).unwrap_or_default();
    let last = before.lines().rfind(|line| line.starts_with('#'));
    let heading = if last == Some(heading) {
        String::new()
    } else {
        format!("{heading}\n")
    };
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failure)?;
    }
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(failure)?;
    file.write_all(format!("{heading}{text}").as_bytes())
        .map_err(failure)
}

/// What the tests say of what they did.
fn is_of_note(line: &str) -> bool {
    ["episodes", " at most", "processes killed", "SEED="]
        .iter()
        .any(|word| line.contains(word))
}

fn number(seconds: &str) -> Result<u64, Failure> {
    seconds
        .parse()
        .map_err(|_| Failure::new(format!("not a number of seconds: {seconds}")))
}

fn build() -> Result<(), Failure> {
    Step::cargo()
        .args(["build", "--locked", "-p", "thrufs-cli"])
        .run()
}

fn tests(seconds: u64) -> Step {
    Step::cargo()
        .args(["test", "--locked", "-p", "thrufs-tests"])
        .args(["--test", "hostile", "--", "--nocapture", "--test-threads=3"])
        .env("THRUFS_HOSTILE_SECONDS", seconds.to_string())
}

#[cfg(test)]
mod tests {
    use super::recorded;

    #[test]
    fn only_what_stands_under_the_heading_counts() {
        let text = "# a\n300 s\n  said\n# b\n60 s\n300 s\n# a\n20 s\n";
        assert_eq!(recorded(text, "# a"), 320);
        assert_eq!(recorded(text, "# b"), 360);
        assert_eq!(recorded(text, "# c"), 0);
    }
}
