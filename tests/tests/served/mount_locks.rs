//! Files that a program above could map shared, without passthrough: its pages are not those of the host.

use crate::following::figure;
use LockKind::{Read, Unlock, Write};
use rustix::io::Errno;
use std::time::UNIX_EPOCH;
use thrufs_sys::lock::{END_OF_FILE, LockKind, RangeLock, ofd_get, ofd_set, ofd_set_wait};
use thrufs_tests::prelude::*;

const BYTES: usize = 3 * 4096;

/// With a file of [`BYTES`] zeros.
fn on_each_mount(options: &[&str], test: impl Fn(&Mounted)) {
    on_each(Lower::Tmpfs, options, |mounted, _| {
        fs::write(mounted.source().join("file"), [0; BYTES]).unwrap();
        test(mounted);
    });
}

fn without_passthrough(test: impl Fn(&Mounted)) {
    on_each_mount(&["nopassthrough"], test);
}

fn open(directory: &Path) -> File {
    let mut options = File::options();
    let options = options.read(true).write(true);
    options.open(directory.join("file")).unwrap()
}

fn map(file: &File, sharing: Sharing) -> io::Result<Mapping> {
    Mapping::new(file, BYTES, sharing)
}

pub fn ten_bytes(kind: LockKind, start: u64) -> RangeLock {
    RangeLock {
        kind,
        start,
        end: start + 9,
        pid: 0,
    }
}

fn everything(kind: LockKind) -> RangeLock {
    RangeLock {
        start: 0,
        end: END_OF_FILE,
        ..ten_bytes(kind, 0)
    }
}

fn set(file: &File, kind: LockKind, start: u64) -> rustix::io::Result<()> {
    ofd_set(file, &ten_bytes(kind, start))
}

fn wait_for(file: &File) {
    ofd_set_wait(file, &ten_bytes(Write, 0)).unwrap();
}

#[test]
fn programs_above_share_a_file_among_themselves_and_not_with_the_host() {
    without_passthrough(|mounted| {
        let beneath = open(mounted.source());
        let [one, two, three] = [(); 3].map(|()| open(mounted.mnt()));
        set(&beneath, Write, 100).unwrap();
        let asked = ten_bytes(Read, 105);
        assert_eq!(ofd_get(&one, &asked).unwrap().unwrap().start, 100);
        assert_eq!(set(&one, Read, 0), Err(Errno::AGAIN));
        set(&beneath, Unlock, 100).unwrap();
        set(&one, Write, 0).unwrap();
        assert_eq!(set(&beneath, Read, 100), Err(Errno::AGAIN));
        set(&two, Read, 20).unwrap();
        set(&three, Read, 20).unwrap();
        for start in [0, 20] {
            assert_eq!(set(&two, Write, start), Err(Errno::AGAIN));
            let found = ofd_get(&two, &ten_bytes(Write, start + 5)).unwrap();
            let found = found.map(|lock| (lock.start, lock.end));
            assert_eq!(found, Some((start, start + 9)));
        }
        assert_eq!(figure(mounted, "mount_locks"), 1);
        let mut explain = Command::new(programs::thrufs().unwrap());
        let explained = explain.arg("explain").arg(mounted.mnt().join("file"));
        let explained = explained.output().unwrap().stdout;
        let explained = String::from_utf8(explained).unwrap();
        assert!(explained.contains("by the mount"), "{explained}");
        set(&one, Unlock, 0).unwrap();
        drop(two);
        assert_eq!(set(&beneath, Read, 100), Err(Errno::AGAIN));
        drop(three);
        wait_until("unlocked", || set(&beneath, Read, 100).is_ok());
        drop(one);
        wait_until("none", || figure(mounted, "mount_locks") == 0);
    });
}

fn open_to_read(directory: &Path) -> File {
    File::open(directory.join("file")).unwrap()
}

