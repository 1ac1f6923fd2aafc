//! A file that is written again and again beneath costs events only as often as somebody looks at it above.

use crate::following::{bind, figure, unmount_idle};
use rustix::fs::stat;
use thrufs_tests::mounted::on_each_path;
use thrufs_tests::prelude::*;
use thrufs_tests::transport::Transport;

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
    fn new<'a>(mounted: &'a Mounted, name: &str) -> Log<'a> {
        let append = OpenOptions::new().create(true).append(true).clone();
        let log = Log {
            mounted,
            file: append.open(mounted.source().join(name)).unwrap(),
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

    /// Which costs next to no events and notifications.
    #[track_caller]
    fn append_many(&mut self) {
        let costs = || ["follow_events", "follow_notifications"].map(|it| figure(self.mounted, it));
        let before = costs();
        (0..APPENDS).for_each(|_| self.append());
        self.mounted.settle();
        for (before, after) in before.into_iter().zip(costs()) {
            assert!(after - before < APPENDS / 100, "{before} and then {after}");
        }
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

/// With the default timeouts, for which nothing asks again by itself. Over each transport, with each mark and with each
/// path: every two of them together, not all three.
fn with_each_mark(test: impl Fn(&Mounted)) {
    over_each(|transport| {
        let [auto, directories] = match transport {
            Transport::Dev => ["passthrough", "nopassthrough"],
            Transport::Uring => ["nopassthrough", "passthrough"],
        };
        for options in [
            format!("follow=auto,{auto}"),
            format!("follow=directories,{directories}"),
            "opens=local".to_owned(),
        ] {
            let mut mounted = Mounted::start_on(Lower::Tmpfs, &transport.with(&options)).unwrap();
            test(&mounted);
            mounted.stop().unwrap();
        }
    });
}

#[test]
fn a_log_costs_events_only_as_often_as_it_is_looked_at() {
    with_each_mark(|mounted| {
        let mut log = Log::new(mounted, "log");
        let reader = File::open(&log.above).unwrap();
        for look in 0..LOOKS {
            log.append_until_silent();
            log.append_many();
            if look % 2 == 0 {
                assert_eq!(log.length_above(), log.length);
            }
            let mut line = [0; 9];
            let read = reader.read_at(&mut line, log.length - 8).unwrap();
            let last = format!("{:07}\n", log.length / 8 - 1);
            assert_eq!(line[..read], *last.as_bytes());
            log.shows_next_append();
        }
    });
}

/// The kernel asks for pages of a map, but not for attributes.
#[test]
fn a_page_of_a_silent_file_changes_with_it() {
    with_each_mark(|mounted| {
        let mut log = Log::new(mounted, "log");
        log.append_until_silent();
        let reader = File::open(&log.above).unwrap();
        assert_eq!(log.length_above(), log.length);
        let map = Mapping::new(&reader, 4096.min(log.length as usize), Sharing::Private).unwrap();
        log.append_until_silent();
        let beneath = mounted.source().join("log");
        let writer = OpenOptions::new().write(true).open(beneath).unwrap();
        for byte in *b"abcdefgh" {
            writer.write_all_at(&[byte], 0).unwrap();
            mounted.settle();
            assert_eq!(map.load(0, 1), [byte]);
        }
    });
}

/// As one that is new, in a directory that is watched; and the mark beneath outlives what the kernel above has of the
/// file.
#[test]
fn a_file_that_the_kernel_does_not_know_becomes_silent_and_shows() {
    with_each_mark(|mounted| {
        let mut log = Log::new(mounted, "log");
        for _ in 0..5 {
            shrink_dcache(mounted.mnt()).unwrap();
            log.append_until_silent();
            log.append_many();
            shrink_dcache(mounted.mnt()).unwrap();
            log.append();
            assert_eq!(log.length_above(), log.length);
            log.shows_next_append();
        }
    });
}

/// Its writer has nothing to do with the source, until it is moved there.
#[test]
fn a_file_elsewhere_on_the_file_system_becomes_silent() {
    on_each_path(Lower::Tmpfs, "follow=auto", |mounted| {
        let elsewhere = mounted.outside().join("log");
        let mut log = Log {
            mounted,
            file: File::create(&elsewhere).unwrap(),
            length: 0,
            above: mounted.mnt().join("log"),
        };
        log.append_until_silent();
        log.append_many();
        fs::rename(&elsewhere, mounted.source().join("log")).unwrap();
        mounted.settle();
        assert_eq!(log.length_above(), log.length);
        log.shows_next_append();
    });
}

/// The kernel has an inode for each of two mounts of the file system.
#[test]
fn a_silent_file_shows_at_both_of_its_places() {
    with_each_mark(|mounted| {
        let beneath = ["directory", "bound"].map(|name| mounted.source().join(name));
        beneath.iter().for_each(|it| fs::create_dir(it).unwrap());
        let bound = bind(&beneath[0], &beneath[1]);
        let mut log = Log::new(mounted, "directory/log");
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
    with_each_mark(|mounted| {
        let mut log = Log::new(mounted, "log");
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
