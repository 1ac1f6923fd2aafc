//! The same against a mount: processes of several users make every call at random and are killed in the
//! middle, while another uses the mount, and files beneath are moved.

use super::{StopAll, clean, descriptors, has_failed, snapshot, status};
use rustix::fs::renameat_with;
use std::os::unix::fs::OpenOptionsExt;
use thrufs_tests::prelude::*;
use thrufs_tests::property::PATHS;

/// Of misbehaving processes: root, and ordinary users.
const USERS: [&str; 3] = ["0", "4001", "4002"];

/// Private memory of the worker, in KiB, beside that of its inodes.
const WORKER_KIB_MAX: u64 = 48 << 10;

/// Descriptors of the worker: half of the limit for inodes, those that the processes have open at most, and
/// others.
const WORKER_DESCRIPTORS_MAX: usize = 512 + USERS.len() * 130 + 200;

/// Threads: readers, the pool, and waiters for locks.
const WORKER_THREADS_MAX: u64 = 200;

/// Few descriptors, so that there is pressure.
const LIMIT: u32 = 1024;

/// Longest life of such a process, in milliseconds.
const LIFE_MS_MAX: u64 = 400;

struct Hour<'a> {
    server: &'a Server,
    ground: &'a Ground,
    ends: AtomicBool,
    lives: AtomicU64,
    rounds: AtomicU64,
}

