//! The POSIX case list through `thrufs mount`, with several sets of options, on tmpfs and on ext4.

use std::process::ExitCode;

use thrufs_test_report::is_full;
use thrufs_tests::lower::Lower;
use thrufs_tests::mount_point;
use thrufs_tests::suite::{self, Way, setting};

/// What decides whether a change lands: both transports, each with both data paths, and each option that changes
/// what the kernel asks.
const GATE: &[(Lower, &str)] = &[
    (Lower::Tmpfs, ""),
    (Lower::Tmpfs, "writeback"),
    (Lower::Tmpfs, "nopassthrough,cache=never"),
    (Lower::Tmpfs, "transport=uring,nopassthrough"),
    (Lower::Ext4, "transport=uring,locks=shared,acl"),
    (Lower::Tmpfs, "transport=uring,opens=local"),
];

/// For each setting: comma-separated options as after `-o`. The empty set is the defaults, over
/// `/dev/fuse`.
const OPTIONS: &[&str] = &[
    "",
    "cache=never",
    "cache=always",
    "writeback",
    "nopassthrough",
    "nopassthrough,cache=never",
    "opens=local",
    "opens=local,cache=always",
    "nopassthrough,locks=shared,acl",
    "locks=shared,acl",
    "transport=uring",
    "transport=uring,cache=never",
    "transport=uring,nopassthrough",
    "transport=uring,locks=shared,acl",
];

/// Options of io_uring; the file system beneath makes no difference to them.
const TMPFS_OPTIONS: &[&str] = &[
    "transport=uring,ring_depth=1",
    "transport=uring,queues_per_thread=2",
];

fn main() -> ExitCode {
    let settings = if is_full() {
        suite::mount_settings(OPTIONS, TMPFS_OPTIONS)
    } else {
        let gate = GATE.iter();
        suite::known(gate.map(|(lower, options)| setting(*lower, Way::Mount, options)))
    };
    suite::run(settings, mount_point::cannot_mount())
}
