//! Sizes and times seen through the mount, directly after a change that the server never saw.

use crate::ground::{LOWERS, on_each};
use thrufs_tests::prelude::*;

#[track_caller]
fn agree(mnt: &Path, source: &Path) {
    let (seen, beneath) = (fs::metadata(mnt).unwrap(), fs::metadata(source).unwrap());
    let attributes = |of: &fs::Metadata| {
        let times = (of.mtime(), of.mtime_nsec(), of.ctime(), of.ctime_nsec());
        (of.len(), of.blocks(), times)
    };
    assert_eq!(attributes(&seen), attributes(&beneath));
}

/// Also with all caches and for a descriptor that was looked at before.
#[test]
fn a_write_is_seen_at_once() {
    for options in ["", "cache=always", "locks=shared"] {
        on_each(&LOWERS, options, |mounted| {
            let (mnt, source) = (mounted.mnt().join("file"), mounted.source().join("file"));
            let mut file = File::create(&mnt).unwrap();
            let reader = File::open(&mnt).unwrap();
            for round in 1..=100_u64 {
                file.write_all(&[b'x'; 100]).unwrap();
                assert_eq!(reader.metadata().unwrap().len(), round * 100);
                agree(&mnt, &source);
                if round % 10 == 0 {
                    // In place: the size stays, the times do not.
                    file.write_all_at(b"y", 0).unwrap();
                    agree(&mnt, &source);
                }
            }
            reader.metadata().unwrap();
            OpenOptions::new()
                .write(true)
                .open(&mnt)
                .unwrap()
                .set_len(7)
                .unwrap();
            assert_eq!(reader.metadata().unwrap().len(), 7);
            agree(&mnt, &source);
            drop((file, reader));
            agree(&mnt, &source);
        });
    }
}
