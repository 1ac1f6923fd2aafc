//! The POSIX case list through the queues of a virtio-fs device: `thrufs share`, mounted by
//! `thrufs client mount`, in every cache mode and over several shapes of queues.

use std::process::ExitCode;

use thrufs_tests::lower::Lower;
use thrufs_tests::mounted;
use thrufs_tests::relayed::Queues;
use thrufs_tests::suite::{self, relay_setting};

/// As after `-o` of the share, each on tmpfs.
const OPTIONS: &[&str] = &[
    "",
    "cache=never",
    "cache=metadata",
    "cache=always",
    "writeback",
    "locks=shared,acl",
    "cache=never,allow_mmap,modcaps=+sys_admin",
];

/// Queues that differ from the usual one.
const QUEUES: &[Queues] = &[
    Queues {
        count: 2,
        ..Queues::USUAL
    },
    Queues {
        size: 8,
        indirect: false,
        ..Queues::USUAL
    },
];

fn main() -> ExitCode {
    let mut settings: Vec<_> = OPTIONS
        .iter()
        .map(|options| relay_setting(Lower::Tmpfs, options, Queues::USUAL))
        .collect();
    let queues = QUEUES.iter();
    settings.extend(queues.map(|queues| relay_setting(Lower::Tmpfs, "", *queues)));
    settings.push(relay_setting(Lower::Ext4, "", Queues::USUAL));
    suite::run(&settings, mounted::cannot_mount())
}
