//! Runs the POSIX case list as counted tests, on several grounds.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
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

/// A case that takes longer hangs: the tree is then aborted so that the run goes on.
const CASE_TIMEOUT: Duration = Duration::from_secs(60);

type Started = Result<Arc<dyn Tree>, String>;

/// A ground, prepared when the first case needs it: listing and filtering mount nothing.
struct Ground {
    setting: Setting,
    tree: Mutex<Option<Started>>,
}

impl Ground {
    fn tree(&self) -> Started {
        let mut tree = self.tree.lock().unwrap_or_else(PoisonError::into_inner);
        tree.get_or_insert_with(|| start(&self.setting)).clone()
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
        .map(|setting| {
            Arc::new(Ground {
                setting: setting.clone(),
                tree: Mutex::new(None),
            })
        })
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
            && let Some(Ok(tree)) = &*ground.tree.lock().unwrap_or_else(PoisonError::into_inner)
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
    Trial::test(name, move || run_case(&ground, case)).with_ignored_flag(ignored)
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

/// Each case runs in a thread of its own: with its own umask, and so that one that hangs can be
/// left to end when its tree is aborted.
fn run_case(ground: &Ground, case: Case) -> Result<(), Failed> {
    let tree = ground.tree()?;
    let setting = ground.setting.clone();
    let (sender, receiver) = mpsc::channel();
    let case_tree = Arc::clone(&tree);
    let name = format!("{} on {}", case.name(), setting.name());
    let worker = thread::Builder::new().name(name).spawn(move || {
        let result = catch_unwind(AssertUnwindSafe(|| run_here(case_tree, setting, case)));
        let _ = sender.send(result.unwrap_or_else(|panic| Err(panic_text(&*panic))));
    });
    let worker = worker.map_err(|error| error.to_string())?;
    let result = match receiver.recv_timeout(CASE_TIMEOUT) {
        Ok(result) => result,
        Err(RecvTimeoutError::Disconnected) => Err("the case's thread ended early".to_owned()),
        Err(RecvTimeoutError::Timeout) => {
            tree.abort();
            return Err(format!("hung for {CASE_TIMEOUT:?}; the tree was aborted").into());
        }
    };
    let _ = worker.join();
    result.map_err(Failed::from)
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

/// The grounds of the run through the mount: `options` on tmpfs and on ext4, `tmpfs_options` on tmpfs
/// alone, the defaults on the others.
pub fn mount_settings(options: &[&'static str], tmpfs_options: &[&'static str]) -> Vec<Setting> {
    let with = |lower, options| Setting {
        lower,
        options: Some(options),
        share: None,
        queues: None,
    };
    let main = [Lower::Tmpfs, Lower::Ext4];
    let main = main.into_iter().flat_map(|lower| {
        let settings = options.iter().map(move |options| with(lower, options));
        settings.collect::<Vec<_>>()
    });
    let tmpfs = tmpfs_options.iter();
    let tmpfs = tmpfs.map(|options| with(Lower::Tmpfs, options));
    known(main.chain(tmpfs).chain(OTHERS.map(|lower| with(lower, ""))))
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
fn known(settings: impl Iterator<Item = Setting>) -> Vec<Setting> {
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
