//! Tests that need time or luck: drawn seeds, hostility, fuzzing, stress, processors that come and go.
//!
//! Each task that passes is a line of `tests/results/soak.txt`, beneath the commit. The next task is
//! always the one that has passed least often on this commit, so that a run goes on where the last one
//! stopped. A failure's seed belongs into a test of another tier.

use crate::fuzz;
use crate::programs::{self, Program};
use crate::project;
use crate::real;
use crate::step::{Failure, Step};
use crate::tools::Tier;
use std::collections::hash_map::RandomState;
use std::fs::{self, OpenOptions};
use std::hash::BuildHasher;
use std::io::Write;
use std::time::{Duration, Instant};

/// Where it is noted what has passed.
const RECORD: &str = "tests/results/soak.txt";

/// Test programs that begin with random numbers: here, with others each time.
const RANDOM: &[&str] = &[
    "thrufs-abi/wire",
    "thrufs-hostdir/thrufs_hostdir",
    "thrufs-tests/coherence",
    "thrufs-tests/passthrough",
    "thrufs-tests/policy",
    "thrufs-tests/property",
    "thrufs-tests/resume",
    "thrufs-tests/served",
    "thrufs-tests/succession",
    "thrufs-virtio/device",
    "thrufs-virtio/thrufs_virtio",
];

/// Ignored tests that are no tests: tools for by hand, and parts of others.
const NOT_TESTS: &[&str] = &["cost::", "damage::", "mounted::"];

/// Programs whose ignored tests cannot hold where they are ignored.
const NOT_IGNORED: &str = "/posix_";

/// Scripts of tests/real that take minutes and much of the machine, or seeds.
const SCRIPTS: &[&str] = &["counts", "faults", "fsx", "million", "stress"];

/// How long hostility lasts, and each fuzz target.
const HOSTILE_SECONDS: &str = "300";
const FUZZ_SECONDS: &str = "60";

/// Something that can pass.
enum Task<'a> {
    /// A test program: its tests that wait for this, or those that have random numbers.
    Ignored(&'a Program),
    Random(&'a Program),
    Fuzz(String),
    Script(&'static str),
}

impl Task<'_> {
    fn name(&self) -> String {
        match self {
            Task::Ignored(program) => format!("{} --ignored", program.name),
            Task::Random(program) => program.name.clone(),
            Task::Fuzz(target) => format!("fuzz {target}"),
            Task::Script(script) => format!("real {script}"),
        }
    }

    fn run(&self, seed: u32) -> Result<(), Failure> {
        let seed = seed.to_string();
        let variables = [
            ("THRUFS_SEED", seed.as_str()),
            ("PROPTEST_RNG_SEED", &seed),
            ("THRUFS_HOSTILE_SECONDS", HOSTILE_SECONDS),
            ("THRUFS_FULL", "1"),
        ];
        let program = |program: &Program, arguments: &[&str]| {
            let outcome = program.run(arguments, &variables)?;
            print!("{}", outcome.output);
            match outcome.is_good() {
                true => Ok(()),
                false => Err(Failure::new(format!("{} failed", program.name))),
            }
        };
        match self {
            Task::Ignored(tests) => {
                let skip = NOT_TESTS.iter().flat_map(|name| ["--skip", name]);
                let arguments: Vec<_> = ["--ignored", "--nocapture"]
                    .into_iter()
                    .chain(skip)
                    .collect();
                program(tests, &arguments)
            }
            Task::Random(tests) => program(tests, &[]),
            Task::Fuzz(target) => fuzz::one(target, FUZZ_SECONDS),
            Task::Script(script) => real::run_soak(script, &seed),
        }
    }
}

/// Runs the tasks whose names have one of the words of `arguments`, or all: each once on this commit, or
/// as often as `--minutes` allow. `--list` only names them.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let (words, limit, only_list) = parse(arguments)?;
    let programs = programs::build(&[], Tier::Full)?;
    let targets = fuzz::targets()?;
    let mut tasks = tasks(&programs, targets)?;
    tasks.retain(|task| words.is_empty() || words.iter().any(|word| task.name().contains(word)));
    if tasks.is_empty() || only_list {
        tasks.iter().for_each(|task| println!("{}", task.name()));
        return match tasks.is_empty() {
            true => Err(Failure::new("no such task (cargo xtask soak --list)")),
            false => Ok(()),
        };
    }
    if tasks.iter().any(|task| matches!(task, Task::Fuzz(_))) {
        fuzz::build()?;
    }
    let heading = heading()?;
    let start = Instant::now();
    let mut failed = Vec::new();
    loop {
        let text = fs::read_to_string(record()).unwrap_or_default();
        let passed = |task: &Task<'_>| {
            heading
                .as_deref()
                .map_or(0, |it| passed(&text, it, &task.name()))
        };
        let task = match limit {
            Some(limit) if start.elapsed() >= limit => None,
            Some(_) => tasks.iter().min_by_key(|task| passed(task)),
            None => tasks.iter().find(|task| passed(task) == 0),
        };
        let Some(task) = task else { break };
        let name = task.name();
        let seed = RandomState::new().hash_one(0) as u32;
        let begin = Instant::now();
        println!("\n=== {name}: THRUFS_SEED={seed} PROPTEST_RNG_SEED={seed}");
        let outcome = task.run(seed);
        let seconds = begin.elapsed().as_secs();
        match outcome {
            Ok(()) => note(
                heading.as_deref(),
                &format!("{name}: {seconds} s, seed {seed}"),
            )?,
            Err(failure) => {
                println!("xtask: {failure}");
                failed.push(format!("{name}: THRUFS_SEED={seed}"));
            }
        }
        // What failed, or cannot be noted, is not tried again by this run.
        if limit.is_none() || failed.iter().any(|it| it.starts_with(&format!("{name}: "))) {
            tasks.retain(|task| task.name() != name);
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("failed:\n  {}", failed.join("\n  "))))
}

