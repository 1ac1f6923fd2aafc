//! The benchmark: the command, built optimised, with the peers that it is compared with.

use crate::project;
use crate::step::{Failure, Step};
use crate::tools;
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
    if let Some(("--shares", arguments)) = arguments
        .split_first()
        .map(|(first, rest)| (first.as_str(), rest))
    {
        return shares(&server, arguments);
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
    // Whoever has built them elsewhere says so.
    let peers = std::env::var_os("PEERS").map(PathBuf::from);
    let peers = peers.unwrap_or_else(|| project::target().join("peers"));
    let reports = project::target().join("bench");
    make_directory(&reports)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let number = now.map_or(0, |time| time.as_secs());
    let report = reports.join(number.to_string());
    // It is to hear what this process does not.
    let outcome = Step::new("env")
        .args(["--default-signal=INT,HUP"])
        .args([server])
        .args(["bench"])
        .args(arguments)
        .args([Path::new("--out"), &report])
        .env("PEERS", peers)
        .env("PROJECT", project::root())
        .run();
    keep(&report, number)?;
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

/// Shares for virtual machines, beside virtiofsd.
fn shares(server: &Path, arguments: &[String]) -> Result<(), Failure> {
    tools::set_up()?;
    // In a namespace of its own, which ends with it: no mount and no server is left.
    Step::new("unshare")
        .args(["--mount", "--propagation", "private"])
        .args(["--pid", "--fork", "--kill-child", "--mount-proc", "bash"])
        .args([project::root().join("bench/shares.sh")])
        .args(arguments)
        .env("THRUFS", server)
        .env("VIRTIOFSD", tools::program("virtiofsd"))
        .env("PROJECT", project::root())
        .run()
}
