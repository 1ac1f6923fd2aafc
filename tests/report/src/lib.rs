//! What tests say past libtest's capture of their output: what they did not do, and the seeds that
//! they began with. Also, in which tier they run.
//!
//! A skip goes to standard error at once, and to the list of skips if there is one: a line at the end
//! of the file that `THRUFS_SKIPPED` names. `cargo xtask test` prints that list last, and fails if
//! `CI` is `true` and something is on it that may not be skipped.

#![forbid(unsafe_code)]

use std::collections::hash_map::RandomState;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::hash::BuildHasher;
use std::io::Write;
use std::path::Path;

/// Names the list of skips.
pub const LIST: &str = "THRUFS_SKIPPED";

/// Gives the seed.
pub const SEED: &str = "THRUFS_SEED";

/// Set in the tier in which everything runs that is deterministic: `cargo xtask test --full`.
pub const FULL: &str = "THRUFS_FULL";

/// Whether tests run all their cases (`cargo xtask test --full`), or only those that decide whether a
/// change lands.
pub fn is_full() -> bool {
    std::env::var_os(FULL).is_some()
}

/// The test of this thread: libtest names the thread after it.
pub fn test() -> String {
    std::thread::current().name().unwrap_or("?").to_owned()
}

/// Says that the test of this thread, or a part of it, is skipped, and why.
pub fn skipped(why: impl Display) {
    skipped_in(&test(), why);
}

/// The same of a test that is named, because other threads may say so.
///
/// # Panics
///
/// When the list cannot be written: a skip that nobody hears of is worse than a failure.
pub fn skipped_in(test: &str, why: impl Display) {
    let line = line(&program(), test, &why.to_string());
    // Not by a macro: the output of those is kept back from tests that pass.
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

/// `PROGRAM/TEST: WHY`, in one line.
fn line(program: &str, test: &str, why: &str) -> String {
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{program}/{test}: {why}")
}

/// The package and the program without the hash that cargo puts after its name.
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

/// The seed of a random test: what `THRUFS_SEED` says, which cargo sets to 1 unless it is set (see
/// `.cargo/config.toml`), else another each time. Printed, to be given again.
///
/// # Panics
///
/// When `THRUFS_SEED` is no number.
pub fn seed() -> u64 {
    // Small enough to be typed, and to be counted up from.
    let seed = number(SEED, drawn());
    let _ = writeln!(std::io::stderr(), "{}/{}: {SEED}={seed}", program(), test());
    seed
}

/// What a variable of the environment says instead of what is usual.
///
/// # Panics
///
/// When it is no number.
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

    /// In a process of its own: the environment is one for all threads.
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
