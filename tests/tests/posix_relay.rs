//! The POSIX case list through the queues of a virtio-fs device: `thrufs share`, mounted by
//! `thrufs-client mount`, in every cache mode and over several shapes of queues.

use std::process::ExitCode;

use thrufs_test_report::is_full;
use thrufs_tests::lower::Lower;
use thrufs_tests::mount_point;
use thrufs_tests::relayed::Queues;
use thrufs_tests::suite::{self, Setting, Way, setting};

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

/// What decides whether a change lands, on tmpfs.
const GATE: &[(&str, Queues)] = &[
    ("cache=never,allow_mmap,modcaps=+sys_admin", Queues::USUAL),
    ("", Queues::SHORT),
];

fn main() -> ExitCode {
    let settings = if is_full() { all() } else { gate() };
    suite::run(settings, mount_point::cannot_mount())
}

fn relayed(lower: Lower, options: &'static str, queues: Queues) -> Setting {
    setting(lower, Way::Relay(queues), options)
}

fn gate() -> Vec<Setting> {
    let gate = GATE.iter();
    gate.map(|(options, queues)| relayed(Lower::Tmpfs, options, *queues))
        .collect()
}

fn all() -> Vec<Setting> {
    let options = OPTIONS.iter();
    let mut all: Vec<_> = options
        .map(|options| relayed(Lower::Tmpfs, options, Queues::USUAL))
        .collect();
    all.extend([Queues::TWO, Queues::SHORT].map(|queues| relayed(Lower::Tmpfs, "", queues)));
    all.push(relayed(Lower::Ext4, "", Queues::USUAL));
    all
}
