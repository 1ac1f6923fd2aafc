//! Shares mounted here through the queues of a virtio-fs device: random operations against a native twin
//! over queues of each shape, and faults beneath and between.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

use rustix::fs::flock;
use thrufs_testing::fence::record_lock::{self, Kind, Owner, Range};
use thrufs_tests::prelude::*;
use thrufs_tests::property;
use thrufs_tests::relayed::{Queues, Relay, Relayed, Share};

#[test]
fn operations_are_the_same_over_queues_of_each_shape() {
    skip_if!(must_skip());
    for queues in [Queues::USUAL, Queues::TWO, Queues::SHORT] {
        let relayed = Relayed::start_on(Lower::Default, "", queues).unwrap();
        let what = format!("share{}", queues.name());
        property::run_cases(&relayed, &what, &thrufs_test_report::test());
        relayed.relay().stop().unwrap();
    }
}

fn start(options: &str) -> Relayed {
    Relayed::start_on(Lower::Tmpfs, options, Queues::USUAL).unwrap()
}

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

const PATIENCE: Duration = Duration::from_secs(60);

/// The worker with a front end's connection: the one with threads of queues.
fn serving_workers(share: &Share) -> Vec<u32> {
    let serves = |pid: &u32| {
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
            return false;
        };
        let names = tasks.flatten().map(|task| task.path().join("comm"));
        names
            .filter_map(|name| fs::read_to_string(name).ok())
            .any(|name| name.starts_with("thrufs-queue"))
    };
    share.workers().into_iter().filter(serves).collect()
}

#[test]
fn many_files_at_once_come_back_whole() {
    skip_if!(must_skip());
    const THREADS: usize = 8;
    let relayed = Relayed::start_on(Lower::Tmpfs, "", Queues::TWO).unwrap();
    let mnt = relayed.relay().mnt();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for number in 0..20_usize {
                    let path = mnt.join(format!("{thread}-{number}"));
                    let byte = (thread * 31 + number) as u8;
                    let content = vec![byte; 1000 + number * 77_777];
                    fs::write(&path, &content).unwrap();
                    assert!(fs::read(&path).unwrap() == content, "{}", path.display());
                }
            });
        }
    });
    assert_eq!(fs::read_dir(mnt).unwrap().count(), THREADS * 20);
    for entry in fs::read_dir(relayed.ground().source()).unwrap() {
        fs::remove_file(mnt.join(entry.unwrap().file_name())).unwrap();
    }
    assert_eq!(fs::read_dir(mnt).unwrap().count(), 0);
    relayed.relay().stop().unwrap();
}

#[test]
fn programs_do_not_notice_that_a_worker_dies() {
    skip_if!(must_skip());
    let relayed = start("cache=never");
    let (mnt, share) = (relayed.relay().mnt(), relayed.share());
    let open = File::create(mnt.join("open")).unwrap();
    // Fewer deaths than are allowed in a minute.
    for round in 0..8_u64 {
        let workers = serving_workers(share);
        thread::scope(|scope| {
            let busy = scope.spawn(move || {
                for number in 0..200 {
                    let path = mnt.join(format!("file-{round}-{number}"));
                    fs::write(&path, [round as u8; 5000]).unwrap();
                    assert_eq!(fs::read(&path).unwrap(), [round as u8; 5000]);
                    let other = mnt.join(format!("moved-{round}-{number}"));
                    fs::rename(&path, &other).unwrap();
                    fs::remove_file(&other).unwrap();
                }
            });
            thread::sleep(Duration::from_millis(10 + 7 * round));
            kill_process(workers[0], Signal::KILL);
            busy.join().unwrap();
        });
        open.write_all_at(&[round as u8; 10], 10 * round).unwrap();
    }
    let content = fs::read(relayed.ground().source().join("open")).unwrap();
    let expected: Vec<u8> = (0..8).flat_map(|round| [round; 10]).collect();
    assert_eq!(content, expected);
    assert_eq!(fs::read_dir(mnt).unwrap().count(), 1);
}

