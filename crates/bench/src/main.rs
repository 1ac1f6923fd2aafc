//! How fast a directory is: Thrufs against the file system beneath it and against other mounts, in
//! interleaved rounds. `thrufs bench` starts this program, `thrufs-bench`.
//!
//! | module | what it does |
//! |---|---|
//! | `command_line`, `plan` | what is asked for, and what is to be done |
//! | `isolation` | the processes and namespaces of a run, the scratch folder, and that nothing stays |
//! | `engine`, `measurement` | rounds; one measurement by processes that start together |
//! | `target` | what is measured: the directory itself, mounts |
//! | `row`, `task`, `data`, `workload`, `clock` | rows, and the loops that do them |
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
mod outcome;
mod plan;
mod progress;
mod report;
mod results;
mod row;
mod stop;
mod target;
mod task;
mod workload;

use outcome::ROLE;
use std::process::ExitCode;

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
