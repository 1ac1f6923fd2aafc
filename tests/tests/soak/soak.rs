//! Rounds of changes, each followed by a barrier and a comparison.

use crate::changes::Changes;
use crate::compare;
use crate::readers::{Held, Reader, Signals};
use crate::served::{ORDER, Order};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use thrufs_hostdir::FileHandles;
use thrufs_tests::prelude::*;

/// Environment variable with a [`Soak`], for a process of another user.
pub const SOAK: &str = "THRUFS_SOAK_RUN";

/// A round that takes longer hangs.
const ROUND_MAX: Duration = Duration::from_secs(60);

const READERS: u64 = 2;

/// Fewest rounds: on a slow machine they take longer.
const ROUNDS_MIN: u64 = 8;

/// One soak.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Soak {
    pub order: Order,
    pub outside: PathBuf,
    /// Other mounts of the source, by which changes are made: their servers change a file by any of its names, also one
    /// in a directory that is not served.
    pub writable: Vec<PathBuf>,
    pub time: Duration,
    /// Whether one mark on the file system reports names that no directory above has.
    pub has_stray_links: bool,
    pub has_subvolumes: bool,
}

/// What a soak found.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    pub rounds: u64,
    pub changes: u64,
    pub stale: usize,
}

/// The server: a child process.
struct Server {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Server {
    fn start(order: &Order) -> Server {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(ORDER, serde_json::to_string(order).unwrap())
            .env_remove(SOAK)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut server = Server {
            child,
            input,
            output,
        };
        let said = server.line();
        eprintln!("{said}");
        assert!(said.starts_with("serving"), "{said}");
        assert_eq!(said.to_lowercase().contains("uring"), order.ring, "{said}");
        server
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn ask(&mut self, what: &str) -> String {
        writeln!(self.input.as_mut().unwrap(), "{what}").unwrap();
        self.line()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.input = None;
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.child.try_wait().unwrap().is_none() {
            if Instant::now() > deadline {
                let _ = self.child.kill();
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Soak {
    /// Whether an inode is lost above when it is moved or removed beneath.
    pub fn loses_moved(&self) -> bool {
        self.order.file_handles == FileHandles::Never
    }

    /// Whether a change by a file handle shows.
    pub fn shows_handles(&self) -> bool {
        self.has_stray_links || self.loses_moved()
    }

    /// Runs it to the first stale answers, which it prints.
    pub fn run(&self) -> Outcome {
        eprintln!("seed {}: {:?}", self.order.seed, self.order);
        let mut server = Server::start(&self.order);
        let held = Held::default();
        let signals = Arc::new(Signals::default());
        let round = Arc::new(AtomicU64::new(0));
        let hung = watch(&round, server.child.id());
        let readers = (0..READERS).map(|number| {
            let reader = Reader {
                random: Random(self.order.seed ^ (number + 1) << 32),
                mnt: self.order.mnt.clone(),
                held: Arc::clone(&held),
            };
            let signals = Arc::clone(&signals);
            thread::spawn(move || reader.run(&signals))
        });
        let readers: Vec<_> = readers.collect();
        let outcome = self.rounds(&mut server, &held, &signals, &round);
        signals.ends.store(true, Ordering::SeqCst);
        for reader in readers {
            reader.join().unwrap();
        }
        assert!(!hung.load(Ordering::SeqCst), "a call into the mount hung");
        held.lock().unwrap().clear();
        let figures = server.ask("figures");
        eprintln!("{outcome:?} {figures}");
        assert!(!figures.contains("silenced: 0"), "no file became silent");
        round.store(u64::MAX, Ordering::SeqCst);
        outcome
    }

    fn rounds(
        &self,
        server: &mut Server,
        held: &Held,
        signals: &Signals,
        round: &AtomicU64,
    ) -> Outcome {
        let mut random = Random(self.order.seed ^ 0xfeed);
        let mut changes = Changes::new(self);
        let mut outcome = Outcome::default();
        let deadline = Instant::now() + self.time;
        while outcome.stale == 0 && (Instant::now() < deadline || outcome.rounds < ROUNDS_MIN) {
            outcome.rounds = round.fetch_add(1, Ordering::SeqCst) + 1;
            for _ in 0..=random.below(60) {
                changes.one();
                if random.once_in(50) {
                    // Only root may make the kernel forget what is not in use.
                    let _ = shrink_dcache(&self.order.mnt);
                }
                if random.once_in(3) {
                    thread::sleep(Duration::from_micros(random.below(1500) as u64));
                }
            }
            changes.close_maps();
            // A question that is in flight must not bring back what was before the barrier.
            let pauses = random.once_in(2);
            signals.pauses.store(pauses, Ordering::SeqCst);
            assert_eq!(server.ask("settle"), "settled");
            let stale = compare::stale(self, held);
            signals.pauses.store(false, Ordering::SeqCst);
            outcome.stale = stale.len();
            for stale in stale {
                eprintln!("STALE (readers paused: {pauses}): {stale}");
            }
        }
        if outcome.stale > 0 {
            eprintln!("after\n    {}", changes.history());
        }
        outcome.changes = changes.count;
        outcome
    }
}

/// Kills the server if a round hangs, and tells that: calls into its mount then fail.
fn watch(round: &Arc<AtomicU64>, server: u32) -> Arc<AtomicBool> {
    let hung = Arc::new(AtomicBool::new(false));
    let (hangs, round) = (Arc::clone(&hung), Arc::clone(round));
    thread::spawn(move || {
        let mut last = (0, Instant::now());
        while last.0 != u64::MAX {
            thread::sleep(Duration::from_millis(500));
            let now = round.load(Ordering::SeqCst);
            if now != last.0 {
                last = (now, Instant::now());
            } else if last.1.elapsed() > ROUND_MAX {
                hangs.store(true, Ordering::SeqCst);
                eprintln!("round {now} hangs: the server, process {server}, is killed");
                let pid = rustix::process::Pid::from_raw(server as i32).unwrap();
                let _ = rustix::process::kill_process(pid, Signal::KILL);
                return;
            }
        }
    });
    hung
}