/// Programs that only read keep out those that write on the host, and nobody else.
#[test]
fn descriptors_for_reading_lock_the_file_for_reading() {
    without_passthrough(|mounted| {
        let [one, two] = [(); 2].map(|()| open_to_read(mounted.mnt()));
        let (writer, beneath) = (open(mounted.mnt()), open(mounted.source()));
        set(&one, Read, 0).unwrap();
        set(&beneath, Read, 0).unwrap();
        assert_eq!(set(&beneath, Write, 100), Err(Errno::AGAIN));
        set(&two, Read, 20).unwrap();
        for start in [40, 0] {
            assert_eq!(set(&writer, Write, start), Err(Errno::AGAIN));
        }
        thread::scope(|scope| {
            let waiting = scope.spawn(|| ofd_set_wait(&writer, &ten_bytes(Write, 40)));
            set(&beneath, Unlock, 0).unwrap();
            waiting.join().unwrap().unwrap();
        });
        assert_eq!(set(&beneath, Read, 200), Err(Errno::AGAIN));
        assert_eq!(set(&writer, Write, 0), Err(Errno::AGAIN));
        set(&one, Unlock, 0).unwrap();
        set(&writer, Write, 0).unwrap();
        drop((one, two, writer));
        wait_until("unlocked", || set(&beneath, Write, 0).is_ok());
    });
}

/// What was locked before the mount locked the file.
#[test]
fn other_locks_do_not_leave_a_file_unguarded() {
    without_passthrough(|mounted| {
        let reader = open_to_read(mounted.mnt());
        let [one, two] = [(); 2].map(|()| open(mounted.mnt()));
        let beneath = open(mounted.source());
        let far = 1 << 31;
        for held in [everything(Read), ten_bytes(Read, 5), ten_bytes(Read, far)] {
            ofd_set(&reader, &held).unwrap();
            set(&one, Read, 5000).unwrap();
            assert_eq!(set(&beneath, Read, 100), Err(Errno::AGAIN), "{held:?}");
            assert_eq!(set(&two, Write, held.start), Err(Errno::AGAIN), "{held:?}");
            set(&one, Unlock, 5000).unwrap();
            assert_eq!(set(&beneath, Write, 100), Err(Errno::AGAIN), "{held:?}");
            ofd_set(&reader, &everything(Unlock)).unwrap();
            set(&two, Write, held.start).unwrap();
            set(&two, Unlock, held.start).unwrap();
            wait_until("unlocked", || set(&beneath, Write, 100).is_ok());
            set(&beneath, Unlock, 100).unwrap();
        }
        // One for writing cannot be moved.
        set(&one, Write, far).unwrap();
        assert_eq!(set(&two, Read, 0), Err(Errno::AGAIN));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| wait_for(&two));
            set(&one, Unlock, far).unwrap();
            waiting.join().unwrap();
        });
        assert_eq!(set(&beneath, Read, 100), Err(Errno::AGAIN));
        set(&two, Unlock, 0).unwrap();
        set(&one, Write, far).unwrap();
        wait_until("of the same owner", || set(&one, Write, 0).is_ok());
    });
}

/// A request that waits for locks that are set as they are holds up no range.
#[test]
fn one_that_waits_for_the_whole_file_delays_no_range() {
    without_passthrough(|mounted| {
        let [one, two] = [(); 2].map(|()| open(mounted.mnt()));
        let beneath = open(mounted.source());
        let is_locked = AtomicBool::new(false);
        ofd_set(&one, &everything(Read)).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                ofd_set_wait(&two, &everything(Write)).unwrap();
                is_locked.store(true, Ordering::Relaxed);
            });
            wait_until("it waits", || figure(mounted, "lock_owners") == 2);
            ofd_set(&one, &ten_bytes(Write, 0)).unwrap();
            assert_eq!(set(&beneath, Read, 100), Err(Errno::AGAIN));
            assert!(!is_locked.load(Ordering::Relaxed));
            ofd_set(&one, &everything(Unlock)).unwrap();
            waiting.join().unwrap();
        });
        assert_eq!(set(&beneath, Read, 100), Err(Errno::AGAIN));
        assert_eq!(set(&one, Read, 0), Err(Errno::AGAIN));
    });
}

/// On the host, a lock for reading of the whole file reaches to where those of owners above are moved.
#[test]
fn a_reader_of_the_host_does_not_keep_a_file_locked() {
    without_passthrough(|mounted| {
        let (reader, beneath) = (open_to_read(mounted.mnt()), open(mounted.source()));
        set(&reader, Read, 0).unwrap();
        ofd_set(&beneath, &everything(Read)).unwrap();
        set(&reader, Unlock, 0).unwrap();
        let writer = open(mounted.source());
        ofd_set(&beneath, &everything(Unlock)).unwrap();
        wait_until("unlocked", || set(&writer, Write, 0).is_ok());
    });
}