fn parse(arguments: &[String]) -> Result<(Vec<&str>, Option<Duration>, bool), Failure> {
    let (mut words, mut limit, mut only_list) = (Vec::new(), None, false);
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--list" => only_list = true,
            "--minutes" => {
                let minutes = arguments.next().and_then(|text| text.parse::<u64>().ok());
                let minutes = minutes.ok_or_else(|| Failure::new("--minutes needs a number"))?;
                limit = Some(Duration::from_secs(minutes * 60));
            }
            word => words.push(word),
        }
    }
    Ok((words, limit, only_list))
}

fn tasks(programs: &[Program], targets: Vec<String>) -> Result<Vec<Task<'_>>, Failure> {
    let mut tasks = Vec::new();
    for program in programs {
        if RANDOM.contains(&program.name.as_str()) {
            tasks.push(Task::Random(program));
        }
        if !program.name.contains(NOT_IGNORED) && program.has_ignored(NOT_TESTS)? {
            tasks.push(Task::Ignored(program));
        }
    }
    tasks.extend(targets.into_iter().map(Task::Fuzz));
    tasks.extend(SCRIPTS.iter().copied().map(Task::Script));
    Ok(tasks)
}

fn record() -> std::path::PathBuf {
    project::root().join(RECORD)
}

/// What tells a commit's lines from others'; nothing while there are changes, which no commit has.
fn heading() -> Result<Option<String>, Failure> {
    let ask = |program: &str, arguments: &[&str]| -> Result<String, Failure> {
        let paths = ["--", ".", ":!*.md", ":!tests/results"];
        let paths: &[&str] = if program == "git" { &paths } else { &[] };
        let step = Step::new(program).args(arguments).args(paths);
        Ok(String::from_utf8_lossy(&step.capture_bytes()?)
            .trim()
            .to_owned())
    };
    // What was built, whatever was noted since.
    let commit = ask("git", &["log", "-1", "--format=%h"])?;
    let changes = ask("git", &["status", "--porcelain"])?;
    if !changes.is_empty() {
        println!("xtask: NOT RECORDED: there are changes that no commit has:\n{changes}");
        return Ok(None);
    }
    Ok(Some(format!(
        "# {commit}, Linux {}, {} processors",
        ask("uname", &["-r"])?,
        ask("nproc", &[])?
    )))
}

/// How often a task stands under this heading.
fn passed(text: &str, heading: &str, task: &str) -> usize {
    let mut is_ours = false;
    let mut times = 0;
    for line in text.lines() {
        if line.starts_with('#') {
            is_ours = line == heading;
        } else if is_ours
            && line
                .strip_prefix(task)
                .is_some_and(|rest| rest.starts_with(": "))
        {
            times += 1;
        }
    }
    times
}

fn note(heading: Option<&str>, line: &str) -> Result<(), Failure> {
    println!("passed: {line}");
    let Some(heading) = heading else {
        return Ok(());
    };
    let failure = |error| Failure::new(format!("{RECORD}: {error}"));
    let before = fs::read_to_string(record()).unwrap_or_default();
    let last = before.lines().rfind(|line| line.starts_with('#'));
    let heading = if last == Some(heading) {
        String::new()
    } else {
        format!("{heading}\n")
    };
    let mut options = OpenOptions::new();
    let mut file = options
        .create(true)
        .append(true)
        .open(record())
        .map_err(failure)?;
    let text = format!("{heading}{line}\n");
    file.write_all(text.as_bytes()).map_err(failure)
}

#[cfg(test)]
mod tests {
    use super::passed;

    #[test]
    fn only_what_stands_under_the_heading_counts() {
        let text = "# a\nfuzz x: 60 s, seed 1\n# b\nfuzz x: 60 s, seed 2\nfuzz xy: 60 s, seed 3\n# a\nfuzz x: 60 s, seed 4\n";
        assert_eq!(passed(text, "# a", "fuzz x"), 2);
        assert_eq!(passed(text, "# b", "fuzz x"), 1);
        assert_eq!(passed(text, "# c", "fuzz x"), 0);
    }
}
