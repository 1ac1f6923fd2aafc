//! The settings of these tests.

use thrufs_tests::prelude::*;

/// File systems on which all of it must work.
pub(crate) const LOWERS: [Lower; 3] = [Lower::Tmpfs, Lower::Ext4, Lower::Overlay];

/// Runs `body` over each transport on a mount of each kind. A file system without its tools is reported as
/// skipped.
pub(crate) fn on_each(lowers: &[Lower], options: &str, body: impl Fn(&Mounted)) {
    over_each(|transport| {
        for &lower in lowers {
            let mut mounted = match Mounted::start_on(lower, &transport.with(options)) {
                Ok(mounted) => mounted,
                Err(error) if matches!(lower, Lower::Xfs | Lower::Btrfs) => {
                    skipped(format!("{}: {error}", lower.name()));
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            eprintln!("{transport} {options} on {}", lower.name());
            body(&mounted);
            mounted.stop().unwrap();
        }
    });
}

/// Bytes that tell where they belong.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}