/// A request that waits for the host, for a lock that is set as it is, gets it before the mount or beside it, or waits for
/// that.
#[test]
fn one_that_waits_for_the_host_may_lock_and_unlock_beside_the_mount() {
    without_passthrough(|mounted| {
        let far = ten_bytes(Read, 1 << 31);
        let of_kind = |kind| RangeLock { kind, ..far };
        let beneath = open(mounted.source());
        for (opened, kind) in [(open_to_read as fn(&Path) -> File, Read), (open, Write)] {
            let [first, second] = [(); 2].map(|()| opened(mounted.mnt()));
            let waiters = |count: &str| {
                wait_until("it waits", || {
                    let statistics = mounted.ctl("statistics");
                    let mut lines = statistics.lines();
                    lines.any(|line| line.starts_with("waiting for locks") && line.ends_with(count))
                });
            };
            ofd_set(&beneath, &of_kind(Write)).unwrap();
            thread::scope(|scope| {
                let exact = scope.spawn(|| {
                    ofd_set_wait(&first, &of_kind(kind)).unwrap();
                    ofd_set_wait(&first, &ten_bytes(kind, 500)).unwrap();
                    ofd_set(&first, &everything(Unlock)).unwrap();
                });
                waiters(" 1");
                let range = scope.spawn(|| ofd_set_wait(&second, &ten_bytes(kind, 0)).unwrap());
                waiters(" 2");
                ofd_set(&beneath, &of_kind(Unlock)).unwrap();
                range.join().unwrap();
                set(&second, Unlock, 0).unwrap();
                exact.join().unwrap();
            });
            wait_until("unlocked", || ofd_set(&beneath, &everything(Write)).is_ok());
            ofd_set(&beneath, &everything(Unlock)).unwrap();
        }
    });
}

/// What the host has locked for reading, owners above that lock for reading too do not lose.
#[test]
fn locks_for_reading_stay_where_the_mount_cannot_lock_for_writing() {
    without_passthrough(|mounted| {
        let (reader, writer) = (open_to_read(mounted.mnt()), open(mounted.mnt()));
        let beneath = open(mounted.source());
        set(&beneath, Read, 100).unwrap();
        ofd_set(&reader, &everything(Read)).unwrap();
        assert_eq!(set(&writer, Write, 5000), Err(Errno::AGAIN));
        assert_eq!(set(&beneath, Write, 3000), Err(Errno::AGAIN));
        set(&beneath, Unlock, 100).unwrap();
        assert_eq!(set(&writer, Write, 5000), Err(Errno::AGAIN), "the reader's");
        assert_eq!(set(&beneath, Write, 3000), Err(Errno::AGAIN));
        drop(reader);
        wait_until("unlocked", || set(&writer, Write, 5000).is_ok());
    });
}

#[test]
fn what_one_side_stores_the_other_has_with_the_lock() {
    let caches = ["auto", "metadata", "never"];
    let options = caches.map(|cache| format!("nopassthrough,cache={cache}"));
    on_each_mount(&options.each_ref().map(|it| &**it), sides_store_in_turn);
}

fn sides_store_in_turn(mounted: &Mounted) {
    // Above first: what is mapped, a program beneath opens later.
    let files = [open(mounted.mnt()), open(mounted.source())];
    let mut maps = [&files[0], &files[1]].map(|file| map(file, Sharing::Shared).unwrap());
    let bytes = |map: &Mapping| [7, 4103, 8199].map(|at| map.load(at, 1)[0]);
    for turn in 1..40 {
        let (from, to) = (usize::from(turn % 2), usize::from((turn + 1) % 2));
        wait_for(&files[from]);
        assert_eq!(bytes(&maps[from]), [turn - 1; 3]);
        for at in [7, 4103, 8199] {
            maps[from].store(at, &[turn]);
        }
        set(&files[from], Unlock, 0).unwrap();
        wait_for(&files[to]);
        assert_eq!(bytes(&maps[to]), [turn; 3]);
        set(&files[to], Unlock, 0).unwrap();
    }
}