/// The lock beneath outlives the worker, and what was stored by a map is written back before it falls.
#[test]
fn no_count_under_a_lock_is_lost_when_workers_die() {
    skip_if!(must_skip());
    let relayed = start("locks=shared");
    let roots = [relayed.relay().mnt(), relayed.ground().source()];
    fs::write(roots[1].join("lock"), [0; 4096]).unwrap();
    let counted = AtomicU64::new(0);
    // Opens it anew: a guest that has mapped a file before it gets the lock may see what was before.
    let count = |root: &Path| {
        let file = open_to_lock(root);
        let byte = Range { start: 9, len: 1 };
        record_lock::set(file.as_fd(), Owner::Description, Kind::Write, byte, true).unwrap();
        let mut map = Mapping::new(&file, 4096, Sharing::Shared).unwrap();
        for _ in 0..20 {
            let found = u64::from_le_bytes(map.load(800, 8).try_into().unwrap());
            assert_eq!(found, counted.load(Ordering::SeqCst), "{}", root.display());
            counted.store(found + 1, Ordering::SeqCst);
            map.store(800, &(found + 1).to_le_bytes());
            thread::sleep(Duration::from_millis(1));
        }
    };
    // Fewer deaths than are allowed in a minute.
    for round in 0..8 {
        let worker = || serving_workers(relayed.share()).pop();
        wait_until("a worker", || worker().is_some());
        thread::scope(|scope| {
            let count = &count;
            for root in roots {
                scope.spawn(move || (0..4).for_each(|_| count(root)));
            }
            thread::sleep(Duration::from_millis(10 + 13 * round));
            kill_process(worker().unwrap(), Signal::KILL);
        });
    }
    count(roots[1]);
}

#[test]
fn a_worker_that_dies_takes_the_mount_with_it_and_nothing_hangs() {
    skip_if!(must_skip());
    let relayed = start("cache=never,resume=0");
    let (mnt, share) = (relayed.relay().mnt(), relayed.share());
    let lock_path = mnt.join("locked");
    fs::write(&lock_path, "").unwrap();
    let open = File::create(mnt.join("file")).unwrap();
    let workers = serving_workers(share);
    assert_eq!(workers.len(), 1);
    thread::scope(|scope| {
        // Calls in progress all the time.
        let busy = scope.spawn(move || {
            let deadline = Instant::now() + PATIENCE;
            while Instant::now() < deadline {
                if let Err(error) = fs::metadata(mnt.join("file")) {
                    return error.raw_os_error();
                }
            }
            None
        });
        kill_process(workers[0], Signal::KILL);
        let seen = busy.join().unwrap();
        // ENOENT once the mount is gone and the directory beneath shows.
        let known = [libc::ENOTCONN, libc::ECONNABORTED, libc::EIO, libc::ENOENT];
        assert!(seen.is_some_and(|errno| known.contains(&errno)), "{seen:?}");
    });
    let status = relayed.relay().ended().expect("the relay ends");
    assert!(!status.success());
    assert!(relayed.relay().log_text().contains("the server is gone"));
    assert!(!is_mounted(mnt));
    let written = errno(open.write_at(b"x", 0));
    assert!(
        matches!(
            written,
            Some(libc::ENOTCONN | libc::ECONNABORTED | libc::EIO)
        ),
        "{written:?}"
    );
    // The next one is served.
    let again = Relay::start(share.socket(), mnt, Queues::USUAL).unwrap();
    assert!(lock_path.exists());
    again.stop().unwrap();
}

#[test]
fn a_share_with_few_descriptors_serves_many_files() {
    skip_if!(must_skip());
    let ground = Ground::prepare(Lower::Tmpfs).unwrap();
    let share = Share::start_limited(ground.source(), ground.base(), "", Some(128)).unwrap();
    let relay = Relay::start(share.socket(), ground.mnt(), Queues::USUAL).unwrap();
    let mnt = relay.mnt();
    for number in 0..1000 {
        fs::write(mnt.join(number.to_string()), number.to_string()).unwrap();
    }
    for number in 0..1000 {
        let content = fs::read_to_string(mnt.join(number.to_string())).unwrap();
        assert_eq!(content, number.to_string());
    }
    // More open files than the server may have: some are refused.
    let mut open = Vec::new();
    let refused = (0..300).find_map(|number| match File::open(mnt.join(number.to_string())) {
        Ok(file) => {
            open.push(file);
            None
        }
        Err(error) => error.raw_os_error(),
    });
    assert!(
        matches!(refused, None | Some(libc::EMFILE | libc::ENFILE)),
        "{refused:?}"
    );
    drop(open);
    fs::write(mnt.join("after"), "well").unwrap();
    relay.stop().unwrap();
}

fn is_free(file: &File) -> bool {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => true,
        Err(errno) => {
            assert_eq!(errno, rustix::io::Errno::WOULDBLOCK);
            false
        }
    }
}

fn open_to_lock(dir: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    options.open(dir.join("lock")).unwrap()
}

