//! How fast a directory is: Thrufs against the file system beneath it and against other mounts, in
//! interleaved rounds. `thrufs bench` starts the program `thrufs-bench`, which is this. The project's own comparisons
//! are those of `thrufs-lab`, which is this with an [`BenchExtension`]: what is public here is so for that, and promises
//! nothing.
//!
//! | room | what it does |
//! |---|---|
//! | `command_line`, `request`, `repeat`, `suite`, `setup`, `plan` | what is asked for, and what is to be done |
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
mod fence;
mod isolation;
pub mod job;
pub mod kept;
pub mod lower;
mod machine;
pub mod measurement;
mod plan;
mod progress;
mod repeat;
pub mod report;
mod request;
pub mod results;
pub mod row;
pub mod setup;
mod stop;
mod suite;
mod target;
pub mod task;
pub mod workload;

use plan::Plan;
use request::Request;
use row::Row;
use setup::TargetSetup;
use std::process::ExitCode;
use std::sync::OnceLock;

pub use suite::{Suite, suites};

/// Whatever stops a run, as a text for people.
pub type Outcome<T> = Result<T, String>;

/// The first argument of processes that a run starts.
pub const ROLE: &str = "--bench";

/// What a program has besides what is here. Every process of a run is that program again.
pub struct BenchExtension {
    /// More suites.
    pub suites: &'static [Suite],
    /// Makes more rows.
    pub rows: fn() -> Vec<Row>,
    /// Names of several rows.
    pub sets: fn() -> Vec<(&'static str, Vec<&'static str>)>,
    /// Gets what the targets need, before the run.
    pub fetch: fn(&[TargetSetup]),
    /// Carries out a role that is none of [`ROLE`]'s here; none if it is not its either.
    pub role: fn(&str, &[String]) -> Option<Outcome<()>>,
}

impl BenchExtension {
    /// Nothing besides.
    pub const NONE: BenchExtension = BenchExtension {
        suites: &[],
        rows: Vec::new,
        sets: Vec::new,
        fetch: |_| (),
        role: |_, _| None,
    };
}

static EXTENSION: OnceLock<&BenchExtension> = OnceLock::new();

/// Has this process know what is there besides, from the first call on.
pub fn extend(extension: &'static BenchExtension) {
    EXTENSION.get_or_init(|| extension);
}

fn extension() -> &'static BenchExtension {
    EXTENSION.get_or_init(|| &BenchExtension::NONE)
}

/// The program.
pub fn main(extension: &'static BenchExtension) -> ExitCode {
    extend(extension);
    command_line::main()
}

/// Carries out a request, and cleans up after it, whatever happens.
fn run(request: &Request) -> Outcome<ExitCode> {
    let plan = Plan::of(request)?;
    (extension().fetch)(&plan.setups);
    plan.rows
        .iter()
        .try_for_each(|name| row::named(name)?.fetch())?;
    isolation::front::run(&plan)
}

/// Carries out what the arguments after [`ROLE`] say: the part of one of the processes of a run.
fn part(arguments: &[String]) -> ExitCode {
    let (role, rest) = match arguments.split_first() {
        Some((role, rest)) => (role.as_str(), rest),
        None => ("", arguments),
    };
    let done = |outcome: Outcome<()>| outcome.map(|()| ExitCode::SUCCESS);
    let outcome = match role {
        "clean-up" => isolation::cleanup::run(rest),
        "namespaces" => isolation::namespaces::run(rest),
        "inside" => engine::run_inside(rest),
        "row" => done(measurement::measure_here(rest)),
        "report" => done(report::again(rest)),
        _ => match (extension().role)(role, rest) {
            Some(outcome) => done(outcome),
            None => Err(format!(
                "{role}: no part of a benchmark; see `thrufs bench --help`"
            )),
        },
    };
    outcome.unwrap_or_else(|why| {
        eprintln!("thrufs bench: {why}");
        ExitCode::FAILURE
    })
}
