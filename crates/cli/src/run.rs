//! `thrufs run`: a command in a sandbox, in which a tree stands at its own path, served under a policy.
//!
//! ```text
//! thrufs run (the runner) ──starts──► worker: serves the tree, outside of the sandbox
//!   │ starts
//!   ▼
//! sandbox: namespaces, mounts ──starts──► process 1 ──starts──► COMMAND
//! ```
//!
//! The runner stays where it was started: it supervises the worker, forwards signals, stops when the command
//! stops and ends as the command ends. All processes in the sandbox end with process 1, that with its parent,
//! and that with the runner. When the worker dies, the mount returns ENOTCONN, and the runner ends the
//! command.

mod arguments;
mod elsewhere;
mod error;
pub(crate) mod git;
mod host_mounts;
pub(crate) mod init;
mod log_copy;
mod overlay;
mod plan;
mod project;
mod refused;
mod report;
pub(crate) mod restrictions;
pub(crate) mod rules;
mod runner;
pub(crate) mod sandbox;
mod saved;
mod sockets;
mod standard_files;
pub(crate) mod user;

use crate::audit_log;
use crate::channel::{Order, ToParent};
use crate::config::MountConfig;
use crate::draft::{Draft, Drafts};
use crate::error::system;
use crate::log;
use crate::lookup;
use crate::options;
use crate::output::{self, print};
use crate::policy_file::PolicyFiles;
use crate::source;
pub(crate) use arguments::{command, without_separator};
pub(crate) use error::{FAILED, RunError};

use arguments::{RunArguments, arguments};
use clap::ArgMatches;
use git::GitPlaces;
use log_copy::LogCopy;
use plan::SandboxPlan;
use report::Report;
use rules::RuleError;
use runner::{CommandEnd, Runner, SIGNALS, Served};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::process::{Resource, Rlimit, setrlimit};
use saved::Saved;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use thrufs_hostdir::printable;
use thrufs_policy::Policy;
use thrufs_sys::signal::SignalFd;
use user::RunUser;

/// The descriptor with this number is the channel; what follows `--` is the command.
fn inherited(arguments: &[OsString]) -> Option<(ToParent, &[OsString])> {
    let number = arguments.get(2)?.to_str()?.parse().ok()?;
    let command = arguments.get(4..).filter(|command| !command.is_empty())?;
    Some((ToParent::inherited(number).ok()?, command))
}

fn receive_plan(runner: &ToParent) -> Option<SandboxPlan> {
    let Ok(Some(Order::Sandbox(plan))) = runner.receive() else {
        return None;
    };
    serde_json::from_value(plan).ok()
}

