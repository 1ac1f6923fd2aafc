//! The settings of these tests, and their comparison.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use thrufs_test_report::skipped;
use thrufs_tests::lower::Lower;
use thrufs_tests::mounted::Mounted;
use thrufs_tests::transport::{Transport, over_each};

/// The data paths.
pub(crate) const WAYS: [&str; 3] = ["passthrough", "nopassthrough", "nopassthrough,cache=never"];

/// File systems on which all of it must work.
pub(crate) const LOWERS: [Lower; 3] = [Lower::Tmpfs, Lower::Ext4, Lower::Overlay];

/// Runs `body` over each transport on a mount of each kind. A file system without its tools is reported as
/// skipped.
pub(crate) fn on_each(lowers: &[Lower], options: &str, body: impl Fn(&Mounted)) {
    over_each(|transport| {
        on(lowers, transport, options, &body);
    });
}

pub(crate) fn on(lowers: &[Lower], transport: Transport, options: &str, body: &impl Fn(&Mounted)) {
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
}

/// Where something is done, and the results.
pub(crate) struct Place {
    dir: PathBuf,
    beneath: PathBuf,
    report: Vec<String>,
}

impl Place {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The same file beneath.
    pub(crate) fn beneath(&self, name: &str) -> PathBuf {
        self.beneath.join(name)
    }

    /// Records a result.
    pub(crate) fn note<T: std::fmt::Debug, E: Into<io::Error>>(
        &mut self,
        what: &str,
        outcome: Result<T, E>,
    ) {
        let outcome = outcome.map_err(|error| error.into().raw_os_error());
        self.report.push(format!("{what}: {outcome:?}"));
    }

    /// Records a file's state, and checks that it is the same beneath.
    #[track_caller]
    pub(crate) fn look(&mut self, name: &str) {
        let seen = fs::symlink_metadata(self.path(name)).unwrap();
        let beneath = fs::symlink_metadata(self.beneath(name)).unwrap();
        let attributes = |of: &Metadata| {
            let times = [(of.mtime(), of.mtime_nsec()), (of.ctime(), of.ctime_nsec())];
            (of.len(), of.blocks(), of.mode(), of.nlink(), times)
        };
        assert_eq!(attributes(&seen), attributes(&beneath), "{name}");
        let content = fs::read(self.path(name)).unwrap();
        assert!(content == fs::read(self.beneath(name)).unwrap(), "{name}");
        let sum = content.iter().fold(content.len() as u64, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
        });
        self.report
            .push(format!("{name}: {} bytes, {sum:x}", seen.len()));
    }
}

/// Does the same natively and through the mount, and compares the results.
#[track_caller]
pub(crate) fn same(mounted: &Mounted, body: impl Fn(&mut Place)) {
    let native = mounted.outside();
    let run = |dir: &Path, beneath: &Path| {
        let mut place = Place {
            dir: dir.to_owned(),
            beneath: beneath.to_owned(),
            report: Vec::new(),
        };
        body(&mut place);
        place.report
    };
    let wanted = run(native, native);
    let found = run(mounted.mnt(), mounted.source());
    assert_eq!(found, wanted, "through the mount and beneath");
}

/// Bytes that tell where they belong.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}
