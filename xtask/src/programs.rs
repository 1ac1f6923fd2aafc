//! Test programs, run as `cargo test` runs them, but several at a time: most of them wait more than they
//! compute.
//!
//! A failed test of [`TWICE`] runs once more, alone. If it passes then, it is FLAKY: counted, shown with
//! both outputs, and a failure of the run if there are more than [`FLAKY_MAX`].

use crate::failure::Failure;
use crate::job::{self, Job, Outcome, SECONDS_MAX, SECONDS_PER_TEST};
use crate::step::Step;
use crate::tools::Tier;
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

/// Prefixes of programs that run only with `--full` or by name: the benchmark's, the POSIX cases without
/// the product, and the soak of following, which takes its time.
const FULL: &[&str] = &[
    "thrufs-bench/thrufs_bench",
    "thrufs-cli/bench",
    "thrufs-tests/posix_native",
    "thrufs-tests/soak",
];

/// Prefixes of programs that run alone: they read what others leave in /run/thrufs, have the kernel drop
/// all its caches, or need a CPU for each of their threads.
const ALONE: &[&str] = &[
    "thrufs-bench/",
    "thrufs-cli/alone",
    "thrufs-cli/bench",
    "thrufs-tests/uring",
];

/// Prefixes of the longest, which begin first, so that the last one to end does not run alone for long.
const FIRST: &[&str] = &[
    "thrufs-cli/command",
    "thrufs-tests/po",
    "thrufs-tests/served",
    "thrufs-tests/relayed",
    "thrufs-tests/",
];

/// Prefixes of programs whose tests wait for processes, kernels and time limits far more than they compute: each has
/// two threads for every CPU.
const WAITING: &[&str] = &["thrufs-cli/command", "thrufs-tests/served"];

/// Prefixes of tests that run once more if they fail: they start, stop and kill processes, and wait for
/// them. No test in process, of walls, privileges, redaction or data is among them.
const TWICE: &[&str] = &[
    "thrufs-cli/alone ",
    "thrufs-cli/command doctor::",
    "thrufs-cli/command migration::",
    "thrufs-cli/command mounting::",
    "thrufs-cli/command share::",
    "thrufs-cli/command stuck::",
    "thrufs-client/peers ",
    "thrufs-tests/closing ",
    "thrufs-tests/lifetime ",
    "thrufs-tests/relayed ",
    "thrufs-tests/requests ",
    "thrufs-tests/uring ",
];

/// How many tests of a run may be FLAKY.
const FLAKY_MAX: usize = 2;

/// Cargo runs this with the environment of each test program, in its directory.
const RUNNER: &str = "target.'cfg(all())'.runner = \
    ['sh', '-c', 'printf \"%s\\t%s\\t%s\\n\" \"$CARGO_PKG_NAME\" \"$PWD\" \"$0\"']";

pub(crate) struct Program {
    /// The package and the program, as `thrufs-tests/served`.
    pub(crate) name: String,
    package: String,
    directory: PathBuf,
    pub(crate) executable: PathBuf,
}

/// Builds the test programs whose names have one of `parts`; without `parts`, those of the tier.
pub(crate) fn build(parts: &[String], tier: Tier) -> Result<Vec<Program>, Failure> {
    let test = ["test", "--workspace", "--locked"];
    Step::cargo().args(test).args(["--no-run"]).run()?;
    // Again, for their names, with a runner that prints them in place of running them: everything is built.
    let listing = Step::cargo()
        .args(test)
        .args(["--tests", "--quiet", "--config", RUNNER]);
    let listing = listing.text()?;
    let mut programs: Vec<Program> = listing.lines().filter_map(program).collect();
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    programs.retain(|it| match parts {
        [] => tier == Tier::Full || !is_among(&it.name, FULL),
        parts => parts.iter().any(|part| it.name.contains(part)),
    });
    let names = parts.join(", ");
    match programs.is_empty() {
        true => Err(Failure::new(format!("no test programs: {names}"))),
        false => Ok(programs),
    }
}

