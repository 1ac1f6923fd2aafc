//! What each process of a run does: the first carries out a request, the others a part of it.

use crate::extension::extension;
use crate::plan::Plan;
use crate::request::Request;
use crate::{Outcome, engine, isolation, measurement, report, row};
use std::process::ExitCode;

/// Carries out a request, and cleans up after it, whatever happens.
pub(crate) fn request(request: &Request) -> Outcome<ExitCode> {
    let plan = Plan::of(request)?;
    (extension().fetch)(&plan.setups);
    plan.rows
        .iter()
        .try_for_each(|name| row::named(name)?.fetch())?;
    isolation::front::run(&plan)
}

/// Carries out what the arguments after [`ROLE`](crate::ROLE) say: the part of one of the processes of a run.
pub(crate) fn part(arguments: &[String]) -> ExitCode {
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
