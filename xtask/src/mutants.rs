//! Mutation tests: the code is changed in one place at a time, and some test has to fail.
//!
//! Everything would take days on two cores, so only the code is changed on which it depends who may do
//! what to which file ([`AREAS`]), and only quick tests are run, in this process and without a mount.
//! What no test sees is compared with `tests/mutants.survivors`, which says of each why that is so.
//!
//! Runs can be ended at any time: a mutant that was caught once is not tried again as long as its line
//! stays. What was run, and what came of it, is told in `docs/mutants.md`.

use crate::project;
use crate::step::{Failure, Step};
use crate::tools;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Some files, and the tests that must see what is changed in them.
struct Area {
    name: &'static str,
    package: &'static str,
    files: &'static [&'static str],
    /// Packages with tests, apart from the file's own.
    tested_by: &'static [&'static str],
    /// Which tests: arguments of `cargo test`.
    tests: &'static [&'static str],
    /// Of those, the ones whose names have one of these parts; all, if there are none.
    only: &'static [&'static str],
}

const fn host(name: &'static str, files: &'static [&'static str]) -> Area {
    Area {
        name,
        package: "thrufs-hostdir",
        files,
        tested_by: &["thrufs-tests"],
        tests: &[
            "--lib",
            "--test",
            "served",
            "--test",
            "sharing",
            "--test",
            "succession",
        ],
        only: &[],
    }
}

/// Smallest first within what matters most.
const AREAS: &[Area] = &[
    host("lookup", &["crates/hostdir/src/lookup.rs"]),
    host("rename", &["crates/hostdir/src/rename.rs"]),
    host("deadlock", &["crates/hostdir/src/deadlock.rs"]),
    host("retries", &["crates/hostdir/src/retries.rs"]),
    host("privileges", &["crates/hostdir/src/privileges.rs"]),
    host("locks", &["crates/hostdir/src/locks.rs"]),
    host("credentials", &["crates/hostdir/src/credentials.rs"]),
    host("permission", &["crates/hostdir/src/rules/permission.rs"]),
    host("forget", &["crates/hostdir/src/nodes.rs"]),
    host("create", &["crates/hostdir/src/create.rs"]),
    host("host", &["crates/hostdir/src/host.rs"]),
    host("slots", &["crates/hostdir/src/slots.rs"]),
    host("open", &["crates/hostdir/src/open.rs"]),
    Area {
        name: "queue",
        package: "thrufs-virtio",
        files: &[
            "crates/virtio/src/queue/chain.rs",
            "crates/virtio/src/queue/ring.rs",
            "crates/virtio/src/queue/table.rs",
        ],
        tested_by: &[],
        tests: &[
            "--lib", "--test", "inflight", "--test", "crew", "--test", "served",
        ],
        only: &[
            "queue::",
            "journal::",
            "what_another_server_has_left",
            "many_at_once_are_served",
            "stopped_and_started_again",
            "device_is_reset",
        ],
    },
    Area {
        name: "sys-locks",
        package: "thrufs-sys",
        files: &["crates/sys/src/lock.rs", "crates/sys/src/cred.rs"],
        tested_by: &[],
        tests: &["--lib"],
        only: &["lock::", "cred::"],
    },
    Area {
        name: "dispatch",
        package: "thrufs",
        files: &[
            "crates/core/src/dispatch/arguments.rs",
            "crates/core/src/dispatch/operations.rs",
        ],
        tested_by: &[],
        tests: &["--lib"],
        only: &["dispatch::"],
    },
];

/// A mutant whose tests take longer has made something wait for ever. The machine may be busy.
const TIMEOUT_SECONDS: &str = "60";

/// Exit codes of cargo-mutants that tell of mutants, and not of something that went wrong.
const ALL_CAUGHT: i32 = 0;
const SOME_MISSED: i32 = 2;
const SOME_TIMED_OUT: i32 = 3;

/// Runs the areas whose names or files contain a word of `arguments`, all if there is none. `--shard
/// K/N` takes every Nth mutant, from the Kth.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let (filters, shard) = parse(arguments)?;
    let areas: Vec<&Area> = AREAS
        .iter()
        .filter(|area| area.is_meant(&filters))
        .collect();
    if areas.is_empty() {
        let names: Vec<_> = AREAS.iter().map(|area| area.name).collect();
        let names = names.join(", ");
        return Err(Failure::new(format!("no such area: there are {names}")));
    }
    tools::install_mutants()?;
    let known = survivors()?;
    let mut unknown = Vec::new();
    for area in areas {
        let output = area.run(shard)?;
        // One that makes a test wait for ever is seen by that.
        let missed = std::fs::read_to_string(output.join("mutants.out/missed.txt"));
        let missed = missed.unwrap_or_default();
        let missed = missed
            .lines()
            .filter(|line| !known.contains_key(&placeless(line)));
        unknown.extend(missed.map(str::to_owned));
    }
    if unknown.is_empty() {
        return Ok(());
    }
    let unknown = unknown.join("\n");
    let list = survivors_path();
    Err(Failure::new(format!(
        "no test sees these changes, and {} does not say why:\n{unknown}",
        list.display()
    )))
}

