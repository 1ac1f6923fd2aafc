//! Test programs, run as `cargo test` runs them, but several at a time: most of them wait more than
//! they compute. What each prints is kept together and shown when it has ended.
//!
//! A test of [`TWICE`] that fails runs once more, alone. If it passes then, it is FLAKY: counted, shown
//! with what it said both times, and a failure of the run if there are more than [`FLAKY_MAX`].

use crate::step::{Failure, Step};
use crate::together;
use crate::tools::Tier;
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

/// Programs that run only with `--full` or by name: those of the benchmark, and the list of POSIX cases
/// without the product.
const FULL: &[&str] = &[
    "thrufs-bench/thrufs_bench",
    "thrufs-cli/bench",
    "thrufs-tests/posix_native",
    "xtask/bench",
];

/// Programs that run while no other does: they look at what others leave in /run/thrufs, have the kernel
/// drop all its caches, or count on a CPU for each of their threads.
const ALONE: &[&str] = &[
    "thrufs-bench/thrufs_bench",
    "thrufs-cli/alone",
    "thrufs-cli/bench",
    "thrufs-tests/uring",
];

/// The longest programs, which begin first, so that the last one to end does not run alone for long.
const FIRST: &[&str] = &[
    "thrufs-tests/posix_mount",
    "thrufs-tests/policy",
    "thrufs-tests/posix_relay",
    "thrufs-cli/command",
    "thrufs-tests/relayed",
    "thrufs-tests/killpriv",
    "thrufs-tests/lifetime",
    "thrufs-tests/passthrough",
    "thrufs-tests/requests",
    "thrufs-hostdir/thrufs_hostdir",
    "thrufs-tests/property",
    "thrufs-tests/coherence",
    "thrufs-client/peers",
];

/// How the names of tests begin that run once more if they fail: they start, stop and kill processes,
/// and wait for them. No test in process, of walls, privileges, redaction or data is among them.
const TWICE: &[&str] = &[
    "thrufs-cli/alone ",
    "thrufs-cli/command doctor::",
    "thrufs-cli/command migration::",
    "thrufs-cli/command mounting::",
    "thrufs-cli/command share::",
    "thrufs-cli/command stuck::",
    "thrufs-cli/command unmounting::",
    "thrufs-client/peers ",
    "thrufs-tests/closing ",
    "thrufs-tests/lifetime ",
    "thrufs-tests/relayed ",
    "thrufs-tests/requests ",
    "thrufs-tests/resume ",
    "thrufs-tests/uring ",
];

/// How many tests of a run may be FLAKY.
const FLAKY_MAX: usize = 2;

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
pub(crate) struct Outcome {
    name: String,
    pub(crate) seconds: f64,
    status: ExitStatus,
    pub(crate) output: String,
    /// The tests that failed, as far as it said so.
    failed: Vec<String>,
    /// Those that passed when they ran once more.
    flaky: Vec<String>,
}

