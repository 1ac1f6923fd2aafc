//! How fast a directory is: Thrufs against the file system beneath it and against other servers, in
//! interleaved rounds. `thrufs bench` starts the program `thrufs-bench`, which is this.
//!
//! | room | what it does |
//! |---|---|
//! | `request`, `repeat`, `suite`, `entrant`, `plan` | what is asked for, and what is to be done |
//! | `ground` | the processes and namespaces of a run, the scratch folder, and that nothing stays |
//! | `engine` | rounds, and what is found in them |
//! | `contestant`, `lower`, `peers`, `floor`, `server` | who takes part, and what lies beneath |
//! | `measurement`, `counting` | one measurement |
//! | `row`, `errand`, `clock`, `kept` | what is measured |
//! | `workload`, `job`, `fio`, `build`, `git` | who does it: our own loops, and programs |
//! | `results`, `report` | what was found, and how it is shown |
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod build;
mod clock;
mod contestant;
mod counting;
mod engine;
mod entrant;
mod errand;
mod fence;
mod fetch;
mod fio;
mod floor;
mod git;
mod ground;
mod job;
mod kept;
mod lower;
mod machine;
mod measurement;
#[cfg(test)]
mod mounted;
mod peers;
mod plan;
mod progress;
mod repeat;
pub mod report;
mod request;
pub mod results;
mod ring_parameter;
mod row;
mod server;
mod stop;
mod suite;
mod workload;

use plan::Plan;
use std::process::ExitCode;

pub use request::Request;
pub use suite::suites;

/// Whatever stops a run, as a text for people.
type Outcome<T> = Result<T, String>;

/// The first argument of processes that a run starts.
pub const ROLE: &str = "--bench";

/// Does what somebody has asked for, and cleans up after it, whatever happens.
///
/// # Errors
///
/// What makes no sense, and what is not there, as a text.
pub fn run(request: &Request) -> Result<ExitCode, String> {
    let plan = Plan::of(request)?;
    fetch::fetch(&plan)?;
    ground::front::run(&plan)
}

/// Every row and set of rows, for people who choose some; or all that there is to say of those in a list.
///
/// # Errors
///
/// A name that is no row's and no set's.
pub fn list(rows: Option<&str>) -> Result<String, String> {
    row::list::text(rows)
}

/// Carries out what the arguments after [`ROLE`] say: the part of one of the processes of a run.
#[must_use]
pub fn main(arguments: &[String]) -> ExitCode {
    let (role, rest) = match arguments.split_first() {
        Some((role, rest)) => (role.as_str(), rest),
        None => ("", arguments),
    };
    let done = |outcome: Outcome<()>| outcome.map(|()| ExitCode::SUCCESS);
    let outcome = match role {
        "janitor" => ground::janitor::run(rest),
        "gate" => ground::gate::run(rest),
        "inside" => engine::run_inside(rest),
        "row" => done(measurement::measure_here(rest)),
        "floor" => done(floor::serve_here(rest)),
        "report" => done(report::again(rest)),
        "document" => done(report::document(rest)),
        "serve" => done(server::serve_here(rest)),
        _ => Err(format!(
            "{role}: no part of a benchmark; see `thrufs bench --help`"
        )),
    };
    outcome.unwrap_or_else(|why| {
        eprintln!("thrufs bench: {why}");
        ExitCode::FAILURE
    })
}