fn parse(arguments: &[String]) -> Result<(Vec<&str>, Option<&str>), Failure> {
    let (mut filters, mut shard) = (Vec::new(), None);
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--shard" {
            let value = arguments.next();
            shard = Some(
                value
                    .ok_or_else(|| Failure::new("--shard needs K/N"))?
                    .as_str(),
            );
        } else {
            filters.push(argument.as_str());
        }
    }
    Ok((filters, shard))
}

impl Area {
    fn is_meant(&self, filters: &[&str]) -> bool {
        let matches = |filter: &&str| {
            self.name.contains(*filter) || self.files.iter().any(|file| file.contains(*filter))
        };
        filters.is_empty() || filters.iter().any(matches)
    }

    /// Where its results are: kept, so that a run goes on where one before it ended.
    fn output(&self, shard: Option<&str>) -> PathBuf {
        let shard = shard.map(|shard| format!("-{}", shard.replace('/', "-of-")));
        let name = format!("{}{}", self.name, shard.unwrap_or_default());
        project::target().join("mutants").join(name)
    }

    fn run(&self, shard: Option<&str>) -> Result<PathBuf, Failure> {
        let output = self.output(shard);
        std::fs::create_dir_all(&output)
            .map_err(|error| Failure::new(format!("{}: {error}", output.display())))?;
        // A test that is killed leaves its mounts behind: in a namespace, for nobody to see.
        let mut step = Step::new("unshare")
            .args(["--mount", "--propagation", "private"])
            .args([tools::program("cargo-mutants")])
            .args([
                "mutants",
                "--iterate",
                "--no-shuffle",
                "--caught",
                "--colors=never",
            ])
            .args([
                "--timeout",
                TIMEOUT_SECONDS,
                "--package",
                self.package,
                "--output",
            ])
            .args([&output])
            .env("CARGO_TARGET_DIR", project::target().join("mutants/build"))
            .env("CARGO_PROFILE_DEV_DEBUG", "none")
            .env("RUST_BACKTRACE", "0");
        if let Some(shard) = shard {
            step = step.args(["--shard", shard]);
        }
        for file in self.files {
            step = step.args(["--file", file]);
        }
        // Arguments of cargo, so that only what is run is built.
        let packages = self
            .tested_by
            .iter()
            .flat_map(|package| ["--package", *package]);
        for argument in packages.chain(self.tests.iter().copied()) {
            step = step.args([format!("--cargo-arg={argument}")]);
        }
        // The language of policies, the formats of pictures and the benchmark are other areas, and slow;
        // and so is what takes bytes at random.
        step = step.args(["--", "--"]).args(self.only);
        for slow in [
            "redact::",
            "policy::",
            "measure::",
            "any_byte_of_a_state",
            "scribbled_on",
            "whoever_goes_on",
        ] {
            step = step.args(["--skip", slow]);
        }
        match step.run_to_code()? {
            ALL_CAUGHT | SOME_MISSED | SOME_TIMED_OUT => Ok(output),
            code => Err(Failure::new(format!(
                "cargo-mutants ended with {code}: see {}",
                output.join("mutants.out/log").display()
            ))),
        }
    }
}

fn survivors_path() -> PathBuf {
    project::root().join("tests/mutants.survivors")
}

/// The mutants that nobody need see, and why.
fn survivors() -> Result<BTreeMap<String, String>, Failure> {
    let path = survivors_path();
    let failed = |why: String| Failure::new(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(&path).map_err(|error| failed(error.to_string()))?;
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| survivor(line).ok_or_else(|| failed(format!("no ` | ` and a reason: {line}"))))
        .collect()
}

/// The mutant, which may hold a bar itself, and the reason after the last.
fn survivor(line: &str) -> Option<(String, String)> {
    let (mutant, why) = line.rsplit_once(" | ")?;
    Some((mutant.to_owned(), why.to_owned()))
}

/// A mutant without its line and column, which other changes move.
fn placeless(mutant: &str) -> String {
    let mut parts = mutant.splitn(4, ':');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(file), Some(line), Some(column), Some(rest))
            if [line, column]
                .iter()
                .all(|part| part.bytes().all(|byte| byte.is_ascii_digit())) =>
        {
            format!("{file}:{rest}")
        }
        _ => mutant.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutant_is_known_wherever_it_stands() {
        let mutant = "crates/a/src/b.rs:12:34: replace f -> bool with true";
        assert_eq!(
            placeless(mutant),
            "crates/a/src/b.rs: replace f -> bool with true"
        );
        assert_eq!(placeless("something: else"), "something: else");
    }

    #[test]
    fn a_reason_stands_after_the_last_bar() {
        let line = "a.rs: replace | with ^ in f | the same value";
        let (mutant, why) = survivor(line).expect("both are there");
        assert_eq!(mutant, "a.rs: replace | with ^ in f");
        assert_eq!(why, "the same value");
        assert_eq!(survivor("a.rs: replace f with ()"), None);
    }

    #[test]
    fn files_of_areas_are_there_and_survivors_lie_in_them() {
        let files: Vec<_> = AREAS.iter().flat_map(|area| area.files).collect();
        for file in &files {
            assert!(project::root().join(file).exists(), "{file}");
        }
        for mutant in survivors().expect("it is there").keys() {
            assert!(
                files.iter().any(|file| mutant.starts_with(**file)),
                "{mutant}"
            );
        }
    }
}
