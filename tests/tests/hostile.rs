//! Misbehaving front ends and guests, at random and several at once, against a real `thrufs share` that
//! others use.
//!
//! `THRUFS_HOSTILE_SECONDS` is the duration (`cargo xtask soak hostile`), `THRUFS_SEED` the seed.
//! Invariants:
//!
//! * no worker dies;
//! * a well-behaved client that is connected meanwhile goes on, and its data are right;
//! * one that connects afterwards is served;
//! * memory and descriptors of the supervisor, and of a worker whose guest misbehaves without leaving,
//!   stay below the bounds named here;
//! * nothing beside the directory is touched.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

#[path = "hostile/mount.rs"]
mod mount;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use thrufs_client::misbehave::storm::{Session, episode};
use thrufs_client::{Client, FrontEnd, FrontEndConfig};
use thrufs_testing::StopAll;
use thrufs_tests::compare::snapshot;
use thrufs_tests::machine::{descriptors, status};
use thrufs_tests::prelude::*;
use thrufs_tests::relayed::Share;

const SECONDS_DEFAULT: u64 = 6;

/// Clients that misbehave at once.
const HOSTILE: usize = 3;

/// Descriptors of the supervisor beyond those without a connection: for each machine a channel, the ends of
/// two processes and a socket for requests; events of 32 threads of its front end; and kept state: memory,
/// three for each queue, locks.
const SUPERVISOR_DESCRIPTORS_MAX: usize = 8 * (16 + 2 * 32 + 48);

/// Private memory of the supervisor, in KiB.
const SUPERVISOR_KIB_MAX: u64 = 64 << 10;

/// Private memory of a worker whose guest misbehaves, in KiB: requests in progress, and tables. Some 3 MiB
/// were seen.
const WORKER_KIB_MAX: u64 = 32 << 10;

/// Descriptors of a worker in a later session beyond those in its first one, however many its guest had
/// opened: those of a thread that is about to end.
const DESCRIPTORS_BESIDE_MAX: usize = 4;

/// The same of threads.
const THREADS_BESIDE_MAX: u64 = 8;

/// Episodes that are printed when a worker dies.
const RECENT_MAX: usize = 20;

const PATIENCE: Duration = Duration::from_secs(60);

fn connect(share: &Share) -> Client<FrontEnd> {
    let config = FrontEndConfig {
        // More than the server lets wait for locks: otherwise a machine whose buffers all wait could not
        // send that it reboots.
        requests_max: 512,
        time_limit: Some(PATIENCE),
        ..FrontEndConfig::default()
    };
    // Others may have taken all places for a moment: it waits for its turn.
    Client::mount(FrontEnd::connect(share.socket(), &config).unwrap()).unwrap()
}

/// A round of a well-behaved client: false when there was no room for it.
fn use_it(client: &Client<FrontEnd>, directory: NodeId, round: u64) -> bool {
    const READ_WRITE: i32 = 2;
    let root = client.root();
    let name = format!("file-{round}");
    let (entry, open) = match root.create(directory, name.as_bytes(), READ_WRITE, 0o600) {
        Ok(made) => made,
        Err(Errno::ENOSPC) => return false,
        Err(errno) => panic!("create: {errno}"),
    };
    let node = NodeId(entry.nodeid);
    let bytes: Vec<u8> = (0..10_000_u64).map(|at| (at * 7 + round) as u8).collect();
    let written = root.write(node, open.fh, 0, &bytes, 0);
    let whole = match written {
        Ok(count) => count as usize == bytes.len(),
        Err(Errno::ENOSPC) => false,
        Err(errno) => panic!("write: {errno}"),
    };
    if whole {
        let read = root.read(node, open.fh, 0, 20_000).unwrap();
        assert!(read == bytes, "what was written is read, round {round}");
        assert_eq!(root.getattr(node).unwrap().attr.size, 10_000);
    }
    root.release(node, open.fh).unwrap();
    root.unlink(directory, name.as_bytes()).unwrap();
    root.forget(node, 1);
    whole
}

/// A directory for well-behaved clients, under a name that no other client uses.
fn own_place(client: &Client<FrontEnd>, name: &str) -> NodeId {
    let made = client.root().mkdir(NodeId::ROOT, name.as_bytes(), 0o700);
    NodeId(made.unwrap().nodeid)
}