/// Each side counts under its lock until both have had it often: neither starves, and no count is lost.
#[test]
fn both_sides_get_their_turn() {
    const TURNS: u64 = 100;
    without_passthrough(|mounted| {
        let counts: [AtomicU64; 4] = Default::default();
        let (above, beneath) = (mounted.mnt(), mounted.source());
        let files = [above, above, beneath, beneath].map(open);
        let count = |file: &File, own: &AtomicU64| {
            let mut map = map(file, Sharing::Shared).unwrap();
            let is_done = |it: &AtomicU64| it.load(Ordering::Relaxed) >= TURNS;
            while !counts.iter().all(is_done) {
                wait_for(file);
                let counted = map.load(4096, 8).try_into().unwrap();
                let next = u64::from_le_bytes(counted) + 1;
                map.store(4096, &next.to_le_bytes());
                own.fetch_add(1, Ordering::Relaxed);
                set(file, Unlock, 0).unwrap();
            }
        };
        thread::scope(|scope| {
            for (file, own) in files.iter().zip(&counts) {
                scope.spawn(|| count(file, own));
            }
        });
        wait_for(&files[2]);
        let mut count = [0; 8];
        files[2].read_exact_at(&mut count, 4096).unwrap();
        let counted: u64 = counts.iter().map(|it| it.load(Ordering::Relaxed)).sum();
        assert_eq!(u64::from_le_bytes(count), counted);
    });
}

/// Also while some above has it at any moment.
#[test]
fn many_above_leave_the_host_its_turn() {
    without_passthrough(|mounted| {
        let beneath = open(mounted.source());
        let take_turn = |file: &File| {
            wait_for(file);
            set(file, Unlock, 0).unwrap();
        };
        let above: Vec<File> = (0..20).map(|_| open(mounted.mnt())).collect();
        let others = above.iter().map(|file| move || take_turn(file));
        while_repeating(others, || {
            for _ in 0..20 {
                take_turn(&beneath);
            }
        });
    });
}

#[test]
fn what_is_open_for_writing_beneath_is_not_mapped_shared() {
    without_passthrough(|mounted| {
        let writer = open(mounted.source());
        let above = open(mounted.mnt());
        let refused = map(&above, Sharing::Shared).err().unwrap();
        assert_eq!(refused.raw_os_error(), Some(libc::ENODEV));
        assert!(map(&above, Sharing::Private).is_ok());
        let mut byte = [0];
        for turn in 1..10 {
            writer.write_all_at(&[turn], 5000).unwrap();
            above.read_exact_at(&mut byte, 5000).unwrap();
            assert_eq!(byte, [turn]);
            above.write_all_at(&[100 + turn], 5000).unwrap();
            writer.read_exact_at(&mut byte, 5000).unwrap();
            assert_eq!(byte, [100 + turn]);
        }
        assert_eq!(figure(mounted, "unmapped_opens"), 1);
        drop(writer);
        // Pages of a second map would be written back over what the first open writes.
        let second = map(&open(mounted.mnt()), Sharing::Shared).err();
        assert_eq!(second.unwrap().raw_os_error(), Some(libc::ENODEV));
        drop(above);
        let reader = File::open(mounted.source().join("file")).unwrap();
        wait_until("can be mapped", || {
            map(&open(mounted.mnt()), Sharing::Shared).is_ok()
        });
        drop(reader);
    });
}

/// One program counts with write(2), another in a map of the same page, each under a lock of its own range. A page holds
/// bytes of both, and the kernel writes it back with both.
fn count_beside_a_map(mounted: &Mounted, writes: &File, stores: &File, turns: u64) {
    let (mut map, mut stored) = (map(stores, Sharing::Shared).unwrap(), 0_u64);
    let mut store = || {
        ofd_set_wait(stores, &ten_bytes(Write, 20)).unwrap();
        let last = map.load(20, 8).try_into().unwrap();
        assert_eq!(u64::from_le_bytes(last), stored);
        stored += 1;
        map.store(20, &stored.to_le_bytes());
        set(stores, Unlock, 20).unwrap();
    };
    // Has the kernel compare times, and drop pages.
    let mut ask = || assert!(stores.metadata().is_ok());
    let others: [&mut (dyn FnMut() + Send); 2] = [&mut store, &mut ask];
    while_repeating(others, || {
        for turn in 1..=turns {
            let mut last = [0; 8];
            wait_for(writes);
            writes.read_exact_at(&mut last, 0).unwrap();
            writes.write_all_at(&turn.to_le_bytes(), 0).unwrap();
            set(writes, Unlock, 0).unwrap();
            assert_eq!(u64::from_le_bytes(last), turn - 1, "a write is lost");
        }
    });
    let beneath = open(mounted.source());
    wait_for(&beneath);
    for (at, counted) in [(0, turns), (20, stored)] {
        let mut bytes = [0; 8];
        beneath.read_exact_at(&mut bytes, at).unwrap();
        assert_eq!(u64::from_le_bytes(bytes), counted);
    }
}