/// A line that the runner prints.
fn program(line: &str) -> Option<Program> {
    let words: Vec<&str> = line.split('\t').collect();
    let &[package, directory, executable] = words.as_slice() else {
        return None;
    };
    let executable = PathBuf::from(executable);
    let (program, _hash) = executable.file_name()?.to_str()?.rsplit_once('-')?;
    Some(Program {
        name: format!("{package}/{program}"),
        package: package.to_owned(),
        directory: directory.into(),
        executable,
    })
}

pub(crate) fn cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn is_among(name: &str, beginnings: &[&str]) -> bool {
    beginnings.iter().any(|begin| name.starts_with(begin))
}

/// Runs them all, whatever becomes of each, with `variables` in their environment; and `more` among them.
pub(crate) fn run(
    programs: &[Program],
    more: Vec<Job>,
    variables: &[(&str, &str)],
) -> Result<(), Failure> {
    let start = Instant::now();
    let job = |program: &Program| Job {
        name: program.name.clone(),
        step: program.step(&[]).envs(variables.iter().copied()),
        is_alone: is_among(&program.name, ALONE),
    };
    let rank = |program: &&Program| {
        let first = FIRST.iter().position(|it| program.name.starts_with(it));
        first.unwrap_or(FIRST.len())
    };
    let mut sorted: Vec<_> = programs.iter().collect();
    sorted.sort_by_key(rank);
    let longest = sorted.partition_point(|it| rank(it) < FIRST.len());
    let mut jobs: Vec<Job> = sorted.into_iter().map(job).collect();
    jobs.splice(longest..longest, more);
    // One more than CPUs: each has a thread for every CPU, and waits most of its time.
    let at_once = cpus() + 1;
    let outcomes = job::all(jobs, at_once)?;
    let (mut bad, mut flaky) = (Vec::new(), Vec::new());
    for outcome in outcomes.iter().filter(|outcome| !outcome.status.success()) {
        let program = programs.iter().find(|it| it.name == outcome.name);
        let passed = program.map_or(Ok(Vec::new()), |program| program.again(outcome, variables))?;
        let failed = failed(&outcome.output);
        if failed.is_empty() || passed.len() < failed.len() {
            bad.push(outcome);
        }
        flaky.extend(passed);
    }
    let outcome = job::report("tests", bad.into_iter());
    flaky.iter().for_each(|test| println!("FLAKY {test}"));
    let sum = |word| -> usize { outcomes.iter().map(|it| counted(&it.output, word)).sum() };
    println!(
        "\ntest result: {}. {} passed; {} failed; {} ignored; {} flaky; {} programs; finished in {:.0} s",
        if outcome.is_ok() { "ok" } else { "FAILED" },
        sum(" passed") + flaky.len(),
        sum(" failed") - flaky.len(),
        sum(" ignored"),
        flaky.len(),
        outcomes.len(),
        start.elapsed().as_secs_f64()
    );
    match outcome {
        Ok(()) if flaky.len() > FLAKY_MAX => Err(Failure::new(format!(
            "{} tests passed only when they ran once more; {FLAKY_MAX} may",
            flaky.len()
        ))),
        outcome => outcome,
    }
}

impl Program {
    /// The step that runs it with `arguments` of libtest.
    pub(crate) fn step(&self, arguments: &[&str]) -> Step {
        let step = Step::limited(self.seconds_max())
            .args([&self.executable])
            .args(arguments)
            .directory(&self.directory)
            .env("CARGO_PKG_NAME", &self.package)
            .env("CARGO_MANIFEST_DIR", &self.directory);
        match is_among(&self.name, WAITING) {
            true => step.env("RUST_TEST_THREADS", (2 * cpus()).to_string()),
            false => step,
        }
    }

