//! Rounds of changes, each followed by a barrier and a comparison.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use thrufs_hostdir::FileHandles;
use thrufs_testing::Random;
use thrufs_tests::mount_point::shrink_dcache;

use crate::changes::Changes;
use crate::compare::{Compared, StaleAnswer};
use crate::counters::{Counted, Program};
use crate::readers::{Held, Reader, Signals};
use crate::served::{ORDER, Order};

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
    pub outside: std::path::PathBuf,
    /// Where the share of the source is mounted, and perhaps another mount. With stray links, changes are made there
    /// as well: servers change a file by any of its names, also one in a directory that is not served.
    pub writable: Vec<std::path::PathBuf>,
    pub time: Duration,
    pub has_exact_blocks: bool,
    pub has_stray_links: bool,
    pub sees_replaced: bool,
    pub has_subvolumes: bool,
    /// Whether the first stale answer ends it.
    pub ends_when_stale: bool,
}

/// What a soak found.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    pub rounds: u64,
    pub changes: u64,
    pub stale: u64,
    pub counted: u64,
    /// How often a counter was not what the last who had its lock has stored.
    pub lost: u64,
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
    /// Runs it, and prints each stale answer.
    pub fn run(&self) -> Outcome {
        eprintln!("seed {}: {:?}", self.order.seed, self.order);
        let mut server = Server::start(&self.order);
        let held = Held::default();
        let signals = Arc::new(Signals::default());
        let round = Arc::new(AtomicU64::new(0));
        let hung = watch(&round, server.child.id());
        let readers: Vec<_> = (0..READERS)
            .map(|number| {
                let reader = Reader {
                    random: Random(self.order.seed ^ (number + 1) << 32),
                    mnt: self.order.mnt.clone(),
                    held: Arc::clone(&held),
                };
                let signals = Arc::clone(&signals);
                thread::spawn(move || reader.run(&signals))
            })
            .collect();
        let counted = Counted::new(&self.order.source);
        let programs = self.programs(&counted);
        let programs = programs.into_iter().map(|program| {
            let signals = Arc::clone(&signals);
            thread::spawn(move || program.run(&signals))
        });
        let threads: Vec<_> = readers.into_iter().chain(programs).collect();
        let mut outcome = self.rounds(&mut server, &held, &signals, &round);
        signals.ends.store(true, Ordering::SeqCst);
        for thread in threads {
            thread.join().unwrap();
        }
        // What was stored last shows beneath.
        self.programs(&counted).swap_remove(0).run(&signals);
        outcome.counted = counted.sum();
        outcome.lost = counted.lost.load(Ordering::SeqCst);
        assert!(!hung.load(Ordering::SeqCst), "a call into the mount hung");
        held.lock().unwrap().clear();
        let figures = server.ask("figures");
        eprintln!("{outcome:?} {figures}");
        assert!(!figures.contains("silenced: 0"), "no file became silent");
        round.store(u64::MAX, Ordering::SeqCst);
        outcome
    }

    /// Two beneath, two above, and one by each other server.
    fn programs(&self, counted: &Arc<Counted>) -> Vec<Program> {
        let (beneath, above) = (&self.order.source, &self.order.mnt);
        let roots = [beneath, beneath, above, above];
        let roots = roots.into_iter().chain(&self.writable).enumerate();
        let programs = roots.map(|(number, root)| Program {
            random: Random(self.order.seed ^ (number as u64 + 1) << 40),
            root: root.clone(),
            may_map_first: Some(root) != self.writable.first(),
            counted: Arc::clone(counted),
        });
        programs.collect()
    }

    fn rounds(
        &self,
        server: &mut Server,
        held: &Held,
        signals: &Signals,
        round: &AtomicU64,
    ) -> Outcome {
        let order = &self.order;
        let mut random = Random(order.seed ^ 0xfeed);
        let mut changes = Changes::new(
            &order.source,
            &self.outside,
            if self.has_stray_links {
                &self.writable
            } else {
                &[]
            },
            self.has_stray_links,
            self.has_stray_links || order.file_handles == FileHandles::Never,
            order.seed,
        );
        let compared = Compared {
            source: &order.source,
            outside: &self.outside,
            mnt: &order.mnt,
            held,
            has_exact_blocks: self.has_exact_blocks,
            sees_replaced: self.sees_replaced,
            has_unique_numbers: !self.has_subvolumes,
            loses_moved: order.file_handles == FileHandles::Never,
        };
        let (mut outcome, mut known) = (Outcome::default(), HashSet::new());
        let deadline = Instant::now() + self.time;
        while Instant::now() < deadline || outcome.rounds < ROUNDS_MIN {
            round.fetch_add(1, Ordering::SeqCst);
            for _ in 0..=random.below(60) {
                changes.one();
                if random.once_in(50) {
                    // Only root may make the kernel forget what is not in use.
                    let _ = shrink_dcache(&order.mnt);
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
            let stale = compared.stale();
            signals.pauses.store(false, Ordering::SeqCst);
            outcome.rounds += 1;
            for stale in stale {
                let key = format!(
                    "{} {} {} {}",
                    stale.path, stale.what, stale.beneath, stale.above
                );
                if known.insert(key) {
                    outcome.stale += 1;
                    print(&stale, &changes, outcome.rounds, pauses);
                }
            }
            if outcome.stale > 0 && self.ends_when_stale {
                break;
            }
        }
        outcome.changes = changes.count;
        outcome
    }
}

fn print(stale: &StaleAnswer, changes: &Changes, round: u64, pauses: bool) {
    let passed = match stale.passed {
        Some(after) => format!("passed after {after:?}"),
        None => "stays".to_owned(),
    };
    eprintln!(
        "STALE in round {round} (readers paused: {pauses}): {} of {} ({passed})\n  beneath: {}\n  above:   {}\n{}",
        stale.what,
        stale.path,
        stale.beneath,
        stale.above,
        changes.history(&stale.path, &stale.inodes)
    );
}

/// Kills the server if a round hangs, and tells that: calls into its mount then fail.
fn watch(round: &Arc<AtomicU64>, server: u32) -> Arc<AtomicBool> {
    let hung = Arc::new(AtomicBool::new(false));
    let hangs = Arc::clone(&hung);
    let round = Arc::clone(round);
    let last = Mutex::new((0, Instant::now()));
    let is_over = AtomicBool::new(false);
    thread::spawn(move || {
        while !is_over.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(500));
            let now = round.load(Ordering::SeqCst);
            let mut last = last.lock().unwrap();
            if now == u64::MAX {
                is_over.store(true, Ordering::SeqCst);
            } else if now != last.0 {
                *last = (now, Instant::now());
            } else if last.1.elapsed() > ROUND_MAX {
                hangs.store(true, Ordering::SeqCst);
                eprintln!("round {now} hangs: the server, process {server}, is killed");
                for process in [server, std::process::id()] {
                    eprintln!("{}", stacks_of(process));
                }
                let pid = rustix::process::Pid::from_raw(server as i32).unwrap();
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                return;
            }
        }
    });
    hung
}

/// The system calls in which the threads of a process are (number, arguments), and, for root alone, where those
/// wait in the kernel.
fn stacks_of(process: u32) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task"));
    let mut text = format!("process {process}:\n");
    for task in tasks.into_iter().flatten().flatten() {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let frames: Vec<_> = read("stack")
            .lines()
            .take(9)
            .map(|line| format!("    {line}\n"))
            .collect();
        let (name, call) = (read("comm"), read("syscall"));
        text += &format!("  {} [{}]\n{}", name.trim(), call.trim(), frames.concat());
    }
    text
}
