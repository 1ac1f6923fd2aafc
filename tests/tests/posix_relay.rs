//! The POSIX case list through the queues of a virtio-fs device: `thrufs share`, mounted by
//! `thrufs-client mount`, in every cache mode and over several shapes of queues.

use std::process::ExitCode;

use thrufs_test_report::is_full;
use thrufs_tests::lower::Lower;
use thrufs_tests::mount_point;
use thrufs_tests::relayed::Queues;
use thrufs_tests::suite::{self, Setting, relay_setting};

/// For each setting: as after `-o` of the share, on tmpfs.
const OPTIONS: &[&str] = &[
    "",
    "cache=never",
    "cache=metadata",
    "cache=always",
    "writeback",
    "locks=shared,acl",
    "cache=never,allow_mmap,modcaps=+sys_admin",
];

const TWO: Queues = Queues {
    count: 2,
    ..Queues::USUAL
};

const SHORT: Queues = Queues {
    size: 8,
    indirect: false,
    ..Queues::USUAL
};

/// What decides whether a change lands, on tmpfs.
const GATE: &[(&str, Queues)] = &[
    ("", Queues::USUAL),
    ("cache=never,allow_mmap,modcaps=+sys_admin", Queues::USUAL),
    ("", SHORT),
];

fn main() -> ExitCode {
    let settings = if is_full() { all() } else { gate() };
    suite::run(settings, mount_point::cannot_mount())
}

fn gate() -> Vec<Setting> {
    let gate = GATE.iter();
    gate.map(|(options, queues)| relay_setting(Lower::Tmpfs, options, *queues))
        .collect()
}

fn all() -> Vec<Setting> {
    let options = OPTIONS.iter();
    let mut all: Vec<_> = options
        .map(|options| relay_setting(Lower::Tmpfs, options, Queues::USUAL))
        .collect();
    all.extend([TWO, SHORT].map(|queues| relay_setting(Lower::Tmpfs, "", queues)));
    all.push(relay_setting(Lower::Ext4, "", Queues::USUAL));
    all
}
