//! Runs the POSIX cases as tests, on several file systems.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use rustix::fs::Mode;

use crate::fence::umask::private_umask;
use crate::helper;
use crate::posix::{self, Case, Env};
use crate::setup::{Setup, Tree};

/// A case that takes longer hangs, also on a busy machine. Its tree is aborted and another started, so that one
/// hang fails one case.
const CASE_TIMEOUT: Duration = Duration::from_secs(300);

type Started = Result<Arc<dyn Tree>, String>;

/// A setup, started when the first case needs it: listing and filtering mount nothing.
struct Ground {
    setup: Arc<dyn Setup>,
    tree: Mutex<Option<Started>>,
}

impl Ground {
    fn new(setup: Arc<dyn Setup>) -> Self {
        Self {
            setup,
            tree: Mutex::new(None),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Started>> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tree(&self) -> Started {
        let mut tree = self.lock();
        tree.get_or_insert_with(|| self.setup.start()).clone()
    }

    fn is_current(&self, tree: &Arc<dyn Tree>) -> bool {
        matches!(&*self.lock(), Some(Ok(current)) if Arc::ptr_eq(current, tree))
    }

    /// Aborts `tree`. Later cases get another.
    fn abort(&self, tree: &Arc<dyn Tree>) {
        {
            let mut current = self.lock();
            if matches!(&*current, Some(Ok(current)) if Arc::ptr_eq(current, tree)) {
                *current = None;
            }
        }
        tree.abort();
        eprintln!("{}, aborted:", self.setup.name());
        tree.print_log();
    }
}

/// Runs every case on every setup, with the arguments of a test harness after the program's name.
///
/// For the `main` of a test program with `harness = false`, which cases start again as a second process.
pub fn run(
    arguments: impl IntoIterator<Item = String>,
    setups: impl IntoIterator<Item = Arc<dyn Setup>>,
) -> ExitCode {
    if let Some(code) = helper::run_if_started() {
        return code;
    }
    let mut arguments = Arguments::from_iter(arguments);
    // As in programs of libtest.
    let threads = std::env::var("RUST_TEST_THREADS");
    let threads = threads.ok().and_then(|threads| threads.parse().ok());
    arguments.test_threads = arguments.test_threads.or(threads);
    let cases = posix::all();
    let setups = setups.into_iter();
    let grounds: Vec<_> = setups.map(|it| Arc::new(Ground::new(it))).collect();
    if !arguments.list {
        report_exclusions(&grounds, &cases);
    }
    let mut trials = Vec::new();
    for ground in &grounds {
        for case in &cases {
            trials.push(trial(Arc::clone(ground), *case));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    for ground in &grounds {
        if conclusion.has_failed()
            && let Some(Ok(tree)) = &*ground.lock()
        {
            eprintln!("{}:", ground.setup.name());
            tree.print_log();
        }
    }
    // Unmounts before the exit.
    drop(grounds);
    conclusion.exit_code()
}

fn trial(ground: Arc<Ground>, case: Case) -> Trial {
    let mut needs = case.needs.iter();
    let ignored = needs.any(|need| ground.setup.lacks(*need).is_some());
    // The setup's name is part of the test's, for filters.
    let name = format!("{}: {}", ground.setup.name(), case.name());
    Trial::test(name, move || run_case(&ground, case, CASE_TIMEOUT)).with_ignored_flag(ignored)
}

/// Reports skipped cases once per setup and reason.
fn report_exclusions(grounds: &[Arc<Ground>], cases: &[Case]) {
    for setup in grounds.iter().map(|ground| &ground.setup) {
        let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for case in cases {
            for reason in case.needs.iter().filter_map(|need| setup.lacks(*need)) {
                reasons.entry(reason).or_default().push(case.name());
            }
        }
        for (reason, names) in reasons {
            eprintln!(
                "{}: not run, as {reason}: {}",
                setup.name(),
                names.join(", ")
            );
        }
    }
}

/// Runs a case. One that fails because another case had the tree aborted runs again on the next tree.
fn run_case(ground: &Ground, case: Case, timeout: Duration) -> Result<(), Failed> {
    loop {
        let tree = ground.tree()?;
        match run_on(&tree, ground, case, timeout) {
            Ok(()) => return Ok(()),
            Err(Outcome::Hung) => {
                ground.abort(&tree);
                return Err(format!("hung for {timeout:?}; the tree was aborted").into());
            }
            Err(Outcome::Failed(error)) if ground.is_current(&tree) => return Err(error.into()),
            Err(Outcome::Failed(_)) => {}
        }
    }
}

enum Outcome {
    Failed(String),
    Hung,
}

/// Each case runs in a thread of its own, which has its own umask, and which ends later if it hangs.
fn run_on(
    tree: &Arc<dyn Tree>,
    ground: &Ground,
    case: Case,
    timeout: Duration,
) -> Result<(), Outcome> {
    let setup = Arc::clone(&ground.setup);
    let (sender, receiver) = mpsc::channel();
    let case_tree = Arc::clone(tree);
    let name = format!("{} on {}", case.name(), setup.name());
    let worker = thread::Builder::new().name(name).spawn(move || {
        let result = catch_unwind(AssertUnwindSafe(|| run_here(case_tree, setup, case)));
        let _ = sender.send(result.unwrap_or_else(|panic| Err(panic_text(&*panic))));
    });
    let worker = worker.map_err(|error| Outcome::Failed(error.to_string()))?;
    let result = match receiver.recv_timeout(timeout) {
        Ok(result) => result,
        Err(RecvTimeoutError::Disconnected) => Err("the case's thread ended early".to_owned()),
        Err(RecvTimeoutError::Timeout) => return Err(Outcome::Hung),
    };
    let _ = worker.join();
    result.map_err(Outcome::Failed)
}

fn run_here(tree: Arc<dyn Tree>, setup: Arc<dyn Setup>, case: Case) -> Result<(), String> {
    private_umask().map_err(|error| format!("unshare: {error}"))?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let env = Env::new(tree, setup, case.name())
        .map_err(|error| format!("cannot make the case's directory: {error}"))?;
    case.run(&env);
    env.clean_up()
        .map_err(|error| format!("passed, but its directory cannot be removed: {error}"))
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "panicked".to_owned())
}
