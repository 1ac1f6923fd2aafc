//! The tests that run inside a guest, on the shares that its first process has mounted.
//!
//! ```text
//! posix [ARGUMENT...]   the POSIX case list, with the arguments of a test harness
//! property              the property tests (see `property` for their variables)
//! measure ROW DIR SECONDS  prints how often a second something can be done (see `measure`)
//! ```
//!
//! `LOWER` and `OPTIONS` in the environment describe the setting (see [`Setting::of_guest`]).

#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use thrufs_testing::{Setup, helper};
use thrufs_tests::guest::Share;
use thrufs_tests::suite::Setting;
use thrufs_tests::{measure, property, suite};

fn main() -> ExitCode {
    if let Some(code) = helper::run_if_started() {
        return code;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, row, directory, seconds] = arguments.as_slice()
        && first == "measure"
    {
        return print_rate(row, directory, seconds);
    }
    let setting = match Setting::of_guest() {
        Ok(setting) => setting,
        Err(error) => {
            eprintln!("thrufs-guest-tests: {error}");
            return ExitCode::from(2);
        }
    };
    match arguments.first().map(String::as_str) {
        // What libtest takes for the name of the program is ours.
        Some("posix") => suite::run_with(arguments, vec![setting]),
        Some("property") => {
            property::run_cases(&Share, &setting.name(), "thrufs-guest-tests property");
            println!("property: the same operations had the same results");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!(
                "thrufs-guest-tests: posix [ARGUMENT...], property or measure ROW DIR SECONDS"
            );
            ExitCode::from(2)
        }
    }
}

fn print_rate(row: &str, directory: &str, seconds: &str) -> ExitCode {
    let time = Duration::from_secs(seconds.parse().unwrap_or(1));
    match measure::measure(row, Path::new(directory), time) {
        Ok(rate) => {
            println!("{rate:.1}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("thrufs-guest-tests: {row} in {directory}: {error}");
            ExitCode::FAILURE
        }
    }
}
