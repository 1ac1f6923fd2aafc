//! The POSIX case list through `thrufs mount`, with several sets of options, on tmpfs and on ext4.

use std::process::ExitCode;

use thrufs_tests::{mounted, suite};

/// Comma-separated options as after `-o`. The empty set is the defaults, over `/dev/fuse`.
const OPTIONS: &[&str] = &[
    "",
    "cache=never",
    "cache=always",
    "writeback",
    "nopassthrough",
    "nopassthrough,cache=never",
    "nopassthrough,locks=shared,acl",
    "locks=shared,acl",
    "transport=uring",
    "transport=uring,cache=never",
    "transport=uring,nopassthrough",
    "transport=uring,locks=shared,acl",
];

/// What changes how rings are served; the file system beneath makes no difference to that.
const TMPFS_OPTIONS: &[&str] = &[
    "transport=uring,ring_depth=1",
    "transport=uring,queues_per_thread=2",
];

fn main() -> ExitCode {
    let settings = suite::mount_settings(OPTIONS, TMPFS_OPTIONS);
    suite::run(&settings, mounted::cannot_mount())
}
