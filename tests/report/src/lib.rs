//! Reports past libtest's capture of output: skipped tests and seeds. Also tells in which tier tests run.
//!
//! A skip goes to standard error at once and, if `THRUFS_SKIPPED` names a file, to its end. `cargo xtask
//! test` prints that list last, and fails if `CI` is `true` and a test in it may not be skipped.

#![forbid(unsafe_code)]

use std::collections::hash_map::RandomState;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::hash::BuildHasher;
use std::io::Write;
use std::path::Path;

/// Environment variable: path of the list of skips.
pub const LIST: &str = "THRUFS_SKIPPED";

/// Environment variable: the seed of random tests.
pub const SEED: &str = "THRUFS_SEED";

/// Environment variable, set by `cargo xtask test --full`.
pub const FULL: &str = "THRUFS_FULL";

/// Whether tests run all their cases (`cargo xtask test --full`).
pub fn is_full() -> bool {
    std::env::var_os(FULL).is_some()
}

/// The test of this thread: libtest names the thread after it.
pub fn test() -> String {
    std::thread::current().name().unwrap_or("?").to_owned()
}

/// Reports that this thread's test, or a part of it, is skipped.
pub fn skipped(why: impl Display) {
    skipped_in(&test(), why);
}

/// The same for a named test, because other threads may report it. Panics when the list cannot be written:
/// a lost skip is worse than a failure.
pub fn skipped_in(test: &str, why: impl Display) {
    let line = line(&program(), test, &why.to_string());
    // `eprintln!` is captured for tests that pass.
    let _ = writeln!(std::io::stderr(), "SKIPPED {line}");
    let Some(list) = std::env::var_os(LIST) else {
        return;
    };
    let text = format!("{line}\n");
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(&list)
        .and_then(|mut list| list.write_all(text.as_bytes()))
        .unwrap_or_else(|error| panic!("{}: {error}: {line}", Path::new(&list).display()));
}

fn line(program: &str, test: &str, why: &str) -> String {
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{program}/{test}: {why}")
}

/// The package and the program, without the hash that cargo appends.
fn program() -> String {
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    let path = std::env::current_exe().unwrap_or_default();
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = stem.rsplit_once('-').map_or(&*stem, |(name, _)| name);
    if package.is_empty() {
        name.to_owned()
    } else {
        format!("{package}/{name}")
    }
}

/// The seed of a random test, printed: `THRUFS_SEED`, which `.cargo/config.toml` sets to 1, else a random
/// one. Panics when it is no number.
pub fn seed() -> u64 {
    // Small enough to be typed, and to be counted up from.
    let seed = number(SEED, drawn());
    let _ = writeln!(std::io::stderr(), "{}/{}: {SEED}={seed}", program(), test());
    seed
}

/// An environment variable as a number, or `usual`. Panics when it is no number.
pub fn number(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |text| {
        let number = text.parse();
        number.unwrap_or_else(|_| panic!("{variable}={text} is no number"))
    })
}

fn drawn() -> u64 {
    RandomState::new().hash_one(0) >> 32
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{drawn, line, seed, skipped_in};
    use std::process::Command;

    #[test]
    fn a_skip_is_one_line_with_the_name_first() {
        assert_eq!(
            line("p/served", "limits::few", "no device,\n or none"),
            "p/served/limits::few: no device, or none"
        );
    }

    #[test]
    fn seeds_differ() {
        assert_ne!(drawn(), drawn());
    }

    /// In a process of its own: the environment is shared by all threads.
    #[test]
    fn skips_pass_the_capture_and_are_listed_and_seeds_can_be_given() {
        const INSIDE: &str = "THRUFS_REPORT_TEST";
        if std::env::var_os(INSIDE).is_some() {
            skipped_in("one", "because");
            assert_eq!(seed(), 7);
            return;
        }
        let list = std::env::temp_dir().join(format!("thrufs-report-{}", std::process::id()));
        let test = "skips_pass_the_capture_and_are_listed_and_seeds_can_be_given";
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("tests::{test}")])
            .envs([(INSIDE, "1"), (super::SEED, "7")])
            .env(super::LIST, &list)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let listed = std::fs::read_to_string(&list).unwrap();
        std::fs::remove_file(&list).unwrap();
        assert!(output.status.success(), "{said}");
        assert!(
            listed.ends_with("thrufs_test_report/one: because\n"),
            "{listed}"
        );
        assert!(
            said.contains("SKIPPED ") && said.contains("/one: because"),
            "{said}"
        );
        assert!(said.contains("THRUFS_SEED=7"), "{said}");
    }
}