/// Runs the command; returns its exit status.
pub(crate) fn run(matches: &mut ArgMatches) -> Result<ExitCode, RunError> {
    let given = matches.clone();
    let mut arguments = arguments(matches)?;
    let tree = match &arguments.tree {
        Some(given) => given.clone(),
        None => project::directory()?,
    };
    let saved = with_saved(&mut arguments, &tree, &given)?;
    if arguments.show {
        let home = std::env::var_os("HOME");
        let policy = compose(&arguments, &tree, home.as_deref())?.1.0;
        print(saved.unwrap_or_default() + &policy);
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.command.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Ok(match carry_out(arguments, &tree)? {
        CommandEnd::Exited(status) => ExitCode::from(u8::try_from(status).unwrap_or(FAILED)),
        CommandEnd::Killed(signal) => end_by(signal),
    })
}

/// Saves the options, or adds those that are saved for the tree, which it returns in words.
fn with_saved(
    arguments: &mut RunArguments,
    tree: &Path,
    given: &ArgMatches,
) -> Result<Option<String>, RunError> {
    let opened = lookup::open(tree, OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
    // What is no directory is an error later.
    let Ok(tree) = opened.and_then(lookup::path_of) else {
        return Ok(None);
    };
    if arguments.save {
        Saved::read(&tree)?.save(&tree, given)?;
        return Ok(None);
    }
    if arguments.no_saved || saved::directory().is_none() {
        return Ok(None);
    }
    let saved = Saved::read(&tree)?;
    let Some(entry) = saved.entry(&tree) else {
        return Ok(None);
    };
    let mut matches = entry.apply().map_err(|error| {
        let first = error
            .to_string()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned();
        RunError::Saved(saved.file.clone(), format!("line {}: {first}", entry.line))
    })?;
    *arguments = self::arguments(&mut matches)?;
    let (file, line) = (saved.file.display().to_string(), entry.line);
    let words = printable(&format!("{file}, line {line}: {}", entry.words())).replace('\n', "\\n");
    Ok(Some(format!("# {words}\n\n")))
}

/// What is served, to whom, and by which policy.
struct Project {
    source: OwnedFd,
    tree: PathBuf,
    user: RunUser,
    git: GitPlaces,
    text: String,
    policy: Policy,
}

fn carry_out(arguments: RunArguments, tree: &Path) -> Result<CommandEnd, RunError> {
    let (source, tree) = source::open(tree)?;
    if tree == Path::new("/") {
        return Err(RunError::WholeSystem);
    }
    let owned = rustix::fs::fstat(&source).map_err(source::unusable(&tree))?;
    let user = RunUser::find(arguments.user.as_deref(), &owned)?;
    let (git, (text, policy)) = compose(&arguments, &tree, user.home.as_deref())?;
    let mut project = Project {
        source,
        tree,
        user,
        git,
        text,
        policy,
    };
    if arguments.draft.is_none() {
        return serve(arguments, project, None);
    }
    let place = arguments.drafts.clone();
    let drafts = Drafts::open_or_make(&place, &project.tree)?;
    let draft = begin_draft(&arguments, &drafts, &mut project)?;
    let json = arguments.json;
    let ended = serve(arguments, project, Some(&draft));
    // On the way to its own error.
    let is_quiet = ended.is_err();
    let _ = output::reset_terminal();
    let told = draft.end(&drafts, &place, (is_quiet, json));
    ended.and_then(|ended| told.map(|()| ended).map_err(RunError::from))
}

fn begin_draft(
    arguments: &RunArguments,
    drafts: &Drafts,
    project: &mut Project,
) -> Result<Draft, RunError> {
    if project.policy.uses().callers {
        return Err(RunError::CallersInDraft);
    }
    let name = arguments.draft.as_ref().and_then(Option::as_deref);
    let reserved = drafts.reserve(name, &project.source, &project.tree)?;
    if let Some(record) = &reserved.record {
        project.user = project.user.clone().in_draft(&record.ids)?;
    }
    Ok(reserved.begin(&project.source, &project.text, project.user.ids())?)
}

fn serve(
    arguments: RunArguments,
    project: Project,
    draft: Option<&Draft>,
) -> Result<CommandEnd, RunError> {
    let Project {
        source,
        tree,
        user,
        git,
        text,
        policy,
    } = project;
    let list = options_for(&user, policy.uses().callers);
    let config = config(&arguments, &tree, list)?;
    let files = PolicyFiles::of(&policy, text.as_bytes(), &config.serving)?;
    // Before there is another thread, to which they could be delivered.
    let signals = SignalFd::block_and_open(&SIGNALS).map_err(system("receive signals"))?;
    let report = arguments.report.then(|| Report::new(arguments.no_network));
    let (log, copy) = log_outside(&files, &tree)?.unzip();
    let mut count = report.as_ref().map(Report::counting);
    let mut add = copy.as_ref().map(LogCopy::adding);
    let recorded = move |line: &str, is_written| {
        if let Some(add) = add.as_mut().filter(|_| is_written) {
            add(line);
        }
        if let Some(count) = &mut count {
            count(line, is_written);
        }
    };
    let message = files.for_worker_with(|log| audit_log::begin_counted(log, recorded))?;
    log::begin_in_worker(&config.server)?;
    if !restrictions::can_scope() {
        tracing::warn!(
            "the command reaches abstract Unix sockets, and its process group by signals (Linux 6.12 \
             with Landlock has scopes)"
        );
    }
    // Also those of other trees, which the host may apply later.
    let home = user.home.clone();
    let drafts = Drafts::places(&arguments.drafts, home.as_deref());
    let covered = log.into_iter().chain(drafts.iter().map(|it| it.0.clone()));
    let plan = SandboxPlan::new(
        &arguments,
        &tree,
        user,
        covered.collect(),
        draft.map(Draft::path),
    )?;
    if plan.user.change.is_some() {
        standard_files::give_pipes(plan.user.uid, plan.user.gid)?;
    }
    if arguments.tree.is_none() && Path::new(&plan.directory) != tree {
        // Patterns count from there.
        output::report(format_args!(
            "thrufs: serving the whole project, {}",
            tree.display()
        ));
    }
    let mut served = vec![Served {
        config,
        source,
        policy: message,
    }];
    served.extend(git_directory(&arguments, &git, &plan)?);
    let is_served = |path: &Path| {
        served[1..]
            .iter()
            .any(|it| path.starts_with(&it.config.source))
    };
    let may_change = |it: &Path| plan.lets_change(it) && !is_served(it);
    for warning in git.warnings(|it| it == tree && draft.is_none() || may_change(it)) {
        output::report(format_args!("thrufs: {}", printable(&warning)));
    }
    let saved = saved::state();
    let layer = draft.map_or(Ok(Vec::new()), Draft::for_sandbox)?;
    let runner = Runner::start(signals, &plan, served, layer, &arguments.command)?;
    let ended = runner.wait();
    let mut warnings = git.warnings_at_the_end(&policy);
    if saved::state() != saved {
        warnings.push(SAVED_CHANGED.to_owned());
    }
    let drafts_now = Drafts::places(&arguments.drafts, home.as_deref());
    if drafts != drafts_now {
        warnings.push(DRAFTS_MOVED.to_owned());
    }
    if report.is_some() || !warnings.is_empty() || ended.is_err() {
        let _ = output::reset_terminal();
    }
    if let (Some(report), Ok(_) | Err(RunError::WorkerDied(_))) = (report, &ended) {
        report.print(&policy, arguments.json);
    }
    let warned = warnings.iter().try_for_each(|it| {
        let line = format!("thrufs: {}\n", printable(it));
        output::report_surely(&line)
    });
    let ended = warned.map_err(RunError::NotSaid).and(ended);
    let compared = copy.map_or(Ok(()), LogCopy::compare);
    ended.and_then(|ended| compared.map(|()| ended))
}

/// The git directory outside of the tree, under rules of its own; unless it cannot be opened, or `--also` shows it or
/// what is in it.
fn git_directory(
    arguments: &RunArguments,
    git: &GitPlaces,
    plan: &SandboxPlan,
) -> Result<Option<Served>, RunError> {
    let named = git.directory.as_ref().filter(|it| !plan.shows_in(&it.path));
    let Some((directory, Ok((source, path)))) = named.map(|it| (it, source::open(&it.path))) else {
        return Ok(None);
    };
    if path != directory.path {
        return Ok(None);
    }
    let (text, policy) = rules::of_git_directory(directory)?;
    let mut list = options_for(&plan.user, policy.uses().callers);
    if arguments.draft.is_some() {
        // It has no layer.
        list.push_str(",ro");
    }
    let config = config(arguments, &path, list)?;
    let files = PolicyFiles::of(&policy, text.as_bytes(), &config.serving)?;
    Ok(Some(Served {
        policy: files.for_worker()?,
        config,
        source,
    }))
}

/// The audit log, if it is a file, and what its records are compared with.
fn log_outside(files: &PolicyFiles, tree: &Path) -> Result<Option<(PathBuf, LogCopy)>, RunError> {
    let Some(log) = &files.audit else {
        return Ok(None);
    };
    let stat = rustix::fs::fstat(log).map_err(system("look at the audit log"))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(None);
    }
    let path = lookup::path_of(log).map_err(system("find the audit log"))?;
    if path.starts_with(tree) {
        // Through a link that led nowhere before.
        return Err(RuleError::AuditLogInTree(path).into());
    }
    if stat.st_nlink > 1 {
        // One of the names could be in the tree.
        return Err(RuleError::AuditLogLinked(path).into());
    }
    let copy = LogCopy::of(&path, log).map_err(system("copy the audit log"))?;
    Ok(Some((path, copy)))
}

/// What git executes later, where the profile protects it, and the policy.
fn compose(
    arguments: &RunArguments,
    tree: &Path,
    home: Option<&OsStr>,
) -> Result<(GitPlaces, (String, Policy)), RuleError> {
    let mut git = match arguments.rules.has_workspace() {
        // It is real, but for --show.
        true => GitPlaces::find(&tree.canonicalize().unwrap_or(tree.into()), home),
        false => GitPlaces::default(),
    };
    let log = arguments.audit.as_deref();
    let rules = |git: &GitPlaces| arguments.rules.compose(tree, git, arguments.report, log);
    let mut composed = rules(&git)?;
    if git.follow_protected_links(&composed.1) {
        composed = rules(&git)?;
    }
    Ok((git, composed))
}

const SAVED_CHANGED: &str = "run.toml, the saved options, was changed while the command ran: look at it before the \
                             next run (see --show)";

const DRAFTS_MOVED: &str = "a directory of drafts, or one above, was made, moved or replaced while the command ran: \
                            do not apply what is there now, nor what comes back";

/// The name of the composed policy in messages.
const POLICY_NAME: &str = "(rules of thrufs run)";

/// The options that make the directories look to the command as it expects.
fn options_for(user: &RunUser, callers: bool) -> String {
    let mut list = "control=none".to_owned();
    match user.change {
        Some(_) => list.push_str(",allow_other"),
        // The kernel lets no user write to files of ids that its namespace does not map, not even to its own
        // files of another group. The server, outside, checks as the user with all groups.
        // Rules that match on callers exclude it.
        None if !callers => list.push_str(&format!(",uid={},gid={}", user.uid, user.gid)),
        None => {}
    }
    if user.shown_uid != user.uid {
        list.push_str(&format!(",uidmap={0}:0:1,gidmap={0}:0:1", user.uid));
    }
    list
}

fn config(
    arguments: &RunArguments,
    tree: &Path,
    mut list: String,
) -> Result<MountConfig, RunError> {
    if arguments.settings.iter().all(|it| it.option.name != "log") {
        // Only what the user of the command should know.
        list.push_str(",log=warn");
    }
    let mut settings = arguments.settings.clone();
    let mut names = settings.iter().map(|it| it.option);
    if let Some(option) = names.find(|it| DECIDED_HERE.split(' ').any(|key| key == it.key())) {
        return Err(RunError::NotForRun(option.name));
    }
    settings.extend(options::parse(&list)?);
    let mut config = options::resolve_mount(&settings)?;
    config.server.make_absolute()?;
    config.server.policy = Some(POLICY_NAME.into());
    // By the worker, which is outside, the command would reach processes and control groups outside.
    config.serving.kernel_file_systems = false;
    Ok(MountConfig {
        source: tree.into(),
        mountpoint: tree.into(),
        ..config
    })
}

/// Options of mounts that have no meaning here, or would open the sandbox; with their opposites.
const DECIDED_HERE: &str = "policy control metrics allow_other default_permissions auto_unmount foreground \
                            stop_timeout nosuid nodev export";

/// Ends this process by the signal that ended the command, as a shell expects.
fn end_by(signal: i32) -> ExitCode {
    let no_core = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _ = setrlimit(Resource::Core, no_core);
    let _ = thrufs_sys::signal::end_by(signal);
    // One that ends no process.
    ExitCode::from(u8::try_from(128 + signal).unwrap_or(FAILED))
}