/// Removes what misbehaving clients made, and restores the directory's mode.
fn clean(source: &Path) {
    let _ = fs::set_permissions(source, fs::Permissions::from_mode(0o755));
    for entry in fs::read_dir(source).unwrap().flatten() {
        let name = entry.file_name();
        if name.to_string_lossy().starts_with("well-meaning") {
            continue;
        }
        let path = entry.path();
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
    }
}

struct Hour<'a> {
    share: &'a Share,
    source: &'a Path,
    ends: AtomicBool,
    episodes: AtomicU64,
    counts: Mutex<BTreeMap<&'static str, u64>>,
    /// The last episodes, with their seeds.
    recent: Mutex<VecDeque<String>>,
    rounds: AtomicU64,
    bursts: AtomicU64,
    answered: AtomicU64,
    succeeded: AtomicU64,
}

impl Hour<'_> {
    fn goes_on(&self) -> bool {
        !self.ends.load(Ordering::Relaxed)
    }

    /// Misbehaving connections, one after the other.
    fn misbehave(&self, seed: u64) {
        let _ends = StopAll(&self.ends);
        let mut random = Random(seed);
        while self.goes_on() {
            let before = random.clone();
            let name = episode(self.share.socket(), &mut random);
            self.episodes.fetch_add(1, Ordering::Relaxed);
            *self.counts.lock().unwrap().entry(name).or_default() += 1;
            let mut recent = self.recent.lock().unwrap();
            if recent.len() == RECENT_MAX {
                recent.pop_front();
            }
            recent.push_back(format!("{name} from {before:?}"));
        }
    }

    /// One misbehaving connection that never leaves, of a machine that is rebooted now and then.
    fn stay(&self, seed: u64) {
        let _ends = StopAll(&self.ends);
        let mut random = Random(seed);
        let mut client = connect(self.share);
        let worker = worker_of(self.share, &client);
        let usual = (descriptors(worker), status(worker, "Threads"));
        let (mut memory_most, mut threads_most) = (0, 0);
        while self.goes_on() {
            let mut session = Session::new();
            for _ in 0..100 {
                let goes_on = session.burst(client.carrier(), &mut random);
                self.bursts.fetch_add(1, Ordering::Relaxed);
                let memory = status(worker, "RssAnon");
                assert!(memory < WORKER_KIB_MAX, "a worker has {memory} KiB");
                memory_most = memory_most.max(memory);
                if goes_on.is_none() || session.has_ended || !self.goes_on() {
                    break;
                }
            }
            self.answered.fetch_add(session.answered, Ordering::Relaxed);
            self.succeeded
                .fetch_add(session.succeeded, Ordering::Relaxed);
            // As at a reboot: the front end stays, and the session ends.
            client = match Client::mount(client.unmount()) {
                Ok(client) => client,
                Err(error) => panic!("a session after a hostile one: {error}"),
            };
            // Files of the session before were closed before this one began.
            let now = descriptors(worker);
            let most = usual.0 + DESCRIPTORS_BESIDE_MAX;
            assert!(
                now <= most,
                "{now} descriptors after a reboot, {usual:?} at first"
            );
            let threads = status(worker, "Threads");
            threads_most = threads_most.max(threads);
            let most = usual.1 + THREADS_BESIDE_MAX;
            assert!(
                threads <= most,
                "{threads} threads after a reboot, {usual:?} at first"
            );
        }
        println!("the one that stayed had {memory_most} KiB and {threads_most} threads at most");
    }

    /// A well-behaved client, all the while.
    fn use_it(&self) {
        let _ends = StopAll(&self.ends);
        let client = connect(self.share);
        let place = own_place(&client, "well-meaning");
        while self.goes_on() {
            let round = self.rounds.fetch_add(1, Ordering::Relaxed);
            use_it(&client, place, round);
        }
    }

    /// Checks the log and the resources from outside.
    fn watch(&self, seconds: u64, usual: usize) {
        let _ends = StopAll(&self.ends);
        let deadline = Instant::now() + Duration::from_secs(seconds);
        let pid = self.share.pid();
        let mut read = 0;
        while Instant::now() < deadline && self.goes_on() {
            thread::sleep(Duration::from_millis(500));
            clean(self.source);
            let log = self.share.log_text();
            let news = &log[read..];
            let recent = || self.recent.lock().unwrap().clone();
            assert!(!has_failed(news), "after {:#?}:\n{news}", recent());
            // The last line may be incomplete.
            read = log.rfind('\n').map_or(read, |at| at + 1);
            let (memory, count) = (status(pid, "RssAnon"), descriptors(pid));
            assert!(
                memory < SUPERVISOR_KIB_MAX,
                "the supervisor has {memory} KiB"
            );
            let most = usual + SUPERVISOR_DESCRIPTORS_MAX;
            assert!(count < most, "the supervisor has {count} descriptors");
        }
    }
}

