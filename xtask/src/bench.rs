//! The benchmark: the command, built optimised, with the peers that it is compared with.

use crate::arguments::Arguments;
use crate::project;
use crate::run;
use crate::step::{Failure, Step};
use crate::tools::{self, Tier};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Before the arguments of a chore that Ctrl-C and the terminal's end leave alone.
const TO_ITS_END: &str = "--to-its-end";

/// Builds the command and the benchmark, and runs the benchmark with `arguments`.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let (first, rest) = match arguments {
        [first, rest @ ..] => (first.as_str(), rest),
        [] => ("", arguments),
    };
    if first == "--document" {
        return document();
    }
    tools::need_root()?;
    let server = project::release()?;
    match first {
        "--shares" => scripted("shares.sh", &server, rest),
        "--memory" => scripted("memory.sh", &server, rest),
        TO_ITS_END => measure(&server, rest),
        _ => become_patient(arguments),
    }
}

/// Starts this chore anew in this process, so that Ctrl-C ends the benchmark alone: what that has found by then
/// is still to be kept. What is ignored stays so across exec(2), and there is no other way without unsafe code.
fn become_patient(arguments: &[String]) -> Result<(), Failure> {
    let error = Command::new("sh")
        .args(["-c", "trap '' INT HUP; exec \"$@\"", "sh"])
        .arg(run::this()?)
        .args(["bench", TO_ITS_END])
        .args(arguments)
        .exec();
    Err(Failure::of(Path::new("sh"))(error))
}

/// Runs the benchmark to its end, whichever that is, and keeps what it has found.
fn measure(server: &Path, arguments: &[String]) -> Result<(), Failure> {
    let (on_host, in_guests) = asked(arguments)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let number = now.map_or(0, |time| time.as_secs()).to_string();
    let report = project::target().join("bench").join(&number);
    let mut outcome = Ok(());
    if let Some(arguments) = on_host {
        make_directory(report.parent().unwrap_or(&report))?;
        // Results tell how they came about, and not where.
        let out = report.strip_prefix(project::root()).unwrap_or(&report);
        outcome = interruptible(server)
            .args(["bench"])
            .args(arguments)
            .args([Path::new("--out"), out])
            .env("PEERS", project::peers())
            .env("PROJECT", project::root())
            .run();
    }
    // Before anything else can fail.
    keep(&report, &number)?;
    if let (Some(rounds), Ok(())) = (in_guests, &outcome) {
        outcome = measure_guests(server, &report, &rounds);
        keep(&report, &number)?;
    }
    outcome
}

/// What `thrufs bench` is told, if anything is measured on this machine, and how many rounds there are in
/// guests, if any: the suite `published` has a part there.
fn asked(arguments: &[String]) -> Result<(Option<Vec<String>>, Option<String>), Failure> {
    let mut on_host = Arguments(arguments.to_vec());
    let (no_guest, only_guest) = (on_host.flag("--no-guest"), on_host.flag("--only-guest"));
    let mut options = Arguments(arguments.to_vec());
    let is_published = options.value("--suite")?.as_deref() == Some("published");
    // Whoever chooses rows, or only asks, wants no guests.
    let asks = options.flag("--list") || options.flag("--help") || options.flag("-h");
    let without = no_guest || asks || options.value("--rows")?.is_some();
    if (no_guest || only_guest) && !is_published || only_guest && without {
        return Err(Failure::new(
            "--no-guest or --only-guest goes with --suite published; rows in guests are those of vm-bench",
        ));
    }
    let rounds = options.value("--rounds")?.unwrap_or_else(|| "5".to_owned());
    let in_guests = (is_published && !without).then_some(rounds);
    Ok(((!only_guest).then_some(on_host.0), in_guests))
}

/// A program that is to hear the Ctrl-C that this process does not.
fn interruptible(program: &Path) -> Step {
    Step::new("env")
        .args(["--default-signal=INT,HUP"])
        .args([program])
}

/// What belongs to the suite `published` and takes place in guests: measured, and added to the report.
fn measure_guests(server: &Path, report: &Path, rounds: &str) -> Result<(), Failure> {
    tools::set_up(Tier::Full)?;
    make_directory(report)?;
    let (guest, open1) = (report.join("guest.json"), report.join("open1.json"));
    let measure = |which: &[&str], path: &Path| {
        let vm_bench = interruptible(&run::this()?).args(["vm-bench"]).args(which);
        vm_bench
            .args(["--rounds", rounds, "--seconds", "1", "--save-as"])
            .args([path])
            .run()
    };
    let outcome =
        measure(&["--guest", "qemu"], &guest).and_then(|()| measure(&["--open1"], &open1));
    // What was measured before something failed, too.
    let found: Vec<_> = [guest, open1]
        .into_iter()
        .filter(|path| path.exists())
        .collect();
    if !found.is_empty() {
        Step::new(server.with_file_name("thrufs-bench"))
            .args(["--bench", "guests"])
            .args([report])
            .args(found)
            .env("PROJECT", project::root())
            .run()?;
    }
    outcome
}

/// Makes the tables of the document anew from the committed results.
fn document() -> Result<(), Failure> {
    Step::cargo()
        .args(["build", "--locked", "--bin", "thrufs-bench"])
        .run()?;
    Step::new(project::target().join("debug/thrufs-bench"))
        .args([
            "--bench",
            "document",
            "docs/performance.md",
            "bench/results",
        ])
        .run()
}

/// Puts what was found beside other results, to be committed; a list of rows, or a run that was refused,
/// has found nothing.
fn keep(report: &Path, number: &str) -> Result<(), Failure> {
    let found = report.join("results.json");
    if !found.exists() {
        return Ok(());
    }
    // Whoever is to keep them elsewhere says so.
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

/// What a script of `bench/` measures: shares for virtual machines beside virtiofsd, or memory.
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

#[cfg(test)]
mod tests {
    use super::asked;

    #[test]
    fn the_published_suite_has_guests_and_others_have_none() {
        let asked = |text: &str| asked(&Vec::from_iter(text.split(' ').map(str::to_owned)));
        for (text, is_on_host, rounds) in [
            ("--suite published", true, Some("5")),
            ("--rounds=2 --suite=published", true, Some("2")),
            ("--suite published --no-guest", true, None),
            ("--suite published --only-guest", false, Some("5")),
            ("--suite published --rows=a", true, None),
            ("--suite builds", true, None),
        ] {
            let (on_host, in_guests) = asked(text).expect("it makes sense");
            let found = (on_host.is_some(), in_guests.as_deref());
            assert_eq!(found, (is_on_host, rounds), "{text}");
        }
        assert!(asked("--suite published --only-guest --rows a").is_err());
    }
}
