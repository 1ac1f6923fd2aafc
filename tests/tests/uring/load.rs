//! Processes that keep a mount busy, on every CPU.

use std::cell::RefCell;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use thrufs_tests::acknowledged::check_blocks;
use thrufs_tests::connection::Connection;
use thrufs_tests::prelude::*;
use thrufs_tests::server::START_TIMEOUT;

/// How long callers may take to return after an end.
pub const CALLERS_TIMEOUT: Duration = Duration::from_secs(60);

/// Rounds until the load is under way.
const ROUNDS: u64 = 5;

/// The last line that is a number; 0 without one.
fn last_number(lines: &[String]) -> u64 {
    let numbers = lines.iter().rev().find_map(|line| line.parse().ok());
    numbers.unwrap_or(0)
}

struct Caller {
    process: Process,
    name: String,
    count: u64,
    /// Its message at its end.
    exit_line: String,
}

impl Caller {
    fn listen(&mut self) {
        let lines = self.process.lines();
        self.count = self.count.max(last_number(&lines));
        let words = lines.into_iter().rfind(|line| line.parse::<u64>().is_err());
        self.exit_line = words.unwrap_or(std::mem::take(&mut self.exit_line));
    }
}

/// For each CPU a process that works with files, and one that syncs what it writes. When a test fails, the
/// connection is aborted first: a process that is stuck could not be killed.
pub struct Load {
    callers: Vec<Caller>,
    connection: Connection,
    written: Vec<PathBuf>,
}

impl Load {
    /// `kind` is `load` or `load-inside`.
    pub fn start(ground: &Ground, kind: &str, pause_us: u32) -> Self {
        fs::write(ground.source().join("marker"), "").unwrap();
        let mnt = ground.mnt().to_str().unwrap();
        let mut load = Self {
            callers: Vec::new(),
            connection: Connection::of(ground.mnt()),
            written: Vec::new(),
        };
        for cpu in cpus() {
            let name = format!("cpu-{cpu}");
            load.add(cpu, &[kind, mnt, &name, &pause_us.to_string()]);
        }
        load
    }

    /// With writers that sync, which hold a file open all the time.
    pub fn start_with_writers(ground: &Ground) -> Self {
        let mut load = Self::start(ground, "load", 0);
        for cpu in cpus() {
            let file = format!("synced-{cpu}");
            let path = ground.mnt().join(&file);
            load.add(cpu, &["write-synced", path.to_str().unwrap()]);
            load.written.push(PathBuf::from(file));
        }
        load
    }

    fn add(&mut self, cpu: usize, args: &[&str]) {
        self.callers.push(Caller {
            process: on_cpu(cpu, || programs::start_helper(args)),
            name: format!("{args:?} on CPU {cpu}"),
            count: 0,
            exit_line: String::new(),
        });
    }

    /// Waits until each has made some more rounds.
    #[track_caller]
    pub fn wait_for_progress(&mut self) {
        let deadline = Instant::now() + START_TIMEOUT;
        for caller in &mut self.callers {
            let wanted = caller.count + ROUNDS;
            while caller.count < wanted {
                assert!(
                    Instant::now() < deadline && caller.exit_line.is_empty(),
                    "{} does not go on: {} rounds, \"{}\", {}",
                    caller.name,
                    caller.count,
                    caller.exit_line,
                    caller.process.place()
                );
                let line = caller.process.line_within(Duration::from_millis(100));
                caller.count = caller.count.max(last_number(line.as_slice()));
                if let Some(words) = line.filter(|line| line.parse::<u64>().is_err()) {
                    caller.exit_line = words;
                }
            }
        }
    }

    /// Checks that all return by themselves, with an error or because the mount is gone.
    #[track_caller]
    pub fn expect_ends(&mut self) {
        let deadline = Instant::now() + CALLERS_TIMEOUT;
        for caller in &mut self.callers {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                caller
                    .process
                    .is_ended_within(left.max(Duration::from_millis(10))),
                "{} is stuck: {}",
                caller.name,
                caller.process.place()
            );
            // Its last line may come after its end.
            for line in caller.process.last_lines() {
                match line.parse() {
                    Ok(count) => caller.count = count,
                    Err(_) => caller.exit_line = line,
                }
            }
            let words = caller.exit_line.as_str();
            assert!(
                words == "gone" || words.starts_with("errno "),
                "{} ended in a strange way: \"{words}\"",
                caller.name
            );
        }
    }

    pub fn kill(&mut self) {
        for caller in self.callers.drain(..) {
            caller.process.kill();
        }
    }

    /// Checks that what was acknowledged is in `dir`, after [`expect_ends`](Self::expect_ends).
    #[track_caller]
    pub fn check_written(&self, dir: &Path) {
        let writers = self.callers.iter().rev().take(self.written.len()).rev();
        for (file, writer) in self.written.iter().zip(writers) {
            assert!(writer.count >= ROUNDS, "{}: {}", writer.name, writer.count);
            check_blocks(&dir.join(file), writer.count);
        }
    }

    pub fn listen(&mut self) {
        self.callers.iter_mut().for_each(Caller::listen);
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if thread::panicking() {
            self.connection.abort();
        }
    }
}

/// A server over io_uring on a fresh ground of `lower`, without passthrough, whose data never reach a ring.
pub fn serve(lower: Lower, options: &str) -> (Ground, Server) {
    share_cpus();
    serve_alone(lower, options)
}

/// Shared by tests that want all CPUs, exclusive for one that removes a CPU: with half the machine gone and
/// the other half busy, no time limit holds.
static CPUS: RwLock<()> = RwLock::new(());

thread_local! {
    static SHARED: RefCell<Option<RwLockReadGuard<'static, ()>>> = const { RefCell::new(None) };
}

fn share_cpus() {
    SHARED.with_borrow_mut(|held| {
        held.get_or_insert_with(|| CPUS.read().unwrap_or_else(PoisonError::into_inner));
    });
}

/// Excludes the tests that share the CPUs.
pub fn own_cpus() -> RwLockWriteGuard<'static, ()> {
    CPUS.write().unwrap_or_else(PoisonError::into_inner)
}

/// As [`serve`], for the holder of [`own_cpus`].
pub fn serve_alone(lower: Lower, options: &str) -> (Ground, Server) {
    let ground = Ground::prepare(lower).unwrap();
    let server = Server::start(
        &ground,
        &format!("transport=uring,nopassthrough,{options}"),
        None,
    );
    (ground, server)
}
