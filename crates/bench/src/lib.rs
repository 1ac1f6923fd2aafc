//! How fast a directory is: Thrufs against the file system beneath it and against other servers, in
//! interleaved rounds. `thrufs bench` is this.
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod agreement;
mod archive;
mod build;
mod clock;
mod contest;
mod contestant;
mod errand;
mod fence;
mod figures;
mod fio;
mod floor;
mod git;
mod job;
mod kept;
mod lower;
mod machine;
mod measurement;
mod peers;
mod plan;
mod report;
pub mod results;
mod ring_parameter;
mod row;
mod server;
mod splice;
mod workload;

use measurement::{Amount, measure, measure_here};
use plan::Plan;
use report::Report;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Whatever stops a run, as a text for people.
type Outcome<T> = Result<T, String>;

/// The first argument of processes that a run starts.
pub const ROLE: &str = "--bench";

/// Carries out what the arguments after [`ROLE`] say.
#[must_use]
pub fn main(arguments: &[String]) -> ExitCode {
    let outcome = match arguments.first().map(String::as_str) {
        Some("row") => measure_here(&arguments[1..]),
        Some("rows") => row::list::print(&arguments[1..]),
        Some("agreement") => agreement::measure(&arguments[1..]),
        Some("floor") => floor::serve_here(&arguments[1..]),
        Some("serve") => server::serve_here(&arguments[1..]),
        Some("inside") => plan::parse(&arguments[1..]).and_then(|plan| run(&plan)),
        _ => plan::parse(arguments).and_then(|plan| go_inside(&plan, arguments)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("thrufs-bench: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Starts again in mount and process namespaces of its own: whatever happens, no mount and no
/// server is left. What must be fetched is fetched before.
fn go_inside(plan: &Plan, arguments: &[String]) -> Outcome<()> {
    if !plan.splice {
        plan.contest.fetch(&plan.rows)?;
    }
    let own = std::env::current_exe().map_err(|error| format!("cannot find myself: {error}"))?;
    let error = Command::new("unshare")
        .args([
            "--mount",
            "--propagation",
            "private",
            "--pid",
            "--fork",
            "--kill-child",
        ])
        .arg("--mount-proc")
        .arg(own)
        .args([ROLE, "inside"])
        .args(arguments)
        .exec();
    Err(format!("cannot run unshare: {error}"))
}

fn run(plan: &Plan) -> Outcome<()> {
    let work = std::env::temp_dir().join(format!("thrufs-bench-{}", machine::random_name()?));
    std::fs::create_dir(&work).map_err(|error| format!("{}: {error}", work.display()))?;
    let outcome = run_in(plan, &work);
    // The mounts go with the namespace; what is beneath them is not to be deleted through them.
    for lower in &plan.lowers {
        lower.take_down(&work);
    }
    // Mount points are empty directories, images are files: nothing deeper may be there.
    if let Err(error) = std::fs::remove_dir_all(&work) {
        eprintln!("thrufs-bench: {} stays: {error}", work.display());
    }
    outcome
}

fn run_in(plan: &Plan, work: &Path) -> Outcome<()> {
    if plan.splice {
        for (what, value) in machine::describe()? {
            eprintln!("{what}: {value}");
        }
        return splice::run(plan.rounds, &plan.lowers, work);
    }
    let mut report = Report::new(
        plan.contest,
        plan.rounds,
        plan.percent,
        machine::describe()?,
    );
    for lower in &plan.lowers {
        let beneath = lower.set_up(work)?;
        let jobs_max = plan.jobs.iter().copied().max().unwrap_or(1);
        let contestants = plan.contest.start(jobs_max, &beneath, work)?;
        for &jobs in &plan.jobs {
            for row in plan.rows_for(jobs) {
                for round in 0..plan.rounds {
                    let percent = plan.percent;
                    let amount = Amount {
                        jobs,
                        round,
                        percent,
                    };
                    // Whoever goes first has what the row before has left to be cleaned up, and so
                    // on: every place is everybody's once.
                    let order = contestants.iter().cycle().skip(round);
                    for contestant in order.take(contestants.len()) {
                        let measured = measure(row, contestant, amount)?;
                        report.add(lower.name(), jobs, row, contestant.name(), measured);
                    }
                }
                report.print_row(lower.name(), jobs, row);
            }
        }
        for contestant in contestants {
            report.add_memory(lower.name(), &contestant);
            contestant.unmount()?;
        }
    }
    report.finish()
}
