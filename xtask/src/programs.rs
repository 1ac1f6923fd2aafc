//! Test programs, run as `cargo test` runs them, but several at a time: most of them wait more than
//! they compute. What each prints is kept together and shown when it has ended.

use crate::project;
use crate::step::{Failure, Step};
use crate::together;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::IsTerminal;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::Instant;

/// No program may run longer, in seconds; the longest is meant to take a tenth of it. One that hangs is
/// ended with all that it has started, fails, and the others run.
const SECONDS_MAX: u32 = 900;

/// Programs that run while no other does: they take a CPU from all others, turn a switch of the kernel,
/// look at what others leave in /run/thrufs, or have so much time for so many steps.
const ALONE: &[&str] = &[
    "thrufs-cli/bench_slow",
    "thrufs-cli/control",
    "thrufs-cli/doctor",
    "thrufs-cli/resume",
    "thrufs-tests/hostile",
    "thrufs-tests/pairing",
    "thrufs-tests/uring",
    "thrufs-virtio/pairing",
];

/// How long each took the last time, beneath the build directory: the longest begin first.
const SECONDS: &str = "test-seconds";

/// A program of tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The package and the program, as `thrufs-tests/served`.
    pub(crate) name: String,
    pub(crate) package: String,
    directory: PathBuf,
    executable: PathBuf,
}

/// What came of one.
struct Outcome {
    name: String,
    seconds: f64,
    status: ExitStatus,
    output: String,
}

/// Builds the test programs of the workspace, or those that cargo's arguments `select`.
pub(crate) fn build(select: &[&str]) -> Result<Vec<Program>, Failure> {
    let test = ["test", "--workspace", "--locked", "--no-run"];
    Step::cargo().args(test).args(select).run()?;
    // Again, for their names: nothing is left to be built.
    let listed = Step::cargo()
        .args(test)
        .args(select)
        .args(["--message-format", "json"])
        .capture_bytes()?;
    let programs = parse(&String::from_utf8_lossy(&listed));
    if programs.is_empty() {
        return Err(Failure::new("cargo names no test programs"));
    }
    Ok(programs)
}

/// The test programs among cargo's messages, one a line.
fn parse(messages: &str) -> Vec<Program> {
    let mut programs: Vec<Program> = messages.lines().filter_map(program).collect();
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    programs
}

fn program(message: &str) -> Option<Program> {
    let (_, profile) = message.split_once("\"profile\":{")?;
    let (profile, _) = profile.split_once('}')?;
    if !profile.contains("\"test\":true") {
        return None;
    }
    let executable = PathBuf::from(text(message, "executable")?);
    let manifest = PathBuf::from(text(message, "manifest_path")?);
    let file = executable.file_name()?.to_str()?;
    let (program, _hash) = file.rsplit_once('-')?;
    // `path+file:///where/name#0.1.0`, or `...#name@0.1.0` where the directory is called otherwise.
    let id = text(message, "package_id")?;
    let (place, version) = id.rsplit_once('#')?;
    let package = match version.split_once('@') {
        Some((name, _)) => name,
        None => place.rsplit_once('/')?.1,
    };
    Some(Program {
        name: format!("{package}/{program}"),
        package: package.to_owned(),
        directory: manifest.parent()?.to_owned(),
        executable,
    })
}

/// The string under `key`, which has nothing that JSON escapes: these are paths of ours.
fn text<'a>(message: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = message.split_once(&format!("\"{key}\":\""))?;
    Some(rest.split_once('"')?.0)
}

/// Runs them all, whatever becomes of each.
pub(crate) fn run(programs: Vec<Program>) -> Result<(), Failure> {
    let start = Instant::now();
    let count = programs.len();
    let record = project::target().join(SECONDS);
    let before = seconds(&fs::read_to_string(&record).unwrap_or_default());
    let (mut alone, mut together): (Vec<_>, Vec<_>) = programs
        .into_iter()
        .partition(|program| ALONE.contains(&program.name.as_str()));
    let by_seconds = |a: &Program, b: &Program| {
        let of = |program: &Program| before.get(&program.name).copied().unwrap_or(f64::MAX);
        of(b).total_cmp(&of(a)).then(a.name.cmp(&b.name))
    };
    together.sort_by(by_seconds);
    alone.sort_by(by_seconds);
    // As many as there are CPUs and one: each has a thread for every CPU, and waits most of its time.
    let at_once = thread::available_parallelism().map_or(1, usize::from) + 1;
    let mut outcomes = several(together, at_once)?;
    outcomes.append(&mut several(alone, 1)?);
    let mut all = before;
    for outcome in &outcomes {
        all.insert(outcome.name.clone(), outcome.seconds);
    }
    let lines = all
        .iter()
        .map(|(name, seconds)| format!("{name} {seconds:.1}\n"));
    // Without it, the order is another the next time.
    let _ = fs::write(&record, lines.collect::<String>());
    report(&outcomes, count, start)
}

fn several(programs: Vec<Program>, at_once: usize) -> Result<Vec<Outcome>, Failure> {
    let tell = |outcome: &Result<Outcome, Failure>| {
        if let Ok(outcome) = outcome {
            tell(outcome);
        }
    };
    let outcomes = together::each(programs, at_once, |program| one(&program), tell);
    outcomes.into_iter().collect()
}

