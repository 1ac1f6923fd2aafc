//! The POSIX case list through `thrufs mount`, with several sets of options, on tmpfs and on ext4.

use std::process::ExitCode;

use thrufs_tests::{mounted, suite};

/// Comma-separated options as after `-o`. The empty set is the defaults.
const OPTIONS: &[&str] = &[
    "",
    "cache=never",
    "cache=always",
    "writeback",
    "locks=shared,acl",
];

fn main() -> ExitCode {
    suite::run(&suite::mount_settings(OPTIONS), mounted::cannot_mount())
}
