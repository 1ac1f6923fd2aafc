//! How fast a directory is: Thrufs against the file system beneath it and against other mounts, in
//! interleaved rounds. `thrufs bench` starts this program, `thrufs-bench`.
//!
//! | module | what it does |
//! |---|---|
//! | `command_line`, `plan` | what is asked for, and what is to be done |
//! | `isolation` | the processes and namespaces of a run, the scratch folder, and that nothing stays |
//! | `engine` | rounds |
//! | `target` | what is measured: the directory itself, mounts |
//! | `measurement` | one measurement: processes that start together |
//! | `row`, `data`, `workload`, `clock` | rows, and the loops that do them |
//! | `results`, `report` | what was found, and how it is shown |
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod clock;
mod command_line;
mod data;
mod engine;
mod isolation;
mod machine;
mod measurement;
mod plan;
mod progress;
mod report;
mod results;
mod row;
mod stop;
mod target;
mod workload;

use std::process::{Command, ExitCode};

/// Whatever stops a run, as a text for people.
type Outcome<T> = Result<T, String>;

/// The first argument of processes that a run starts; the second is their role.
const ROLE: &str = "--bench";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let text = |at: usize| arguments.get(at).and_then(|word| word.to_str());
    let outcome = match (text(0), text(1), text(2)) {
        (Some(ROLE), Some("clean-up"), Some(plan)) => isolation::cleanup::run(plan),
        (Some(ROLE), Some("inside"), Some(plan)) => engine::run(plan),
        (Some(ROLE), Some("row"), Some(order)) => measurement::process::run(order),
        (Some(ROLE), ..) => Err("no part of a benchmark; see `thrufs bench --help`".to_owned()),
        _ => command_line::carry_out(&arguments),
    };
    outcome.unwrap_or_else(|why| {
        eprintln!("thrufs bench: {why}");
        ExitCode::FAILURE
    })
}

/// This program again, in another role.
fn again(role: &str, argument: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args([ROLE, role, argument]);
    command
}
