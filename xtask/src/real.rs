//! Real programs on a real mount: the scripts of `tests/real`.
//!
//! Each has mounts and processes of its own and a time limit, so that it leaves none behind. Where it makes
//! a difference they run over each transport, and those that read and write without passthrough as well.

use crate::failure::Failure;
use crate::job::{self, Job, SECONDS_MAX};
use crate::programs::cpus;
use crate::project;
use crate::release;
use crate::ring;
use crate::skips;
use crate::step::Step;
use crate::tools;
use std::path::Path;

const PLACE: &str = "tests/real";

/// What is sourced, and what only runs by name: the peers are those of the benchmark, and take longer to
/// fetch and build than all other scripts run; `soak` runs the last two.
const NOT_TESTS: &[&str] = &["mount", "peers", "stress", "million"];

/// Scripts that run over `/dev/fuse` alone: they choose the transport themselves, or do what others do over
/// both.
const NOT_OVER_RING: &[&str] = &[
    "archive", "build", "counts", "fuser", "install", "million", "peers", "run",
];

/// Scripts that also run without passthrough.
const SERVED_TOO: &[&str] = &["faults", "fsx", "sqlite", "stress"];

/// Scripts that also run through the queues of a virtio-fs device.
const RELAYED_TOO: &[&str] = &["fsx", "git", "make", "sqlite"];

/// Scripts that run alone: they count what the machine does, or measure its memory.
const ALONE: &[&str] = &["counts", "million"];

/// Runs the named scripts, or all, with the release build.
pub(crate) fn run(names: &[String]) -> Result<(), Failure> {
    run_with(&release::build()?, names, &[])
}

/// Runs scripts with a command; each runs even when an earlier one failed.
pub(crate) fn run_with(
    server: &Path,
    names: &[String],
    variables: &[(&str, &str)],
) -> Result<(), Failure> {
    let outcomes = job::all(jobs(server, names, variables)?, cpus())?;
    let failed = outcomes.iter().filter(|it| !it.status.success());
    job::report("real programs", failed)?;
    println!("\nreal programs: {} passed", outcomes.len());
    Ok(())
}

/// The named scripts, or all, each in every way.
pub(crate) fn jobs(
    server: &Path,
    names: &[String],
    variables: &[(&str, &str)],
) -> Result<Vec<Job>, Failure> {
    let mut scripts = project::names(PLACE, ".sh")?;
    if let Some(name) = names.iter().find(|name| !scripts.contains(name)) {
        return Err(Failure::new(format!("{PLACE} has no script {name}")));
    }
    scripts.retain(|name| match names {
        [] => !NOT_TESTS.contains(&name.as_str()),
        names => names.contains(name),
    });
    // Two are called as the program that they are about.
    for script in &scripts {
        tools::installed(script)?;
    }
    let jobs = scripts.iter().flat_map(|script| {
        let ways = ways(script).into_iter();
        ways.map(|(transport, options)| job(script, transport, options, server, variables))
    });
    Ok(jobs.collect())
}

/// The transports of a script, each with more mount options. `TRANSPORT` in the environment chooses one.
fn ways(script: &str) -> Vec<(&'static str, &'static str)> {
    let mut ways = vec![("dev", "")];
    match ring::missing() {
        _ if NOT_OVER_RING.contains(&script) => {}
        None => ways.push(("uring", "")),
        Some(reason) => skips::add(&format!("real/{script}/uring"), reason),
    }
    if SERVED_TOO.contains(&script) {
        ways.push(("dev", "nopassthrough"));
    }
    if RELAYED_TOO.contains(&script) {
        ways.push(("relay", ""));
    }
    if let Ok(chosen) = std::env::var("TRANSPORT") {
        ways.retain(|(transport, _)| *transport == chosen);
    }
    ways
}

fn job(
    script: &str,
    transport: &str,
    options: &str,
    server: &Path,
    variables: &[(&str, &str)],
) -> Job {
    let way = [transport, options].join(" ");
    Job {
        name: format!("{script} ({})", way.trim_end()),
        is_alone: ALONE.contains(&script),
        step: Step::confined_for(SECONDS_MAX)
            .args([format!("{PLACE}/{script}.sh")])
            .envs(variables.iter().copied())
            .env("THRUFS", server)
            .env("TRANSPORT", transport)
            .env("OPTIONS", options)
            .env("TOOLS", tools::search_path())
            .env("PROJECT", project::root())
            .env("PEERS", project::peers())
            .env("THRUFS_TOOLS", project::tools())
            .without_env("CARGO_TARGET_DIR"),
    }
}
