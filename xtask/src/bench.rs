//! The benchmark: the command, built optimised, with the peers that it is compared with.

mod asked;

use crate::project;
use crate::step::{Failure, Step};
use crate::tools;
use asked::Asked;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Before the arguments of a chore that Ctrl-C and the terminal's end leave alone.
const TO_ITS_END: &str = "--to-its-end";

/// Builds the command and the benchmark, and runs the benchmark with `arguments`.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    if arguments == ["--document"] {
        return document();
    }
    let server = project::target().join("release/thrufs");
    if let Some((first, arguments)) = arguments.split_first()
        && first == TO_ITS_END
    {
        return measure(&server, arguments);
    }
    if !tools::is_root()? {
        return Err(Failure::new(
            "the benchmark needs root: it mounts and drops caches",
        ));
    }
    Step::cargo()
        .args(["build", "--release", "--locked", "--bin", "thrufs"])
        .run()?;
    if let Some((first, rest)) = arguments.split_first() {
        match first.as_str() {
            "--shares" => return scripted("shares.sh", &server, rest),
            "--memory" => return scripted("memory.sh", &server, rest),
            _ => {}
        }
    }
    Err(become_patient(arguments))
}

/// Starts this chore anew in this process, so that Ctrl-C ends the benchmark alone: what that has found by then
/// is still to be kept. What is ignored stays so across exec(2), and there is no other way without unsafe code.
fn become_patient(arguments: &[String]) -> Failure {
    let this = match std::env::current_exe() {
        Ok(this) => this,
        Err(error) => return Failure::new(format!("cannot find this program: {error}")),
    };
    let error = Command::new("sh")
        .args(["-c", "trap '' INT HUP; exec \"$@\"", "sh"])
        .arg(this)
        .args(["bench", TO_ITS_END])
        .args(arguments)
        .exec();
    Failure::new(format!("cannot start again: {error}"))
}

/// Runs the benchmark to its end, whichever that is, and keeps what it has found.
fn measure(server: &Path, arguments: &[String]) -> Result<(), Failure> {
    let asked = Asked::of(arguments)?;
    let reports = project::target().join("bench");
    make_directory(&reports)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let number = now.map_or(0, |time| time.as_secs());
    let report = reports.join(number.to_string());
    let mut outcome = Ok(());
    if asked.is_for_host() {
        outcome = interruptible(server)
            .args(["bench"])
            .args(asked.of_host())
            .args([Path::new("--out"), in_project(&report)])
            .env("PEERS", project::peers())
            .env("PROJECT", project::root())
            .run();
        // Before anything else can fail.
        keep(&report, number)?;
    }
    if let Some(rounds) = asked.rounds_in_guests() {
        if outcome.is_err() {
            println!("xtask: not measured: guests (--only-guest measures them alone)");
            return outcome;
        }
        outcome = in_guests(server, &report, rounds);
        keep(&report, number)?;
    }
    outcome
}

/// From the top of the repository, where programs are run: results tell how they came about, and not where.
fn in_project(path: &Path) -> &Path {
    path.strip_prefix(project::root()).unwrap_or(path)
}

/// It is to hear the Ctrl-C that this process does not.
fn interruptible(program: &Path) -> Step {
    Step::new("env")
        .args(["--default-signal=INT,HUP"])
        .args([program])
}

/// What belongs to the suite `published` and takes place in guests: measured, and added to the report.
fn in_guests(server: &Path, report: &Path, rounds: &str) -> Result<(), Failure> {
    let this = std::env::current_exe()
        .map_err(|error| Failure::new(format!("cannot find this program: {error}")))?;
    tools::set_up(tools::Tier::Full)?;
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
        if outcome.is_ok() {
            outcome = interruptible(&this).args(["vm-bench"]).args(&words).run();
        }
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
    // Whoever is to keep them elsewhere says so.
    let results = std::env::var_os("RESULTS").map(PathBuf::from);
    let results = results.unwrap_or_else(|| project::root().join("bench/results"));
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
    tools::set_up(tools::Tier::Full)?;
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