fn one(program: &Program) -> Result<Outcome, Failure> {
    let start = Instant::now();
    let failure = |error| Failure::new(format!("{}: {error}", program.name));
    let name = format!("output-{}", program.name.replace('/', "-"));
    let path = std::env::temp_dir().join(name);
    let output = File::create(&path).map_err(failure)?;
    let mut command = Command::new("timeout");
    // Where somebody sits in front of it, the programs stay where an interrupt from there reaches them.
    if std::io::stdin().is_terminal() {
        command.arg("--foreground");
    }
    let status = command
        .args(["--signal=ABRT", "--kill-after=10"])
        .arg(SECONDS_MAX.to_string())
        .arg(&program.executable)
        .current_dir(&program.directory)
        .env("CARGO_PKG_NAME", &program.package)
        .env("CARGO_MANIFEST_DIR", &program.directory)
        .stdin(Stdio::null())
        .stdout(output.try_clone().map_err(failure)?)
        .stderr(output)
        .status()
        .map_err(failure)?;
    let output = fs::read(&path).map_err(failure)?;
    fs::remove_file(&path).map_err(failure)?;
    Ok(Outcome {
        name: program.name.clone(),
        seconds: start.elapsed().as_secs_f64(),
        status,
        output: String::from_utf8_lossy(&output).into_owned(),
    })
}

fn tell(outcome: &Outcome) {
    let Outcome {
        name,
        seconds,
        output,
        ..
    } = outcome;
    print!(
        "\n--- {name}\n{output}[{seconds:.1} s] {name}: {}\n",
        result(outcome)
    );
}

/// The line of libtest that sums up, or how the program ended without it.
fn result(outcome: &Outcome) -> String {
    let mut lines = outcome.output.lines().rev();
    let line = lines.find(|line| line.starts_with("test result: "));
    match (line, outcome.status.signal()) {
        // `timeout` tells of its own kills so.
        (None, _) if matches!(outcome.status.code(), Some(124 | 137)) => {
            format!("not over after {SECONDS_MAX} s")
        }
        (Some(line), None) => line.to_owned(),
        _ => format!("ended early: {}", outcome.status),
    }
}

/// What failed, once more where nobody has to look for it, and the sums.
fn report(outcomes: &[Outcome], count: usize, start: Instant) -> Result<(), Failure> {
    let failed: Vec<&Outcome> = outcomes.iter().filter(|it| !it.status.success()).collect();
    for outcome in &failed {
        println!("\nxtask: what failed in {}, once more:", outcome.name);
        println!("{}", failures(&outcome.output).join("\n"));
        println!("{}", result(outcome));
    }
    let sum = |word| {
        outcomes
            .iter()
            .map(|it| counted(&it.output, word))
            .sum::<u64>()
    };
    println!(
        "\ntest result: {}. {} passed; {} failed; {} ignored; {count} programs; finished in {:.0} s",
        if failed.is_empty() { "ok" } else { "FAILED" },
        sum(" passed"),
        sum(" failed"),
        sum(" ignored"),
        start.elapsed().as_secs_f64()
    );
    if failed.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = failed.iter().map(|it| it.name.as_str()).collect();
    Err(Failure::new(format!(
        "tests failed in {}",
        names.join(", ")
    )))
}

/// What libtest says of failing tests; without that, the last of what was said.
fn failures(output: &str) -> Vec<&str> {
    const MAX: usize = 200;
    let lines: Vec<&str> = output.lines().collect();
    match lines.iter().position(|line| *line == "failures:") {
        Some(first) => lines[first..].iter().copied().take(MAX).collect(),
        None => lines[lines.len().saturating_sub(40)..].to_vec(),
    }
}

/// The number in front of `word` in the lines that sum up.
fn counted(output: &str, word: &str) -> u64 {
    let lines = output
        .lines()
        .filter(|line| line.starts_with("test result: "));
    let numbers = lines.filter_map(|line| {
        let (before, _) = line.split_once(word)?;
        before.rsplit(' ').next()?.parse::<u64>().ok()
    });
    numbers.sum()
}

fn seconds(record: &str) -> BTreeMap<String, f64> {
    let pairs = record.lines().filter_map(|line| {
        let (name, seconds) = line.split_once(' ')?;
        Some((name.to_owned(), seconds.parse().ok()?))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::{counted, failures, parse};
    use std::path::Path;

    #[test]
    fn test_programs_are_found_among_cargos_messages() {
        let message = |id: &str, test: bool, executable: &str| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"package_id\":\"path+file:///w/{id}\",\
                 \"manifest_path\":\"/w/crates/core/Cargo.toml\",\"target\":{{\"test\":true}},\
                 \"profile\":{{\"opt_level\":\"0\",\"test\":{test}}},\"executable\":{executable}}}"
            )
        };
        let messages = [
            message(
                "crates/core#thrufs@0.1.0",
                true,
                "\"/w/target/debug/deps/rings-0123\"",
            ),
            message(
                "crates/core#thrufs@0.1.0",
                false,
                "\"/w/target/debug/thrufs\"",
            ),
            message("xtask#0.1.0", true, "\"/w/target/debug/deps/xtask-0123\""),
            message("crates/core#thrufs@0.1.0", true, "null"),
            "{\"reason\":\"build-finished\",\"success\":true}".to_owned(),
        ];
        let programs = parse(&messages.join("\n"));
        let names: Vec<_> = programs.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["thrufs/rings", "xtask/xtask"]);
        assert_eq!(programs[0].directory, Path::new("/w/crates/core"));
    }

    #[test]
    fn numbers_are_summed_and_failures_kept() {
        let output = "test one ... ok\ntest two ... FAILED\nfailures:\n---- two stdout ----\n\
                      failures:\n    two\ntest result: FAILED. 12 passed; 1 failed; 3 ignored; 0 \
                      measured\n";
        assert_eq!(counted(output, " passed"), 12);
        assert_eq!(counted(output, " failed"), 1);
        assert_eq!(failures(output)[1], "---- two stdout ----");
        assert_eq!(failures(output).len(), 5);
        assert_eq!(
            failures("it ended\nby a signal"),
            ["it ended", "by a signal"]
        );
    }
}