#[test]
fn several_clients_of_one_share_see_each_other() {
    skip_if!(must_skip());
    let ground = Ground::prepare(Lower::Tmpfs).unwrap();
    let options = "cache=never,locks=shared";
    let share = Share::start(ground.source(), ground.base(), options).unwrap();
    let mounts = ["a", "b", "c"].map(|name| {
        let mnt = ground.base().join(name);
        fs::create_dir(&mnt).unwrap();
        Relay::start(share.socket(), &mnt, Queues::USUAL).unwrap()
    });
    assert_eq!(serving_workers(&share).len(), 3, "a worker for each");
    let [a, b, c] = &mounts;
    fs::write(a.mnt().join("file"), "by a").unwrap();
    assert_eq!(fs::read_to_string(b.mnt().join("file")).unwrap(), "by a");
    let files = [a.mnt(), b.mnt(), c.mnt()].map(open_to_lock);
    assert!(is_free(&files[0]));
    assert!(!is_free(&files[1]));
    assert!(!is_free(&files[2]));
    assert!(!is_free(&open_to_lock(ground.source())), "nor beneath");
    // A waiter gets it when the holder is killed: its locks go with its worker.
    thread::scope(|scope| {
        let waiter = scope.spawn(|| flock(&files[1], FlockOperation::LockExclusive));
        thread::sleep(Duration::from_millis(100));
        assert!(!waiter.is_finished());
        kill_process(a.pid(), Signal::KILL);
        wait_until("the lock", || waiter.is_finished());
        waiter.join().unwrap().unwrap();
    });
    assert!(!is_free(&files[2]));
    drop(files);
    fs::write(c.mnt().join("file"), "by c").unwrap();
    assert_eq!(fs::read_to_string(b.mnt().join("file")).unwrap(), "by c");
    b.stop().unwrap();
    c.stop().unwrap();
    wait_until("the workers' end", || serving_workers(&share).is_empty());
}

#[test]
fn a_wait_for_a_lock_is_interrupted_through_the_queues() {
    skip_if!(must_skip());
    let relayed = start("cache=never,locks=shared");
    let holder = open_to_lock(relayed.ground().source());
    assert!(is_free(&holder));
    let mut waiter = Command::new("flock")
        .arg(relayed.relay().mnt().join("lock"))
        .arg("true")
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_millis(300));
    assert!(waiter.try_wait().unwrap().is_none(), "it waits");
    kill_process(waiter.id(), Signal::TERM);
    let mut ended = false;
    wait_until("the end of the waiter", || {
        ended = waiter.try_wait().unwrap().is_some();
        ended
    });
    drop(holder);
    let now = open_to_lock(relayed.relay().mnt());
    wait_until("the lock", || is_free(&now));
    drop(now);
    relayed.relay().stop().unwrap();
}

/// The kernel goes on opening files by itself, and the next worker is not asked to.
#[test]
fn opens_of_a_read_only_share_cost_nothing_and_outlive_its_worker() {
    skip_if!(must_skip());
    for options in ["ro,cache=always", "ro,cache=always,opens=local"] {
        let relayed = start(options);
        let (mnt, source) = (relayed.relay().mnt(), relayed.ground().source());
        for name in ["one", "two"] {
            fs::write(source.join(name), name).unwrap();
        }
        let read = |name: &str| fs::read_to_string(mnt.join(name)).unwrap();
        assert_eq!(read("one"), "one");
        let open = File::open(mnt.join("two")).unwrap();
        let workers = serving_workers(relayed.share());
        kill_process(workers[0], Signal::KILL);
        assert_eq!([read("one"), read("two")], ["one", "two"]);
        let mut byte = [0];
        assert_eq!(open.read_at(&mut byte, 2).unwrap(), 1);
        match Tracer::start(mnt) {
            Ok(tracer) => {
                let looks = || tracer.count(|| assert_eq!(read("one"), "one"));
                wait_until("no request", || looks().is_empty());
            }
            Err(error) => skipped(format!("no tracing here: {error}")),
        }
        // The guest does not know that the share is read-only.
        let written = OpenOptions::new().write(true).open(mnt.join("one"));
        let written = written.and_then(|file| file.write_at(b"X", 0));
        assert_eq!(errno(written), Some(libc::EROFS));
        assert_eq!(
            errno(File::create(mnt.join("one"))),
            Some(libc::EROFS),
            "truncated"
        );
        assert_eq!(fs::read_to_string(source.join("one")).unwrap(), "one");
        relayed.relay().stop().unwrap();
    }
}
