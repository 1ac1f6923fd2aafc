//! Real programs on a real mount: the scripts of `tests/real`.
//!
//! Each runs in a mount and process namespace of its own, under a time limit, so that whatever
//! goes wrong in it leaves neither a mount nor a process behind. Those for which it makes a difference
//! run over each transport, and those that read and write in every way by the server as well.

use crate::project;
use crate::ring;
use crate::skips;
use crate::step::{Failure, Step};
use crate::together;
use crate::tools;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

/// No script may run longer, in seconds; the longest is meant to take a quarter of it.
const SECONDS_MAX: &str = "900";

/// What the others source, and what only runs by name: the peers are those of the benchmark, and to
/// fetch and build them takes longer than all other scripts; `soak` runs the last two.
const NOT_TESTS: &[&str] = &["mount", "peers", "stress", "million"];

/// Scripts that run over `/dev/fuse` alone: they choose the transport themselves, or what they do there
/// is what others do over both.
const NOT_OVER_RING: &[&str] = &["archive", "build", "counts", "million", "peers"];

/// Scripts that also run without passthrough, where what is read and written comes to the server.
const SERVED_TOO: &[&str] = &["faults", "fsx", "sqlite", "stress"];

/// Scripts that also run through the queues of a virtio-fs device.
const RELAYED_TOO: &[&str] = &["fsx", "git", "make", "sqlite"];

/// Scripts that run while no other does: they count what the machine does, or measure its memory.
const ALONE: &[&str] = &["counts", "million"];

/// How a script is run: the transport, and more mount options.
const WAYS: &[(&str, &str)] = &[
    ("dev", ""),
    ("uring", ""),
    ("dev", "nopassthrough"),
    ("relay", ""),
];

/// One run of a script.
struct Run {
    script: String,
    transport: &'static str,
    options: &'static str,
}

impl Run {
    fn name(&self) -> String {
        let way = [self.transport, self.options].join(" ");
        format!("{} ({})", self.script, way.trim_end())
    }
}

/// Each script over `/dev/fuse` and, where there is such a thing, over io_uring. `TRANSPORT` in the
/// environment chooses one.
fn runs(scripts: Vec<String>) -> Vec<Run> {
    let chosen = std::env::var("TRANSPORT").ok();
    let missing = ring::missing();
    let mut runs = Vec::new();
    for script in scripts {
        for &(transport, options) in WAYS {
            let alone = transport == "uring" && NOT_OVER_RING.contains(&script.as_str());
            let through = !options.is_empty() && !SERVED_TOO.contains(&script.as_str());
            let relayed = transport == "relay" && !RELAYED_TOO.contains(&script.as_str());
            if alone
                || through
                || relayed
                || chosen.as_deref().is_some_and(|chosen| chosen != transport)
            {
                continue;
            }
            match &missing {
                Some(reason) if transport == "uring" => {
                    skips::add(&format!("real/{script}/uring"), reason);
                }
                _ => runs.push(Run {
                    script: script.clone(),
                    transport,
                    options,
                }),
            }
        }
    }
    runs
}

/// Runs the named scripts with the release build, or all of them.
pub(crate) fn run(names: &[String]) -> Result<(), Failure> {
    let server = build()?;
    run_with(&server, names, &[])
}

/// Runs a script with a seed, and what only it is asked for then.
pub(crate) fn run_soak(script: &str, seed: &str) -> Result<(), Failure> {
    let server = build()?;
    run_with(
        &server,
        &[script.to_owned()],
        &[("THRUFS_SOAK", "1"), ("THRUFS_SEED", seed)],
    )
}

/// The build that test programs use. It is there once they are built.
pub(crate) fn debug_server() -> PathBuf {
    project::target().join("debug/thrufs")
}

/// Runs scripts with a command; every one runs even when an earlier one failed.
pub(crate) fn run_with(
    server: &Path,
    names: &[String],
    variables: &[(&str, &str)],
) -> Result<(), Failure> {
    if !tools::is_root()? {
        return Err(Failure::new(
            "the real programs need root: they mount file systems",
        ));
    }
    if std::fs::metadata("/dev/fuse").is_err() {
        return Err(Failure::new(
            "the real programs need /dev/fuse (modprobe fuse)",
        ));
    }
    let scripts = if names.is_empty() {
        every_script()?
    } else {
        names.to_vec()
    };
    let runs = runs(scripts);
    let count = runs.len();
    let (alone, others): (Vec<_>, Vec<_>) = runs
        .into_iter()
        .partition(|run| ALONE.contains(&run.script.as_str()));
    // Each computes and waits in turns, on several processors.
    let at_once = thread::available_parallelism().map_or(1, usize::from);
    let work = |run: Run| one(&run, server, variables);
    let mut outcomes = together::each(others, at_once, work, tell);
    outcomes.extend(together::each(alone, 1, work, tell));
    report(outcomes, count)
}

