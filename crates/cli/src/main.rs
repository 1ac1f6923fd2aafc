//! The command `thrufs`: serves a directory through FUSE, to the host and to virtual machines.
//!
//! | module | content |
//! |---|---|
//! | `options`, `config` | the table of options, and the resolved configuration |
//! | `command_line`, `mount_helper` | parsing the arguments of users and of mount(8) |
//! | `manual` | the manual pages |
//! | `launch`, `unmount`, `doctor`, `explain`, `policy`, `share` | the commands |
//! | `run` | a command in a sandbox: the runner, the sandbox, its process 1 |
//! | `virtiofsd` | the command line of virtiofsd |
//! | `bench_command` | executing the benchmark, a separate program |
//! | `policy_file`, `audit_log` | loading a policy; the log that the supervisor writes for a worker |
//! | `supervisor`, `worker` | the two processes of a mount |
//! | `watcher` | the thread of a worker that waits for signals and the supervisor |
//! | `auto_unmount` | a third process, which unmounts when the server is killed |
//! | `process`, `channel` | starting processes, and their messages |
//! | `callers` | queries of the worker about callers |
//! | `control` | the control socket of a server |
//! | `listening`, `systemd` | Unix sockets; readiness notification |
//! | `task`, `waiting` | blocking calls and poll(2) with deadlines |
//! | `mounting`, `mount_table` | mounting and unmounting |
//! | `confinement`, `log`, `error`, `output` | confinement of the worker; log, errors, standard output |
//!
//! ```text
//! thrufs mount ──starts──► supervisor ──starts──► worker
//!  (returns when            (holds /dev/fuse,      (parses and serves,
//!   the mount answers)       mounts, unmounts)      confined)
//! ```
//!
//! With `-f`, the first process is the supervisor, as for `thrufs share` (see [`share`]).
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod audit_log;
mod auto_unmount;
mod bench_command;
mod callers;
mod channel;
mod command_line;
mod config;
mod confinement;
mod control;
mod doctor;
mod error;
mod explain;
mod launch;
mod listening;
mod log;
mod manual;
mod mount_helper;
mod mount_table;
mod mounting;
mod options;
mod output;
mod policy;
mod policy_file;
mod process;
mod run;
mod share;
mod supervisor;
mod systemd;
mod task;
mod unmount;
mod virtiofsd;
mod waiting;
mod watcher;
mod worker;

use command_line::{CommandLineError, Purpose, Request};
use error::CommandError;
use process::Role;
use std::ffi::OsString;
use std::process::ExitCode;

/// Exit statuses of an error.
#[derive(Clone, Copy)]
struct Statuses {
    usage: u8,
    failure: u8,
}

const STATUSES: Statuses = Statuses {
    usage: 2,
    failure: 1,
};

/// Of `thrufs run`, as of env(1): the other statuses are the command's.
const STATUSES_OF_RUN: Statuses = Statuses {
    usage: 125,
    failure: 125,
};

fn main() -> ExitCode {
    // Descriptors of the parent would be a way out of a worker's confinement.
    if let Err(errno) = thrufs_sys::process::close_range_on_exec(3, u32::MAX) {
        eprintln!("thrufs: cannot close inherited descriptors: {errno}");
        return ExitCode::FAILURE;
    }
    let arguments: Vec<OsString> = std::env::args_os().collect();
    match arguments
        .get(1)
        .and_then(|first| Role::from_argument(first))
    {
        Some(Role::Supervisor) => return supervisor::main(),
        Some(Role::Worker) => return worker::main(),
        Some(Role::ShareWorker) => return share::worker::main(),
        Some(Role::AutoUnmount) => return auto_unmount::main(),
        Some(Role::Sandbox) => return run::sandbox::main(&arguments),
        Some(Role::SandboxInit) => return run::init::main(&arguments),
        None => {}
    }
    if let Some(arguments) = virtiofsd::arguments(&arguments) {
        return finish(virtiofsd::run(arguments), STATUSES);
    }
    if arguments
        .first()
        .is_some_and(|program| mount_helper::is_helper(program))
    {
        return mount_as_helper(arguments);
    }
    if let Some(arguments) = bench_command::arguments(&arguments) {
        return finish(Err(bench_command::start(arguments)), STATUSES);
    }
    let statuses = match arguments.get(1) {
        Some(first) if first == "run" => STATUSES_OF_RUN,
        _ => STATUSES,
    };
    let outcome = command_line::parse(arguments)
        .map_err(CommandError::from)
        .and_then(carry_out);
    finish(outcome, statuses)
}

fn finish(outcome: Result<ExitCode, CommandError>, statuses: Statuses) -> ExitCode {
    match outcome {
        Ok(code) => code,
        Err(CommandError::CommandLine(CommandLineError::Clap(error))) => {
            // Help and version are errors of clap, with status 0.
            let _ = error.print();
            if error.use_stderr() {
                statuses.usage.into()
            } else {
                ExitCode::SUCCESS
            }
        }
        Err(error) => {
            eprintln!("thrufs: {error}");
            if error.is_usage() {
                statuses.usage.into()
            } else {
                statuses.failure.into()
            }
        }
    }
}

fn carry_out(request: Request) -> Result<ExitCode, CommandError> {
    match request {
        Request::Mount(arguments) => launch::plan(arguments)?.carry_out()?,
        Request::Share(arguments) => share::launch::run(arguments)?,
        Request::Unmount { mountpoints, lazy } => unmount_all(&mountpoints, lazy)?,
        Request::Doctor { directory, json } => return doctor::run(directory.as_deref(), json),
        Request::Run(arguments) => return run::run(*arguments),
        Request::CheckPolicy(arguments) => return policy::check(&arguments),
        Request::Explain(arguments) => return explain::explain(&arguments),
        Request::Ctl(arguments) => return explain::ctl(&arguments),
        Request::Completions(shell) => {
            let mut script = Vec::new();
            let mut command = command_line::command(Purpose::Completion);
            clap_complete::generate(shell, &mut command, "thrufs", &mut script);
            output::print(script);
        }
        Request::Man(directory) => manual::write_pages(&directory)
            .map_err(|(path, source)| CommandError::Write { path, source })?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Unmounts all that it can; fails with the last error, after printing the earlier ones.
fn unmount_all(mountpoints: &[std::path::PathBuf], lazy: bool) -> Result<(), CommandError> {
    let mut failed = None;
    for mountpoint in mountpoints {
        if let Err(error) = unmount::unmount(mountpoint, lazy)
            && let Some(earlier) = failed.replace(error)
        {
            eprintln!("thrufs: {earlier}");
        }
    }
    failed.map_or(Ok(()), Err)
}

fn mount_as_helper(arguments: Vec<OsString>) -> ExitCode {
    let outcome = mount_helper::parse(arguments.into_iter().skip(1))
        .map_err(CommandError::from)
        .and_then(|helper| {
            for option in &helper.left_out {
                eprintln!("mount.thrufs: ignored the unknown option `{option}`");
            }
            let plan = launch::plan(helper.mount)?;
            if helper.verbose {
                eprintln!("mount.thrufs: {plan}");
            }
            if helper.fake {
                Ok(())
            } else {
                plan.carry_out()
            }
        });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mount.thrufs: {error}");
            error.helper_code().into()
        }
    }
}
