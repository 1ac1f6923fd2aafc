//! The project's benchmark, thrufs-lab: built optimised with the command that it measures, and with the
//! peers.

use crate::failure::Failure;
use crate::project;
use crate::release;
use crate::ring;
use crate::run;
use crate::step::Step;
use crate::tools::{self, Tier};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Before the arguments of a chore that Ctrl-C and the terminal's end leave alone.
const TO_ITS_END: &str = "--to-its-end";

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let (first, rest) = match arguments {
        [first, rest @ ..] => (first.as_str(), rest),
        [] => ("", arguments),
    };
    if first == "--document" {
        return document();
    }
    tools::need_root()?;
    let server = release::build()?;
    match first {
        "--shares" => scripted("shares.sh", &server, rest),
        "--memory" => scripted("memory.sh", &server, rest),
        "--runs" => scripted("runs.sh", &server, rest),
        TO_ITS_END => ring::turn_on().and_then(|()| measure(&server, rest)),
        _ => become_patient(arguments),
    }
}

/// Starts this chore anew in this process with the signals ignored, so that Ctrl-C ends the benchmark alone
/// and its results are kept. What is ignored stays so across exec(2), and there is no other way without
/// unsafe code.
fn become_patient(arguments: &[String]) -> Result<(), Failure> {
    let error = Command::new("sh")
        .args(["-c", "trap '' INT HUP; exec \"$@\"", "sh"])
        .arg(run::this()?)
        .args(["bench", TO_ITS_END])
        .args(arguments)
        .exec();
    Err(Failure::of(Path::new("sh"))(error))
}

/// Runs the benchmark to its end, whichever that is, and keeps its results.
fn measure(server: &Path, arguments: &[String]) -> Result<(), Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let number = now.map_or(0, |time| time.as_secs()).to_string();
    let report = project::target().join("bench").join(&number);
    make_directory(report.parent().unwrap_or(&report))?;
    // Results record how they came about, and not where.
    let out = report.strip_prefix(project::root()).unwrap_or(&report);
    let outcome = interruptible(&server.with_file_name("thrufs-lab"))
        .args(arguments)
        .args([Path::new("--out"), out])
        .env("PEERS", project::peers())
        .env("PROJECT", project::root())
        .run();
    // Before anything else can fail.
    keep(&report, &number)?;
    outcome
}

/// A program that receives the Ctrl-C that this process ignores.
fn interruptible(program: &Path) -> Step {
    let env = Step::new("env").args(["--default-signal=INT,HUP"]);
    env.args([program])
}

/// Makes the tables of the documents anew from the committed results.
fn document() -> Result<(), Failure> {
    let build = ["build", "--locked", "--bin", "thrufs-lab"];
    Step::cargo().args(build).run()?;
    Step::new(project::target().join("debug/thrufs-lab"))
        .args(["--bench", "document"])
        .args([
            "bench/results",
            "docs/performance.md",
            "bench/results/TABLES.md",
        ])
        .run()
}

/// Puts results beside others, to be committed; a list of rows, or a refused run, has none.
fn keep(report: &Path, number: &str) -> Result<(), Failure> {
    let found = report.join("results.json");
    if !found.exists() {
        return Ok(());
    }
    // `RESULTS` names another directory.
    let results = std::env::var_os("RESULTS").map(PathBuf::from);
    let results = results.unwrap_or_else(|| project::root().join("bench/results"));
    make_directory(&results)?;
    let kept = results.join(format!("{number}.json"));
    fs::copy(&found, &kept).map_err(Failure::of(&kept))?;
    println!("xtask: {}", kept.display());
    Ok(())
}

fn make_directory(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path).map_err(Failure::of(path))
}

/// Runs a script of `bench/`: shares for virtual machines beside virtiofsd, memory, or programs in sandboxes.
fn scripted(script: &str, server: &Path, arguments: &[String]) -> Result<(), Failure> {
    tools::set_up(Tier::Full)?;
    Step::confined()
        .args([Path::new("bench").join(script)])
        .args(arguments)
        .env("THRUFS", server)
        .env("VIRTIOFSD", tools::program("virtiofsd")?)
        .env("PROJECT", project::root())
        .run()
}