/// What came of a run.
struct Outcome {
    name: String,
    seconds: f64,
    /// Whether it succeeded, and what it said.
    result: Result<(bool, String), Failure>,
}

impl Outcome {
    fn word(&self) -> &'static str {
        match self.result {
            Ok((true, _)) => "ok",
            _ => "FAILED",
        }
    }
}

fn tell(outcome: &Outcome) {
    let Outcome { name, seconds, .. } = outcome;
    println!("\n--- {name}");
    match &outcome.result {
        Ok((_, said)) => print!("{said}"),
        Err(failure) => println!("xtask: {failure}"),
    }
    println!("[{seconds:.1} s] {name}: {}", outcome.word());
}

fn report(mut outcomes: Vec<Outcome>, count: usize) -> Result<(), Failure> {
    outcomes.sort_by(|a, b| a.name.cmp(&b.name));
    println!("\nreal programs:");
    for outcome in &outcomes {
        let Outcome { name, seconds, .. } = outcome;
        println!("  {name:<28} {:<8} {seconds:>6.1} s", outcome.word());
    }
    outcomes.retain(|outcome| outcome.word() != "ok");
    if outcomes.is_empty() {
        println!("real programs: {count} passed");
        return Ok(());
    }
    for outcome in &outcomes {
        println!("\nxtask: what failed, once more:");
        tell(outcome);
    }
    let names: Vec<&str> = outcomes.iter().map(|it| it.name.as_str()).collect();
    Err(Failure::new(format!(
        "real programs that failed: {}",
        names.join(", ")
    )))
}

fn every_script() -> Result<Vec<String>, Failure> {
    let directory = project::root().join("tests/real");
    let unreadable = |error| Failure::new(format!("{}: {error}", directory.display()));
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "sh")
            && let Some(stem) = path.file_stem().and_then(|stem| stem.to_str())
            && !NOT_TESTS.contains(&stem)
        {
            names.push(stem.to_owned());
        }
    }
    names.sort();
    if names.is_empty() {
        return Err(Failure::new(format!("{}: no scripts", directory.display())));
    }
    Ok(names)
}

/// The command as users get it: what is measured and stressed here is the release build. Whoever has built
/// one elsewhere says so, by `THRUFS`.
fn build() -> Result<PathBuf, Failure> {
    if let Some(elsewhere) = std::env::var_os("THRUFS") {
        return Ok(PathBuf::from(elsewhere));
    }
    Step::cargo()
        .args(["build", "--release", "--locked", "--bin", "thrufs"])
        .run()?;
    Ok(project::target().join("release/thrufs"))
}

fn one(run: &Run, server: &Path, variables: &[(&str, &str)]) -> Outcome {
    let start = Instant::now();
    let result = record(run, server, variables);
    Outcome {
        name: run.name(),
        seconds: start.elapsed().as_secs_f64(),
        result,
    }
}

fn record(run: &Run, server: &Path, variables: &[(&str, &str)]) -> Result<(bool, String), Failure> {
    let script = project::root()
        .join("tests/real")
        .join(format!("{}.sh", run.script));
    if !script.exists() {
        return Err(Failure::new(format!(
            "no such script: {}",
            script.display()
        )));
    }
    let step = Step::new("timeout");
    let step = variables
        .iter()
        .fold(step, |step, (name, value)| step.env(name, value));
    step.args(["--kill-after=10", SECONDS_MAX])
        .args(["unshare", "--mount", "--propagation", "private"])
        .args(["--pid", "--fork", "--kill-child", "--mount-proc", "bash"])
        .args([script])
        .env("THRUFS", server)
        .env("TRANSPORT", run.transport)
        .env("OPTIONS", run.options)
        .env("TOOLS", tools::search_path())
        .env("PROJECT", project::root())
        .env("PEERS", project::peers())
        .env("THRUFS_TOOLS", project::tools())
        .without_env("CARGO_TARGET_DIR")
        .record(&run.name())
}