/// Also by an open without a cache, which was made while a program beneath had the file open for writing.
#[test]
fn what_is_written_is_not_written_over_by_maps() {
    for is_uncached in [true, false] {
        without_passthrough(|mounted| {
            let writer = is_uncached.then(|| open(mounted.source()));
            let writes = open(mounted.mnt());
            drop(writer);
            let stores = open(mounted.mnt());
            let refused = map(&writes, Sharing::Shared).err();
            let refused = refused.and_then(|error| error.raw_os_error());
            assert_eq!(refused, is_uncached.then_some(libc::ENODEV));
            let turns = if is_full() { 3000 } else { 1000 };
            count_beside_a_map(mounted, &writes, &stores, turns);
        });
    }
}

/// At another time of modification, the kernel drops the pages of a file, also those of a write(2) on its way.
#[test]
fn attributes_of_a_locked_file_are_true_and_leave_its_pages_alone() {
    without_passthrough(|mounted| {
        let file = open(mounted.mnt());
        let modified = |directory: &Path| {
            let found = fs::metadata(directory.join("file")).unwrap();
            found.modified().unwrap()
        };
        let [above, beneath] = [mounted.mnt(), mounted.source()].map(|it| move || modified(it));
        let write = || {
            let before = beneath();
            wait_until("later", || {
                file.write_all_at(b"written", 0).unwrap();
                beneath() > before
            });
            assert_eq!(above(), beneath());
        };
        let page = map(&file, Sharing::Shared).unwrap();
        let reads = || {
            let statistics = mounted.ctl("statistics");
            let reads = statistics
                .lines()
                .find_map(|line| line.strip_prefix("READ "));
            let count = reads.and_then(|figures| figures.split_whitespace().next());
            count.map_or(0, |count| count.parse::<u64>().unwrap())
        };
        set(&file, Write, 0).unwrap();
        page.load(0, 1);
        let before = reads();
        write();
        page.load(0, 1);
        let other = open(mounted.mnt());
        page.load(0, 1);
        assert_eq!(reads(), before, "the page is read again");
        let chosen = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        other.set_modified(chosen).unwrap();
        assert_eq!(above(), chosen);
        other.set_len(BYTES as u64 - 1).unwrap();
        write();
        set(&file, Unlock, 0).unwrap();
        wait_until("given up", || {
            ofd_set(open(mounted.source()), &everything(Write)).is_ok()
        });
        write();
        page.load(0, 1);
        assert!(reads() > before, "a file that nobody has locked");
    });
}

/// SQLite's journal says by its name whether it is in force.
#[test]
fn names_that_changed_before_a_lock_show_under_it() {
    const NAMES: usize = 64;
    on_each_mount(&["passthrough"], |mounted| {
        let (beneath, above) = (open(mounted.source()), open(mounted.mnt()));
        let name = |number| format!("journal-{number}");
        for turn in 0..50 {
            let exists = turn % 2 == 0;
            wait_for(&beneath);
            let waiting = thread::scope(|scope| {
                let waiting = scope.spawn(|| {
                    wait_for(&above);
                    let shown = |number: &usize| mounted.mnt().join(name(*number)).exists();
                    let shown = (0..NAMES).rev().filter(shown).count();
                    set(&above, Unlock, 0).unwrap();
                    shown
                });
                for number in 0..NAMES {
                    let path = mounted.source().join(name(number));
                    match exists {
                        true => fs::write(path, "").unwrap(),
                        false => fs::remove_file(path).unwrap(),
                    }
                }
                set(&beneath, Unlock, 0).unwrap();
                waiting.join().unwrap()
            });
            assert_eq!(waiting, if exists { NAMES } else { 0 }, "turn {turn}");
        }
    });
}

#[test]
fn with_passthrough_a_map_is_the_host_s_and_locks_are_as_they_are() {
    on_each_mount(&["passthrough"], |mounted| {
        let (beneath, above) = (open(mounted.source()), open(mounted.mnt()));
        set(&beneath, Write, 100).unwrap();
        set(&above, Write, 0).unwrap();
        assert_eq!(set(&beneath, Write, 0), Err(Errno::AGAIN));
        assert_eq!(set(&above, Write, 100), Err(Errno::AGAIN));
        let [mut stored, shown] =
            [&above, &beneath].map(|file| map(file, Sharing::Shared).unwrap());
        stored.store(4096, b"stored");
        assert_eq!(shown.load(4096, 6), b"stored");
        let figures = ["mount_locks", "unmapped_opens"].map(|it| figure(mounted, it));
        assert_eq!(figures, [0, 0]);
    });
}