/// Builds the test programs of the workspace: those whose names have one of `parts`; without `parts`, those
/// of the tier.
pub(crate) fn build(parts: &[String], tier: Tier) -> Result<Vec<Program>, Failure> {
    let test = ["test", "--workspace", "--locked", "--no-run"];
    Step::cargo().args(test).run()?;
    // Again, for their names: nothing is left to be built.
    let listed = Step::cargo()
        .args(test)
        .args(["--message-format", "json"])
        .capture_bytes()?;
    let mut programs = parse(&String::from_utf8_lossy(&listed));
    programs.retain(|it| {
        if parts.is_empty() {
            tier == Tier::Full || !FULL.contains(&it.name.as_str())
        } else {
            parts.iter().any(|part| it.name.contains(part))
        }
    });
    if programs.is_empty() {
        let parts = parts.join(", ");
        return Err(Failure::new(format!("no test programs: {parts}")));
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

/// Runs them all, whatever becomes of each, with `variables` in their environment.
pub(crate) fn run(programs: &[Program], variables: &[(&str, &str)]) -> Result<(), Failure> {
    let start = Instant::now();
    let is_alone = |program: &&Program| ALONE.contains(&program.name.as_str());
    let (alone, mut together): (Vec<_>, Vec<_>) = programs.iter().partition(is_alone);
    let rank = |program: &&Program| FIRST.iter().position(|name| *name == program.name);
    together.sort_by_key(|program| rank(program).unwrap_or(FIRST.len()));
    // As many as there are CPUs and one: each has a thread for every CPU, and waits most of its time.
    let at_once = thread::available_parallelism().map_or(1, usize::from) + 1;
    let work = |program: &Program| program.run(&[], variables);
    let mut outcomes = Vec::new();
    for (programs, at_once) in [(together, at_once), (alone, 1)] {
        for outcome in together::each(programs, at_once, work, tell) {
            outcomes.push(outcome?);
        }
    }
    let mut flaky = 0;
    for outcome in &mut outcomes {
        flaky += again(programs, outcome, variables)?;
    }
    report(&outcomes, flaky, start)
}

/// Runs the tests of a program that failed and may run once more. Gives how many passed then, and leaves
/// in `outcome` the names of those that did not.
fn again(
    programs: &[Program],
    outcome: &mut Outcome,
    variables: &[(&str, &str)],
) -> Result<usize, Failure> {
    let Some(program) = programs.iter().find(|it| it.name == outcome.name) else {
        return Ok(0);
    };
    let mut flaky = Vec::new();
    for test in &outcome.failed {
        let name = format!("{} {test}", program.name);
        if !TWICE.iter().any(|begin| name.starts_with(begin)) {
            continue;
        }
        println!("\nxtask: once more, alone: {name}");
        let second = program.run(&["--exact", test], variables)?;
        // A name that no test has would pass.
        if second.status.success() && counted(&second.output, " passed") == 1 {
            let first = failures(&outcome.output).join("\n");
            println!(
                "FLAKY {name}\n--- first\n{first}\n--- then\n{}",
                second.output
            );
            flaky.push(test.clone());
        } else {
            println!("{}\nFAILED twice: {name}", second.output);
        }
    }
    outcome.failed.retain(|test| !flaky.contains(test));
    outcome.flaky = flaky;
    Ok(outcome.flaky.len())
}

impl Program {
    /// Runs it with `arguments` of libtest, and `variables` in its environment.
    pub(crate) fn run(
        &self,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<Outcome, Failure> {
        let start = Instant::now();
        let failure = |error| Failure::new(format!("{}: {error}", self.name));
        // Our own tests may run programs of the same names at the same time.
        let name = self.name.replace('/', "-");
        let name = format!("output-{}-{name}", std::process::id());
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
            .arg(&self.executable)
            .args(arguments)
            .current_dir(&self.directory)
            .env("CARGO_PKG_NAME", &self.package)
            .env("CARGO_MANIFEST_DIR", &self.directory)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(failure)?)
            .stderr(output)
            .status()
            .map_err(failure)?;
        let output = fs::read(&path).map_err(failure)?;
        fs::remove_file(&path).map_err(failure)?;
        let output = String::from_utf8_lossy(&output).into_owned();
        Ok(Outcome {
            name: self.name.clone(),
            seconds: start.elapsed().as_secs_f64(),
            status,
            failed: if status.success() {
                Vec::new()
            } else {
                failed(&output)
            },
            flaky: Vec::new(),
            output,
        })
    }
}

impl Program {
    /// Whether it has tests that are ignored, apart from those whose names have one of these parts.
    pub(crate) fn has_ignored(&self, but: &[&str]) -> Result<bool, Failure> {
        let step = Step::new(&self.executable).args(["--list", "--ignored", "--format", "terse"]);
        let listed = step.capture_bytes()?;
        let listed = String::from_utf8_lossy(&listed);
        let mut tests = listed.lines().filter(|line| line.ends_with(": test"));
        Ok(tests.any(|test| !but.iter().any(|part| test.contains(part))))
    }
}

impl Outcome {
    /// Whether it passed, if need be with the tests that ran once more.
    pub(crate) fn is_good(&self) -> bool {
        self.status.success() || self.failed.is_empty() && !self.flaky.is_empty()
    }
}

fn tell(outcome: &Result<Outcome, Failure>) {
    let Ok(outcome) = outcome else {
        return;
    };
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
fn report(outcomes: &[Outcome], flaky: usize, start: Instant) -> Result<(), Failure> {
    let bad: Vec<&Outcome> = outcomes.iter().filter(|it| !it.is_good()).collect();
    for outcome in &bad {
        println!("\nxtask: what failed in {}, once more:", outcome.name);
        println!("{}", failures(&outcome.output).join("\n"));
        println!("{}", result(outcome));
    }
    for outcome in outcomes {
        for test in &outcome.flaky {
            println!("FLAKY {} {test}", outcome.name);
        }
    }
    let sum = |word| -> u64 { outcomes.iter().map(|it| counted(&it.output, word)).sum() };
    let again = flaky as u64;
    println!(
        "\ntest result: {}. {} passed; {} failed; {} ignored; {flaky} flaky; {} programs; finished in {:.0} s",
        if bad.is_empty() { "ok" } else { "FAILED" },
        sum(" passed") + again,
        sum(" failed") - again,
        sum(" ignored"),
        outcomes.len(),
        start.elapsed().as_secs_f64()
    );
    if !bad.is_empty() {
        let names: Vec<&str> = bad.iter().map(|it| it.name.as_str()).collect();
        let names = names.join(", ");
        return Err(Failure::new(format!("tests failed in {names}")));
    }
    if flaky > FLAKY_MAX {
        return Err(Failure::new(format!(
            "{flaky} tests passed only when they ran once more; {FLAKY_MAX} may"
        )));
    }
    Ok(())
}

/// The names of failing tests, which libtest lists last.
fn failed(output: &str) -> Vec<String> {
    let lines: Vec<&str> = output.lines().collect();
    let Some(list) = lines.iter().rposition(|line| *line == "failures:") else {
        return Vec::new();
    };
    let names = lines[list + 1..].iter();
    let names = names.map_while(|line| line.strip_prefix("    "));
    names.map(str::to_owned).collect()
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

#[cfg(test)]
mod tests {
    use super::{FLAKY_MAX, Program, counted, failed, failures, parse, run};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
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

    /// A program whose only failing test, one of this module, passes if it runs again by its name.
    fn failing_once(name: &str, module: &str) -> Program {
        let script = std::env::temp_dir().join(format!("xtask-{}", name.replace('/', "-")));
        let text = format!(
            "#!/bin/sh\n\
            if [ \"$1 $2\" = '--exact {module}::slow: it ends' ]; then\n\
            echo 'test result: ok. 1 passed; 0 failed; 0 ignored'; exit 0; fi\n\
            printf 'failures:\\n\\nfailures:\\n    {module}::slow: it ends\\n\\n'\n\
            echo 'test result: FAILED. 3 passed; 1 failed; 0 ignored'; exit 101\n"
        );
        fs::write(&script, text).expect("a script");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("a program");
        Program {
            name: name.to_owned(),
            package: "p".to_owned(),
            directory: std::env::temp_dir(),
            executable: script,
        }
    }

    #[test]
    fn only_some_tests_run_once_more_and_few_may_need_it() {
        let flaky = failing_once("thrufs-tests/closing", "any");
        assert!(run(std::slice::from_ref(&flaky), &[]).is_ok());
        let walls = failing_once("thrufs-cli/command", "walls");
        let failure = run(&[flaky.clone(), walls], &[]).expect_err("walls never run again");
        assert_eq!(failure.to_string(), "tests failed in thrufs-cli/command");
        let three = [
            flaky,
            failing_once("thrufs-cli/alone", "control"),
            failing_once("thrufs-cli/command", "mounting"),
        ];
        assert_eq!(three.len(), FLAKY_MAX + 1);
        let failure = run(&three, &[]).expect_err("three are too many");
        assert!(
            failure.to_string().starts_with("3 tests passed only"),
            "{failure}"
        );
    }

    #[test]
    fn numbers_are_summed_and_failures_kept() {
        let output = "test one ... ok\ntest two ... FAILED\nfailures:\n---- two stdout ----\n\
                      failures:\n    two\ntest result: FAILED. 12 passed; 1 failed; 3 ignored; 0 \
                      measured\n";
        assert_eq!(counted(output, " passed"), 12);
        assert_eq!(counted(output, " failed"), 1);
        assert_eq!(failed(output), ["two"]);
        assert!(failed("failures:\n").is_empty());
        assert_eq!(failures(output)[1], "---- two stdout ----");
        assert_eq!(failures(output).len(), 5);
        assert_eq!(
            failures("it ended\nby a signal"),
            ["it ended", "by a signal"]
        );
    }
}
