//! Names that go under passthrough. The POSIX cases have more of them (`unlinked`, `tmpfile`, `hard_link`).

use crate::ground::{LOWERS, on_each};
use thrufs_tests::prelude::*;

#[test]
fn a_duplicate_writes_on_after_a_close() {
    on_each(&LOWERS, "", duplicate_writes_on);
    for options in ["locks=shared", "nopassthrough", "nopassthrough,cache=never"] {
        on_each(&[Lower::Ext4], options, duplicate_writes_on);
    }
}

fn duplicate_writes_on(mounted: &Mounted) {
    for (name, unlinked, mode) in [
        ("kept", false, 0o644),
        ("gone", true, 0o644),
        ("closed", false, 0),
        ("both", true, 0),
    ] {
        let path = mounted.mnt().join(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(&path).unwrap();
        file.write_all_at(b"first", 0).unwrap();
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode)).unwrap();
        if unlinked {
            fs::remove_file(&path).unwrap();
        }
        for round in 0..5_u8 {
            drop(file.try_clone().unwrap());
            file.write_all_at(&[b'0' + round], 5 + u64::from(round))
                .unwrap();
        }
        let mut found = [0; 10];
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(&found, b"first01234", "{name}");
        assert_eq!(file.metadata().unwrap().len(), 10);
    }
}
