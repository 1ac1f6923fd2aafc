//! The benchmark: the command, built optimised, with the peers that it is compared with.

mod asked;

use crate::project;
use crate::step::{Failure, Step};
use crate::{tools, vm_test};
use asked::Asked;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Builds the command and the benchmark, and runs the benchmark with `arguments`.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    if arguments == ["--document"] {
        return document();
    }
    if !tools::is_root()? {
        return Err(Failure::new(
            "the benchmark needs root: it mounts and drops caches",
        ));
    }
    Step::cargo()
        .args(["build", "--release", "--locked", "--bin", "thrufs"])
        .run()?;
    let server = project::target().join("release/thrufs");
    if let Some((first, rest)) = arguments.split_first() {
        match first.as_str() {
            "--shares" => return scripted("shares.sh", &server, rest),
            "--memory" => return scripted("memory.sh", &server, rest),
            _ => {}
        }
    }
    let asked = Asked::of(arguments)?;
    let reports = project::target().join("bench");
    make_directory(&reports)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let number = now.map_or(0, |time| time.as_secs());
    let report = reports.join(number.to_string());
    let mut outcome = Ok(());
    if asked.is_for_host() {
        outcome = Step::new(&server)
            .args(["bench"])
            .args(asked.of_host())
            .args([Path::new("--out"), &report])
            .env("PEERS", project::peers())
            .env("PROJECT", project::root())
            .run();
        // Before anything else can fail.
        keep(&report, number)?;
    }
    if let Some(rounds) = asked.rounds_in_guests() {
        let in_guests = in_guests(&server, &report, rounds);
        keep(&report, number)?;
        outcome = outcome.and(in_guests);
    }
    outcome
}

/// What belongs to the suite `published` and takes place in guests: measured, and added to the report.
fn in_guests(server: &Path, report: &Path, rounds: &str) -> Result<(), Failure> {
    tools::set_up()?;
    make_directory(report)?;
    let mut outcome = Ok(());
    let mut found = Vec::new();
    for (name, which) in [
        ("guest", ["--guest", "qemu"].as_slice()),
        ("open1", &["--open1"]),
    ] {
        let path = report.join(format!("{name}.json"));
        let mut words: Vec<String> = which.iter().map(|&word| word.to_owned()).collect();
        let more = ["--rounds", rounds, "--seconds", "1", "--save-as"];
        words.extend(more.map(str::to_owned));
        words.push(path.display().to_string());
        outcome = outcome.and(vm_test::bench(&words));
        // What was measured before something failed, too.
        if path.exists() {
            found.push(path);
        }
    }
    if !found.is_empty() {
        Step::new(server)
            .args([Path::new("--bench"), Path::new("guests"), report])
            .args(found)
            .env("PROJECT", project::root())
            .run()?;
    }
    outcome
}

/// Makes the tables of the document anew from the committed results.
fn document() -> Result<(), Failure> {
    Step::cargo()
        .args(["build", "--locked", "--bin", "thrufs"])
        .run()?;
    let root = project::root();
    Step::new(project::target().join("debug/thrufs"))
        .args(["--bench", "document"])
        .args([root.join("docs/performance.md"), root.join("bench/results")])
        .run()
}

/// Puts what was found beside other results, to be committed; a list of rows, or a run that was refused,
/// has found nothing.
fn keep(report: &Path, number: u64) -> Result<(), Failure> {
    let found = report.join("results.json");
    if !found.exists() {
        return Ok(());
    }
    let results = project::root().join("bench/results");
    make_directory(&results)?;
    let kept = results.join(format!("{number}.json"));
    std::fs::copy(&found, &kept)
        .map_err(|error| Failure::new(format!("{}: {error}", kept.display())))?;
    println!("xtask: {}", kept.display());
    Ok(())
}

fn make_directory(path: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(path)
        .map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

/// What a script of `bench/` measures: shares for virtual machines beside virtiofsd, or memory.
fn scripted(script: &str, server: &Path, arguments: &[String]) -> Result<(), Failure> {
    tools::set_up()?;
    // In a namespace of its own, which ends with it: no mount and no server is left.
    Step::new("unshare")
        .args(["--mount", "--propagation", "private"])
        .args(["--pid", "--fork", "--kill-child", "--mount-proc", "bash"])
        .args([project::root().join("bench").join(script)])
        .args(arguments)
        .env("THRUFS", server)
        .env("VIRTIOFSD", tools::program("virtiofsd"))
        .env("PROJECT", project::root())
        .run()
}
