//! A file that is written again and again beneath costs events only as often as somebody looks at it above.

use crate::following::{bind, figure, unmount_idle};
use rustix::fs::stat;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use thrufs_testing::fence::mapping::{Mapping, Sharing};
use thrufs_tests::lower::Lower;
use thrufs_tests::mount_point::shrink_dcache;
use thrufs_tests::mounted::Mounted;
use thrufs_tests::transport::over_each;
use thrufs_tests::wait_until;

/// Appends between two looks, and looks.
const APPENDS: u64 = 10_000;
const LOOKS: u64 = 10;

/// A log, which is appended to beneath.
struct Log<'a> {
    mounted: &'a Mounted,
    file: File,
    length: u64,
    above: PathBuf,
}

impl Log<'_> {
    fn of(mounted: &Mounted) -> Log<'_> {
        Log::of_name(mounted, "log")
    }

    fn of_name<'a>(mounted: &'a Mounted, name: &str) -> Log<'a> {
        let mut file = OpenOptions::new();
        let file = file.create(true).append(true);
        let log = Log {
            mounted,
            file: file.open(mounted.source().join(name)).unwrap(),
            length: 0,
            above: mounted.mnt().join(name),
        };
        mounted.settle();
        assert_eq!(log.length_above(), 0);
        log
    }

    /// A line of 8 bytes that no other line has.
    fn append(&mut self) {
        let line = format!("{:07}\n", self.length / 8);
        self.file.write_all(line.as_bytes()).unwrap();
        self.length += 8;
    }

    #[track_caller]
    fn append_until_silent(&mut self) {
        let before = figure(self.mounted, "follow_silenced");
        wait_until("silent", || {
            (0..100).for_each(|_| self.append());
            figure(self.mounted, "follow_silenced") > before
        });
        self.mounted.settle();
    }

    fn length_above(&self) -> u64 {
        stat(&self.above).unwrap().st_size as u64
    }

    #[track_caller]
    fn shows_next_append(&mut self) {
        self.append();
        self.mounted.settle();
        assert_eq!(self.length_above(), self.length);
    }
}

/// A mount with the default timeouts, for which nothing asks again by itself.
fn on_each_path(test: impl Fn(&Mounted)) {
    with_marks(&["auto", "directories"], test);
}

fn with_marks(marks: &[&str], test: impl Fn(&Mounted)) {
    over_each(|transport| {
        for path in ["passthrough", "nopassthrough"] {
            for marks in marks {
                let options = transport.with(&format!("follow={marks},{path}"));
                let mut mounted = Mounted::start_on(Lower::Tmpfs, &options).unwrap();
                test(&mounted);
                mounted.stop().unwrap();
            }
        }
    });
}

#[test]
fn a_log_costs_events_only_as_often_as_it_is_looked_at() {
    on_each_path(|mounted| {
        let mut log = Log::of(mounted);
        let reader = File::open(&log.above).unwrap();
        for look in 0..LOOKS {
            log.append_until_silent();
            let costs = || ["follow_events", "follow_notifications"].map(|it| figure(mounted, it));
            let before = costs();
            (0..APPENDS).for_each(|_| log.append());
            mounted.settle();
            for (before, after) in before.into_iter().zip(costs()) {
                assert!(after - before < APPENDS / 100, "{before} and then {after}");
            }
            if look % 2 == 0 {
                assert_eq!(log.length_above(), log.length);
            }
            let mut line = [0; 9];
            let read = reader.read_at(&mut line, log.length - 8).unwrap();
            assert_eq!(
                line[..read],
                *format!("{:07}\n", log.length / 8 - 1).as_bytes()
            );
            log.shows_next_append();
        }
        drop(reader);
    });
}

