//! Runs the POSIX case list as counted tests, on several grounds.

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
use crate::lower::Lower;
use crate::mounted::Mounted;
use crate::posix::{self, Case, Env, Setting};
use crate::relayed::{Queues, Relayed};
use crate::transport::Transport;
use crate::tree::{Native, Tree};

/// A case that takes longer hangs, also on a busy machine. Its tree is then aborted and the ground
/// prepared anew, so that one stall fails one case and the run goes on.
const CASE_TIMEOUT: Duration = Duration::from_secs(300);

type Started = Result<Arc<dyn Tree>, String>;

/// A ground, prepared when the first case needs it: listing and filtering mount nothing.
struct Ground {
    setting: Setting,
    start: fn(&Setting) -> Started,
    tree: Mutex<Option<Started>>,
}

impl Ground {
    fn new(setting: Setting, start: fn(&Setting) -> Started) -> Self {
        Self {
            setting,
            start,
            tree: Mutex::new(None),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Started>> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tree(&self) -> Started {
        let mut tree = self.lock();
        tree.get_or_insert_with(|| (self.start)(&self.setting))
            .clone()
    }

    fn is_current(&self, tree: &Arc<dyn Tree>) -> bool {
        matches!(&*self.lock(), Some(Ok(current)) if Arc::ptr_eq(current, tree))
    }

    /// Ends what hangs in `tree`. Cases that come later get another.
    fn abort(&self, tree: &Arc<dyn Tree>) {
        {
            let mut current = self.lock();
            if matches!(&*current, Some(Ok(current)) if Arc::ptr_eq(current, tree)) {
                *current = None;
            }
        }
        tree.abort();
        eprintln!("{}, aborted:", self.setting.name());
        tree.print_log();
    }
}

fn start(setting: &Setting) -> Started {
    if let (Some(queues), Some(options)) = (setting.queues, setting.options) {
        return Ok(Arc::new(Relayed::start_on(setting.lower, options, queues)?));
    }
    Ok(match (setting.share, setting.options) {
        (Some(share), _) => Arc::new(share),
        (None, None) => Arc::new(Native::start_on(setting.lower)?),
        (None, Some(options)) => Arc::new(Mounted::start_on(setting.lower, options)?),
    })
}

/// Runs every case on every ground and reports, as the arguments of this process say. `skip` is why
/// nothing can run here, if so.
pub fn run(settings: &[Setting], skip: Option<String>) -> ExitCode {
    run_with(&Arguments::from_args(), settings, skip)
}

/// The same with arguments that are given.
pub fn run_with(arguments: &Arguments, settings: &[Setting], skip: Option<String>) -> ExitCode {
    let cases = posix::all();
    let grounds: Vec<Arc<Ground>> = settings
        .iter()
        .map(|setting| Arc::new(Ground::new(setting.clone(), start)))
        .collect();
    if let Some(reason) = &skip {
        let (cases, grounds) = (cases.len(), grounds.len());
        let what = format!("all {cases} cases on {grounds} grounds");
        thrufs_test_report::skipped_in(&what, reason);
    } else if !arguments.list {
        report_exclusions(settings, &cases);
    }
    let mut trials = Vec::new();
    for ground in &grounds {
        for case in &cases {
            trials.push(trial(Arc::clone(ground), *case, skip.is_some()));
        }
    }
    let conclusion = libtest_mimic::run(arguments, trials);
    for ground in &grounds {
        if conclusion.has_failed()
            && let Some(Ok(tree)) = &*ground.lock()
        {
            eprintln!("{}:", ground.setting.name());
            tree.print_log();
        }
    }
    // Unmounts; the exit code comes after, so that nothing is left behind.
    drop(grounds);
    conclusion.exit_code()
}

fn trial(ground: Arc<Ground>, case: Case, skip: bool) -> Trial {
    let ignored = skip
        || case
            .needs
            .iter()
            .any(|need| ground.setting.lacks(*need).is_some());
    // The ground is part of the name, so that a filter can choose it.
    let name = format!("{}: {}", ground.setting.name(), case.name());
    Trial::test(name, move || run_case(&ground, case, CASE_TIMEOUT)).with_ignored_flag(ignored)
}

/// Says once per ground and reason what is not run.
fn report_exclusions(settings: &[Setting], cases: &[Case]) {
    for setting in settings {
        let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for case in cases {
            for reason in case.needs.iter().filter_map(|need| setting.lacks(*need)) {
                reasons.entry(reason).or_default().push(case.name());
            }
        }
        for (reason, names) in reasons {
            eprintln!(
                "{}: not run, as {reason}: {}",
                setting.name(),
                names.join(", ")
            );
        }
    }
}

/// Runs a case. One that fails because another one hung, and had their tree aborted, begins again on
/// the next tree.
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

/// Each case runs in a thread of its own: with its own umask, and so that one that hangs can be
/// left to end when its tree is aborted.
fn run_on(
    tree: &Arc<dyn Tree>,
    ground: &Ground,
    case: Case,
    timeout: Duration,
) -> Result<(), Outcome> {
    let setting = ground.setting.clone();
    let (sender, receiver) = mpsc::channel();
    let case_tree = Arc::clone(tree);
    let name = format!("{} on {}", case.name(), setting.name());
    let worker = thread::Builder::new().name(name).spawn(move || {
        let result = catch_unwind(AssertUnwindSafe(|| run_here(case_tree, setting, case)));
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

fn run_here(tree: Arc<dyn Tree>, setting: Setting, case: Case) -> Result<(), String> {
    private_umask().map_err(|error| format!("unshare: {error}"))?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let env = Env::new(tree, setting, case.name())
        .map_err(|error| format!("cannot make the case's directory: {error}"))?;
    (case.run)(&env);
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

/// The file systems that are served with default options only.
const OTHERS: [Lower; 3] = [Lower::Xfs, Lower::Btrfs, Lower::Overlay];

/// The grounds of the native run.
pub fn native_settings() -> Vec<Setting> {
    let lowers = [Lower::Tmpfs, Lower::Ext4].into_iter().chain(OTHERS);
    known(lowers.map(|lower| Setting {
        lower,
        options: None,
        share: None,
        queues: None,
    }))
}

/// The ground of a run through the mount with such options.
pub fn mount_setting(lower: Lower, options: &'static str) -> Setting {
    Setting {
        lower,
        options: Some(options),
        share: None,
        queues: None,
    }
}

/// All grounds of the run through the mount: `options` on tmpfs and on ext4, `tmpfs_options` on tmpfs
/// alone, the defaults on the others.
pub fn mount_settings(options: &[&'static str], tmpfs_options: &[&'static str]) -> Vec<Setting> {
    let on = |lower| move |options: &&'static str| mount_setting(lower, options);
    let tmpfs = options.iter().map(on(Lower::Tmpfs));
    let ext4 = options.iter().map(on(Lower::Ext4));
    let tmpfs_alone = tmpfs_options.iter().map(on(Lower::Tmpfs));
    let others = OTHERS.map(|lower| mount_setting(lower, ""));
    known(tmpfs.chain(ext4).chain(tmpfs_alone).chain(others))
}

/// The ground of a run through a share, mounted by a relay over such queues.
pub fn relay_setting(lower: Lower, options: &'static str, queues: Queues) -> Setting {
    Setting {
        lower,
        options: Some(options),
        share: None,
        queues: Some(queues),
    }
}

/// Those whose file system and transport this kernel has; says which it has not.
pub fn known(settings: impl IntoIterator<Item = Setting>) -> Vec<Setting> {
    let mut known = Vec::new();
    for setting in settings {
        match is_missing(&setting) {
            Some(reason) => thrufs_test_report::skipped_in(&setting.name(), reason),
            None => known.push(setting),
        }
    }
    known
}

fn is_missing(setting: &Setting) -> Option<String> {
    if !setting.lower.is_known() {
        return Some("not in this kernel".to_owned());
    }
    Transport::of(setting.options?).is_missing()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Native, but what hangs in it can be ended.
    struct Abortable {
        native: Native,
        is_aborted: Mutex<bool>,
    }

    impl Tree for Abortable {
        fn root(&self) -> &Path {
            self.native.root()
        }

        fn beneath(&self) -> &Path {
            self.native.root()
        }

        fn abort(&self) {
            *self.is_aborted.lock().unwrap() = true;
            std::fs::write(self.native.root().join("aborted"), "").unwrap();
        }
    }

    static STARTED: AtomicU32 = AtomicU32::new(0);
    static WAITING: AtomicU32 = AtomicU32::new(0);

    fn start_abortable(_: &Setting) -> Started {
        STARTED.fetch_add(1, Ordering::SeqCst);
        Ok(Arc::new(Abortable {
            native: Native::start(),
            is_aborted: Mutex::new(false),
        }))
    }

    fn is_aborted(env: &Env) -> bool {
        let root = env.path("");
        root.ancestors().any(|above| above.join("aborted").exists())
    }

    fn hangs(env: &Env) {
        while !is_aborted(env) {
            thread::sleep(Duration::from_millis(1));
        }
        panic!("not connected");
    }

    /// Is under way when another case has its tree aborted, the first time.
    fn fails_when_aborted(env: &Env) {
        if WAITING.fetch_add(1, Ordering::SeqCst) == 0 {
            hangs(env);
        }
    }

    fn passes(_: &Env) {}

    fn case(path: &'static str, run: fn(&Env)) -> Case {
        Case {
            path,
            needs: &[],
            run,
        }
    }

    #[test]
    fn a_case_that_hangs_fails_alone() {
        const LONG: Duration = Duration::from_secs(300);
        let setting = Setting {
            lower: Lower::Default,
            options: None,
            share: None,
            queues: None,
        };
        let ground = Ground::new(setting, start_abortable);
        run_case(&ground, case("before", passes), LONG).unwrap();
        thread::scope(|scope| {
            let beside =
                scope.spawn(|| run_case(&ground, case("beside", fails_when_aborted), LONG));
            while WAITING.load(Ordering::SeqCst) == 0 {
                thread::sleep(Duration::from_millis(1));
            }
            let short = Duration::from_millis(10);
            let hung = run_case(&ground, case("hangs", hangs), short);
            assert!(hung.is_err());
            beside.join().unwrap().unwrap();
        });
        run_case(&ground, case("after", passes), LONG).unwrap();
        assert_eq!(STARTED.load(Ordering::SeqCst), 2);
    }
}
