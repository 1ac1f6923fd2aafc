//! The tests that run inside a guest, on the shares that its first process has mounted.
//!
//! ```text
//! posix [ARGUMENT...]   the POSIX case list, with the arguments of a test harness
//! property              the property tests (see `property` for their variables)
//! ```
//!
//! `LOWER` and `OPTIONS` in the environment tell the ground (see [`guest::setting`]).

#![forbid(unsafe_code)]

use std::process::ExitCode;

use libtest_mimic::Arguments;
use thrufs_tests::guest::{self, Share};
use thrufs_tests::{property, suite};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let setting = match guest::setting() {
        Ok(setting) => setting,
        Err(error) => {
            eprintln!("thrufs-guest-tests: {error}");
            return ExitCode::from(2);
        }
    };
    match arguments.first().map(String::as_str) {
        // What libtest takes for the name of the program is ours.
        Some("posix") => suite::run_with(&Arguments::from_iter(&arguments), &[setting], None),
        Some("property") => {
            property::run_cases(&Share, &setting.name(), "thrufs-guest-tests property");
            println!("property: the same operations had the same results");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("thrufs-guest-tests: posix [ARGUMENT...] or property");
            ExitCode::from(2)
        }
    }
}