    fn seconds_max(&self) -> u32 {
        // One that lists nothing fails when it runs.
        let tests = self.tests(&[]).map_or(0, |tests| tests.len());
        SECONDS_MAX + SECONDS_PER_TEST * u32::try_from(tests).unwrap_or_default()
    }

    /// The names of its tests, or of those that these further arguments of libtest select.
    pub(crate) fn tests(&self, selected: &[&str]) -> Result<Vec<String>, Failure> {
        let step = Step::new(&self.executable).args(["--list", "--format", "terse"]);
        let listed = step.args(selected).text()?;
        let names = listed
            .lines()
            .filter_map(|line| line.strip_suffix(": test"));
        Ok(names.map(str::to_owned).collect())
    }

    /// Runs the failed tests once more, alone, if they may: those that pass then.
    fn again(&self, outcome: &Outcome, variables: &[(&str, &str)]) -> Result<Vec<String>, Failure> {
        let mut flaky = Vec::new();
        for test in failed(&outcome.output) {
            let name = format!("{} {test}", self.name);
            if !is_among(&name, TWICE) {
                continue;
            }
            println!("\nxtask: once more, alone: {name}");
            let step = self.step(&["--exact", test]);
            let (status, said) = step.envs(variables.iter().copied()).record()?;
            // An unknown name would pass.
            if status.success() && counted(&said, " passed") == 1 {
                let first = outcome.failures();
                println!("FLAKY {name}\n--- first\n{first}\n--- then\n{said}");
                flaky.push(name);
            } else {
                println!("{said}\nFAILED twice: {name}");
            }
        }
        Ok(flaky)
    }
}

/// The names of failing tests, which libtest lists last.
fn failed(output: &str) -> Vec<&str> {
    let Some((_, list)) = output.rsplit_once("\nfailures:\n") else {
        return Vec::new();
    };
    let names = list.lines().map_while(|line| line.strip_prefix("    "));
    names.collect()
}

/// The number before `word` in libtest's summaries.
fn counted(output: &str, word: &str) -> usize {
    let sums = |line: &&str| line.starts_with("test result: ");
    let lines = output.lines().filter(sums);
    let numbers = lines.filter_map(|line| {
        let (before, _) = line.split_once(word)?;
        before.rsplit(' ').next()?.parse::<usize>().ok()
    });
    numbers.sum()
}

#[cfg(test)]
mod tests {
    use super::{FLAKY_MAX, Program, counted, failed, run};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// A program whose only test fails the first time, and passes if it runs again by its name.
    fn failing_once(name: &str) -> Program {
        let script = std::env::temp_dir().join(format!("xtask-{}", name.replace('/', "-")));
        let text = "#!/bin/sh\n\
            if [ \"$1 $2\" = '--exact slow: it ends' ]; then\n\
            echo 'test result: ok. 1 passed; 0 failed; 0 ignored'; exit 0; fi\n\
            printf 'failures:\\n\\nfailures:\\n    slow: it ends\\n\\n'\n\
            echo 'test result: FAILED. 3 passed; 1 failed; 0 ignored'; exit 101\n";
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
        let flaky = failing_once("thrufs-tests/closing");
        assert!(run(std::slice::from_ref(&flaky), Vec::new(), &[]).is_ok());
        let others = failing_once("thrufs-cli/command");
        let failure = run(&[flaky, others], Vec::new(), &[]).expect_err("others never run again");
        assert_eq!(failure.to_string(), "tests failed: thrufs-cli/command");
        let names = ["closing", "lifetime", "relayed"];
        let three = names.map(|name| failing_once(&format!("thrufs-tests/{name}")));
        assert_eq!(three.len(), FLAKY_MAX + 1);
        let failure = run(&three, Vec::new(), &[]).expect_err("three are too many");
        let failure = failure.to_string();
        assert!(failure.starts_with("3 tests passed only"), "{failure}");
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
    }
}