/// The kernel asks for pages of a map, but not for attributes.
#[test]
fn a_page_of_a_silent_file_changes_with_it() {
    on_each_path(|mounted| {
        let mut log = Log::of(mounted);
        log.append_until_silent();
        let reader = File::open(&log.above).unwrap();
        assert_eq!(log.length_above(), log.length);
        let map = Mapping::new(&reader, 4096.min(log.length as usize), Sharing::Private).unwrap();
        log.append_until_silent();
        let mut writer = OpenOptions::new();
        let writer = writer.write(true);
        let writer = writer.open(mounted.source().join("log")).unwrap();
        for byte in *b"abcdefgh" {
            writer.write_all_at(&[byte], 0).unwrap();
            mounted.settle();
            assert_eq!(map.load(0, 1), [byte]);
        }
        drop((map, reader));
    });
}

/// The mark beneath outlives what the kernel above has of the file.
#[test]
fn a_silent_file_that_was_forgotten_shows_its_size() {
    on_each_path(|mounted| {
        let mut log = Log::of(mounted);
        for _ in 0..5 {
            log.append_until_silent();
            shrink_dcache(mounted.mnt()).unwrap();
            log.append();
            assert_eq!(log.length_above(), log.length);
            log.shows_next_append();
        }
    });
}

/// As one that is new, in a directory that is watched.
#[test]
fn a_file_that_the_kernel_does_not_know_becomes_silent() {
    on_each_path(|mounted| {
        let mut log = Log::of(mounted);
        for _ in 0..5 {
            shrink_dcache(mounted.mnt()).unwrap();
            log.append_until_silent();
            let before = figure(mounted, "follow_events");
            (0..APPENDS).for_each(|_| log.append());
            mounted.settle();
            assert!(figure(mounted, "follow_events") - before < APPENDS / 100);
            assert_eq!(log.length_above(), log.length);
            log.shows_next_append();
        }
    });
}

/// Its writer has nothing to do with the source, until it is moved there.
#[test]
fn a_file_elsewhere_on_the_file_system_becomes_silent() {
    with_marks(&["auto"], |mounted| {
        let elsewhere = mounted.outside().join("log");
        let mut log = Log {
            mounted,
            file: File::create(&elsewhere).unwrap(),
            length: 0,
            above: mounted.mnt().join("log"),
        };
        log.append_until_silent();
        let before = figure(mounted, "follow_events");
        (0..APPENDS).for_each(|_| log.append());
        mounted.settle();
        assert!(figure(mounted, "follow_events") - before < APPENDS / 100);
        fs::rename(&elsewhere, mounted.source().join("log")).unwrap();
        mounted.settle();
        assert_eq!(log.length_above(), log.length);
        log.shows_next_append();
    });
}

/// The kernel has an inode for each of two mounts of the file system.
#[test]
fn a_silent_file_shows_at_both_of_its_places() {
    on_each_path(|mounted| {
        let beneath = ["directory", "bound"].map(|name| mounted.source().join(name));
        beneath.iter().for_each(|it| fs::create_dir(it).unwrap());
        let bound = bind(&beneath[0], &beneath[1]);
        let mut log = Log::of_name(mounted, "directory/log");
        let places = ["directory", "bound"].map(|name| mounted.mnt().join(name).join("log"));
        let shows_length = |log: &mut Log<'_>| {
            for place in &places {
                log.above.clone_from(place);
                assert_eq!(log.length_above(), log.length);
            }
        };
        for _ in 0..3 {
            shows_length(&mut log);
            log.append_until_silent();
            log.append();
            shows_length(&mut log);
            log.append();
            mounted.settle();
            shows_length(&mut log);
        }
        unmount_idle(bound);
    });
}

/// Another file may have the name by then, and the silent one another name.
#[test]
fn names_of_a_silent_file_are_followed() {
    on_each_path(|mounted| {
        let mut log = Log::of(mounted);
        log.append_until_silent();
        let moved = mounted.source().join("moved");
        fs::rename(mounted.source().join("log"), &moved).unwrap();
        fs::write(mounted.source().join("log"), "next").unwrap();
        mounted.settle();
        assert_eq!(log.length_above(), 4);
        log.above = mounted.mnt().join("moved");
        assert_eq!(log.length_above(), log.length);
        log.shows_next_append();
        fs::hard_link(&moved, mounted.source().join("other")).unwrap();
        log.append_until_silent();
        log.above = mounted.mnt().join("other");
        assert_eq!(log.length_above(), log.length);
        log.shows_next_append();
    });
}
