//! How fast a directory is: Thrufs against the file system beneath it and against other mounts, in
//! interleaved rounds. `thrufs bench` starts the program `thrufs-bench`, which is this. The project's own comparisons
//! are those of `thrufs-lab`, which is this with an [`BenchExtension`]: what is public here is so for that, and promises
//! nothing.
//!
//! | room | what it does |
//! |---|---|
//! | `command_line`, `request`, `repeat`, `suite`, `extension`, `setup`, `plan` | what is asked for, and what is to be done |
//! | `run`, `programs` | the processes of a run, and what each of them does |
//! | `isolation` | the processes and namespaces of a run, the scratch folder, and that nothing stays |
//! | `engine` | rounds, and what is found in them |
//! | `target`, `lower` | what is measured, and what lies beneath |
//! | `measurement`, `counting` | one measurement |
//! | `row`, `task`, `clock`, `kept` | what is measured |
//! | `workload`, `job` | loops that do it |
//! | `results`, `report` | what was found, and how it is shown |
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod clock;
mod command_line;
pub mod counter;
pub mod counting;
mod engine;
mod extension;
mod fence;
mod isolation;
pub mod job;
pub mod kept;
pub mod lower;
mod machine;
pub mod measurement;
mod outcome;
mod plan;
mod programs;
mod progress;
mod repeat;
pub mod report;
mod request;
pub mod results;
pub mod row;
mod run;
pub mod setup;
mod stop;
mod suite;
mod target;
pub mod task;
pub mod workload;

use std::process::ExitCode;

pub use extension::{BenchExtension, Suite, extend};
pub use outcome::Outcome;
pub use programs::ROLE;
pub use suite::suites;

/// The program.
pub fn main(extension: &'static BenchExtension) -> ExitCode {
    extend(extension);
    command_line::main()
}