impl Hour<'_> {
    fn goes_on(&self) -> bool {
        !self.ends.load(Ordering::Relaxed)
    }

    /// One process after the other, each killed in the middle of something.
    fn misbehave(&self, user: &str, seed: u64) {
        let _ends = StopAll(&self.ends);
        let mut random = Random(seed);
        let place = self.ground.mnt().to_str().unwrap();
        while self.goes_on() {
            let seed = (random.number() as u32).to_string();
            let process = programs::start_helper(&["storm", place, &seed, user]);
            thread::sleep(Duration::from_millis(1 + random.number() % LIFE_MS_MAX));
            // It can be killed whatever it waits for.
            process.kill();
            self.lives.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn move_beneath(&self, seed: u64) {
        let _ends = StopAll(&self.ends);
        let mut random = Random(seed);
        while self.goes_on() {
            let name = |random: &mut Random| self.ground.source().join(random.pick(&PATHS));
            let (one, other) = (name(&mut random), name(&mut random));
            let _ = match random.number() % 4 {
                0 => {
                    renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).map_err(Into::into)
                }
                1 => fs::rename(one, other),
                2 => fs::remove_file(one),
                // Non-blocking: it may have become a fifo.
                _ => OpenOptions::new()
                    .write(true)
                    .create(true)
                    .custom_flags(libc::O_NONBLOCK)
                    .open(one)
                    .and_then(|mut file| file.write_all(b"from beneath")),
            };
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// A well-behaved client, all the while.
    fn use_it(&self, directory: &Path) {
        let _ends = StopAll(&self.ends);
        while self.goes_on() {
            let round = self.rounds.fetch_add(1, Ordering::Relaxed);
            use_it(directory, round);
        }
    }

    /// Checks the log and the resources from outside.
    fn watch(&self, seconds: u64) {
        let _ends = StopAll(&self.ends);
        let deadline = Instant::now() + Duration::from_secs(seconds);
        let (supervisor, worker) = (self.server.pid(), self.server.worker());
        let mut most = (0, 0, 0);
        while Instant::now() < deadline && self.goes_on() {
            thread::sleep(Duration::from_millis(200));
            clean(self.ground.source());
            assert_eq!(self.server.worker(), worker, "no other has taken its place");
            let now = (
                status(worker, "RssAnon"),
                descriptors(worker),
                status(worker, "Threads"),
            );
            assert!(now.0 < WORKER_KIB_MAX, "the worker has {} KiB", now.0);
            assert!(
                now.1 < WORKER_DESCRIPTORS_MAX,
                "the worker has {} descriptors",
                now.1
            );
            assert!(
                now.2 < WORKER_THREADS_MAX,
                "the worker has {} threads",
                now.2
            );
            assert!(status(supervisor, "RssAnon") < 16 << 10);
            most = (most.0.max(now.0), most.1.max(now.1), most.2.max(now.2));
        }
        println!(
            "the worker had {} KiB, {} descriptors and {} threads at most",
            most.0, most.1, most.2
        );
    }
}

/// Makes, writes, reads, moves and removes a file.
fn use_it(directory: &Path, round: u64) {
    let (path, moved) = (
        directory.join(format!("file-{round}")),
        directory.join("moved"),
    );
    let bytes: Vec<u8> = (0..10_000_u64).map(|at| (at * 7 + round) as u8).collect();
    let file = File::create_new(&path).unwrap();
    match file.write_all_at(&bytes, 0) {
        Ok(()) => {
            assert!(fs::read(&path).unwrap() == bytes);
            assert_eq!(fs::metadata(&path).unwrap().size(), 10_000);
        }
        // Others may have filled the file system.
        Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}"),
    }
    drop(file);
    fs::rename(&path, &moved).unwrap();
    fs::remove_file(&moved).unwrap();
}

fn figure(mnt: &Path, name: &str) -> u64 {
    let text = programs::ctl(mnt, "statistics");
    let mut words = text.split_whitespace();
    let found = words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    found
        .unwrap_or_else(|| panic!("no {name} in {text}"))
        .parse()
        .unwrap()
}

fn a_hostile_time(options: &str) {
    let seconds = thrufs_test_report::number("THRUFS_HOSTILE_SECONDS", super::SECONDS_DEFAULT);
    let seed = thrufs_test_report::seed();
    let ground = Ground::prepare(Lower::Tmpfs).unwrap();
    fs::write(ground.outside().join("a"), "not theirs").unwrap();
    let outside = snapshot(ground.outside()).unwrap();
    let server = Server::start(&ground, options, Some(LIMIT));
    // Any user may make files at the top.
    clean(ground.source());
    let place = ground.mnt().join("well-meaning");
    fs::create_dir(&place).unwrap();
    let usual = descriptors(server.worker());
    let hour = Hour {
        server: &server,
        ground: &ground,
        ends: AtomicBool::new(false),
        lives: AtomicU64::new(0),
        rounds: AtomicU64::new(0),
    };
    let hour = &hour;
    thread::scope(|scope| {
        scope.spawn(|| hour.use_it(&place));
        scope.spawn(move || hour.move_beneath(seed));
        for (number, user) in USERS.into_iter().enumerate() {
            scope.spawn(move || hour.misbehave(user, seed + 1000 * (number as u64 + 1)));
        }
        hour.watch(seconds);
    });
    let (lives, rounds) = (&hour.lives, hour.rounds.load(Ordering::Relaxed));
    println!("{options}: {lives:?} processes killed, {rounds} rounds of good use");
    assert!(rounds > seconds, "hardly anything else went on");
    wait_until("everything to be closed", || {
        figure(ground.mnt(), "open_files") == 0
    });
    let most = usual + LIMIT as usize / 2;
    wait_until("descriptors to be given back", || {
        descriptors(server.worker()) <= most
    });
    clean(ground.source());
    use_it(&place, 0);
    assert_eq!(snapshot(ground.outside()).unwrap(), outside);
    let log = server.log_text();
    assert!(!has_failed(&log), "{log}");
    server.stop();
}

#[test]
#[ignore = "soak: at random for a time, against bounds of memory"]
fn a_hostile_time_of_a_mount() {
    if !must_skip() {
        a_hostile_time("transport=dev");
    }
}

#[test]
#[ignore = "soak: at random for a time, against bounds of memory"]
fn a_hostile_time_of_a_mount_without_passthrough_over_the_ring() {
    if !must_skip() {
        a_hostile_time("transport=uring,nopassthrough,locks=shared");
    }
}