/// The worker of a newly connected client: the one that maps the client's memory.
fn worker_of(share: &Share, client: &Client<FrontEnd>) -> u32 {
    // The only one beside the spare worker.
    let _ = client.greeting();
    let maps = |pid: &u32| {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        maps.contains("memfd:thrufs-client")
    };
    let workers: Vec<u32> = share.workers().into_iter().filter(maps).collect();
    *workers
        .first()
        .expect("a worker that has the memory of a guest")
}

#[test]
#[ignore = "soak: at random for a time, against bounds of memory"]
fn a_hostile_time() {
    skip_if!(must_skip());
    let seconds = thrufs_test_report::number("THRUFS_HOSTILE_SECONDS", SECONDS_DEFAULT);
    let seed = thrufs_test_report::seed();
    let ground = Ground::prepare(Lower::Tmpfs).unwrap();
    fs::write(ground.outside().join("a"), "not theirs").unwrap();
    fs::create_dir(ground.outside().join("dir")).unwrap();
    let outside = snapshot(ground.outside()).unwrap();
    let share = Share::start(ground.source(), ground.base(), "locks=shared").unwrap();
    wait_until("a worker that waits", || share.workers().len() == 1);
    let usual = descriptors(share.pid());
    let hour = Hour {
        share: &share,
        source: ground.source(),
        ends: AtomicBool::new(false),
        episodes: AtomicU64::new(0),
        counts: Mutex::default(),
        recent: Mutex::default(),
        rounds: AtomicU64::new(0),
        bursts: AtomicU64::new(0),
        answered: AtomicU64::new(0),
        succeeded: AtomicU64::new(0),
    };
    let hour = &hour;
    thread::scope(|scope| {
        let stayer = scope.spawn(move || hour.stay(seed));
        // So that it finds its worker.
        wait_until("the first", || {
            hour.bursts.load(Ordering::Relaxed) > 0 || stayer.is_finished()
        });
        scope.spawn(|| hour.use_it());
        for number in 0..HOSTILE as u64 {
            scope.spawn(move || hour.misbehave(seed + 1000 * (number + 1)));
        }
        hour.watch(seconds, usual);
    });
    let (rounds, bursts) = (&hour.rounds, &hour.bursts);
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    println!(
        "{} episodes {:?}, {bursts:?} bursts with {} answers, {} of them good, {rounds:?} rounds of \
         good use",
        of(&hour.episodes),
        hour.counts.lock().unwrap(),
        of(&hour.answered),
        of(&hour.succeeded),
    );
    // Otherwise only the refusal of connections was tested.
    assert!(of(&hour.succeeded) * 20 > of(&hour.answered));
    assert!(rounds.load(Ordering::Relaxed) > seconds);
    wait_until("all workers but one to end", || share.workers().len() == 1);
    // The watcher of the spare worker may not have been there at first.
    let most = usual + 1;
    wait_until("descriptors to be closed", || {
        descriptors(share.pid()) <= most
    });
    clean(ground.source());
    let client = connect(&share);
    let place = own_place(&client, "well-meaning-afterwards");
    assert!(use_it(&client, place, 0), "there is room");
    client.unmount();
    assert_eq!(snapshot(ground.outside()).unwrap(), outside);
    let log = share.log_text();
    assert!(!has_failed(&log), "{log}");
}

/// Whether a log reports a dead worker, or a request that made the file system panic.
fn has_failed(log: &str) -> bool {
    log.contains("died") || log.contains("panicked")
}
