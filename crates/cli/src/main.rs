//! The command `thrufs`: serves a directory through FUSE, to the host and to virtual machines.
//!
//! | module | content |
//! |---|---|
//! | `options`, `config` | the table of options, and the resolved configuration |
//! | `command_line`, `mount_helper` | the arguments of users and of mount(8) |
//! | `arguments` | arguments that several commands have |
//! | `manual`, `version` | the manual pages; `--version` |
//! | `install` | what an installation has, and where |
//! | `upgrade` | another program for a running server |
//! | `launch`, `remount`, `unmount`, `doctor`, `explain`, `ctl`, `list`, `policy`, `share` | the commands |
//! | `run` | a command in a sandbox: the runner, the sandbox, its process 1 |
//! | `virtiofsd` | the command line of virtiofsd |
//! | `bench_command` | executing the benchmark, a separate program |
//! | `source` | the served directory, by its path |
//! | `policy_file`, `audit_log` | loading a policy; the log that the supervisor writes for a worker |
//! | `supervisor`, `worker` | the two processes of a mount |
//! | `watcher` | the thread of a worker that waits for signals and the supervisor |
//! | `auto_unmount` | a third process, which unmounts when the server is killed |
//! | `process`, `channel` | starting processes, and their messages |
//! | `callers` | queries of the worker about callers |
//! | `control` | the control socket of a server |
//! | `metrics` | statistics as OpenMetrics text, and by HTTP |
//! | `listening`, `systemd` | Unix sockets; readiness notification |
//! | `task`, `waiting` | blocking calls and poll(2) with deadlines |
//! | `mounting`, `mount_table` | mounting and unmounting |
//! | `confinement`, `log`, `error`, `output`, `screen` | confinement of the worker; log, errors, standard output |
//!
//! ```text
//! thrufs mount ──starts──► supervisor ──starts──► worker
//!  (returns when            (holds /dev/fuse,      (parses and serves,
//!   the mount answers)       mounts, unmounts)      confined)
//! ```
//!
//! With `-f`, the first process is the supervisor, as for `thrufs share` (see [`share`]).
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod arguments;
mod audit_log;
mod auto_unmount;
mod bench_command;
mod callers;
mod channel;
mod command_line;
mod config;
mod confinement;
mod control;
mod ctl;
mod deaths;
mod doctor;
mod draft;
mod error;
mod explain;
mod fd_store;
mod foreign;
mod install;
mod launch;
mod list;
mod listening;
mod log;
mod lookup;
mod manual;
mod metrics;
mod mount_helper;
mod mount_table;
mod mounting;
mod options;
mod output;
mod policy;
mod policy_file;
mod process;
mod remount;
mod run;
mod screen;
mod share;
mod source;
mod supervisor;
mod systemd;
mod task;
mod unmount;
mod upgrade;
mod version;
mod virtiofsd;
mod waiting;
mod watcher;
mod worker;

use command_line::NAME;
use error::{USAGE, finish};
use output::report;
use process::Role;
use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Descriptors of the parent would be a way out of a worker's confinement.
    if let Err(errno) = thrufs_sys::process::close_range_on_exec(3, u32::MAX) {
        report(format_args!(
            "thrufs: cannot close inherited descriptors: {errno}"
        ));
        return ExitCode::FAILURE;
    }
    let arguments: Vec<OsString> = std::env::args_os().collect();
    match arguments
        .get(1)
        .and_then(|first| Role::from_argument(first))
    {
        Some(Role::Supervisor) => {
            return match arguments.get(4) {
                Some(number) => supervisor::upgrade::main(number),
                None => supervisor::main(),
            };
        }
        Some(Role::ShareSupervisor) => {
            return match arguments.get(4) {
                Some(number) => share::go_on(number),
                None => ExitCode::FAILURE,
            };
        }
        Some(Role::UpgradeCheck) => return upgrade::check::main(),
        Some(Role::Worker) => return worker::main(),
        Some(Role::ShareWorker) => return share::worker::main(),
        Some(Role::AutoUnmount) => return auto_unmount::main(),
        Some(Role::Sandbox) => return run::sandbox::main(&arguments),
        Some(Role::SandboxInit) => return run::init::main(&arguments),
        None => {}
    }
    if let Some(arguments) = virtiofsd::arguments(&arguments) {
        return finish(NAME, virtiofsd::run(arguments));
    }
    if mount_helper::is_called(&arguments) {
        return finish(mount_helper::NAMES[0], mount_helper::run(arguments));
    }
    if let Some(arguments) = bench_command::arguments(&arguments) {
        return finish(NAME, Err::<(), _>(bench_command::start(arguments)));
    }
    let usage = match arguments.get(1) {
        Some(first) if first == "run" => run::FAILED,
        _ => USAGE,
    };
    match command_line::parse(&arguments) {
        Ok((name, mut matches)) => command_line::carry_out(&name, &mut matches),
        Err(error) => {
            let status = arguments::refuse(&error, usage);
            if error.use_stderr()
                && let Some(line) = run::without_separator(&arguments)
            {
                report(format_args!("\nThe command stands after `--`: {line}"));
            }
            status
        }
    }
}
