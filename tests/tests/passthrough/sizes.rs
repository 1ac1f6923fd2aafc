//! Sizes and times seen through the mount, directly after a change that the server never saw.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use thrufs_testing::process::Process;
use thrufs_tests::lower::Lower;
use thrufs_tests::programs;

use crate::ground::{LOWERS, on_each};

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

/// A writer and readers: a size never lags behind what was written before it was asked for. (It can go back
/// while a write is in progress: the kernel drops an answer that another overtook.)
#[test]
fn no_size_is_stale() {
    on_each(&[Lower::Tmpfs], "", |mounted| {
        let path = mounted.mnt().join("growing");
        let file = File::create(&path).unwrap();
        let written = AtomicU64::new(0);
        let deadline = Instant::now() + Duration::from_millis(400);
        thread::scope(|scope| {
            scope.spawn(|| {
                while Instant::now() < deadline {
                    (&file).write_all(b"0123456789").unwrap();
                    written.fetch_add(10, Ordering::SeqCst);
                }
            });
            for _ in 0..3 {
                scope.spawn(|| {
                    while Instant::now() < deadline {
                        let before = written.load(Ordering::SeqCst);
                        let seen = fs::metadata(&path).unwrap().len();
                        assert!(seen >= before, "{seen} after {before}");
                    }
                });
            }
        });
        assert_eq!(fs::metadata(&path).unwrap().len(), written.into_inner());
    });
}

#[test]
fn appends_of_processes_are_whole_and_none_is_lost() {
    on_each(&[Lower::Ext4], "", |mounted| {
        const LINES: usize = 2_000;
        let through = mounted.mnt().join("log");
        let beneath = mounted.source().join("log");
        File::create(&through).unwrap();
        let lines = LINES.to_string();
        let writers: Vec<Process> = [(&through, "one"), (&through, "two"), (&beneath, "three")]
            .map(|(path, text)| {
                programs::start_helper(&["append", path.to_str().unwrap(), text, &lines])
            })
            .into();
        for mut writer in writers {
            assert!(writer.is_ended_within(Duration::from_secs(60)));
        }
        let content = fs::read_to_string(&through).unwrap();
        for text in ["one", "two", "three"] {
            let count = content.lines().filter(|line| *line == text).count();
            assert_eq!(count, LINES, "{text}");
        }
        assert_eq!(content.lines().count(), 3 * LINES, "no line is torn");
        agree(&through, &beneath);
    });
}
