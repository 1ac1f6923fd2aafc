//! Tests that need time or luck: random seeds, hostile clients, fuzzing, stress, CPU hotplug.
//!
//! Each task that passes is a line of `tests/results/soak.txt`, with the commit. The next task is the one
//! that has passed least often on this commit, so that a run continues where the last one stopped. A
//! failure's seed belongs into a test of another tier.

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::fuzz;
use crate::programs::{self, Program};
use crate::project;
use crate::real;
use crate::release;
use crate::step::Step;
use crate::tools::Tier;
use std::collections::hash_map::RandomState;
use std::fs::{self, OpenOptions};
use std::hash::BuildHasher;
use std::io::Write;
use std::time::{Duration, Instant};

const RECORD: &str = "tests/results/soak.txt";

/// Test programs with random numbers: here, with other seeds each time.
const RANDOM: &[&str] = &[
    "thrufs-abi/wire",
    "thrufs-policy/thrufs_policy",
    "thrufs-redact/thrufs_redact",
    "thrufs-tests/coherence",
    "thrufs-tests/passthrough",
    "thrufs-tests/policy",
    "thrufs-tests/property",
    "thrufs-tests/served",
    "thrufs-virtio/device",
    "thrufs-virtio/thrufs_virtio",
];

/// Ignored tests that are tools, or parts of others.
const NOT_TESTS: &[&str] = &["cost::", "damage::", "mounted::"];

/// Programs whose ignored tests cannot hold where they are ignored.
const NOT_IGNORED: &str = "/posix_";

/// Scripts of tests/real that take minutes and much of the machine, or seeds.
const SCRIPTS: &[&str] = &["counts", "faults", "fsx", "million", "stress"];

/// Prefix of fuzz targets among tasks.
const FUZZ: &str = "fuzz ";

/// Duration of the hostile test, and of each fuzz target.
const HOSTILE_SECONDS: &str = "300";
const FUZZ_SECONDS: &str = "60";

type Run<'a> = Box<dyn Fn(&str) -> Result<(), Failure> + 'a>;

/// A task, with a seed, and how often it has passed on this commit.
struct Task<'a> {
    name: String,
    run: Run<'a>,
    passed: usize,
}

/// Runs the tasks whose names have one of the words of `arguments`, or all: each once on this commit, or
/// as often as `--minutes` allow. `--list` only names them.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let mut arguments = Arguments(arguments.to_vec());
    let only_list = arguments.flag("--list");
    let minutes = arguments.value("--minutes")?.map(|text| text.parse());
    let wrong = |error| Failure::new(format!("--minutes: {error}"));
    let minutes = minutes.transpose().map_err(wrong)?;
    let words = arguments.words()?;
    let programs = programs::build(&[], Tier::Full)?;
    let mut tasks = tasks(&programs)?;
    tasks.retain(|task| words.is_empty() || words.iter().any(|word| task.name.contains(word)));
    if tasks.is_empty() {
        return Err(Failure::new("no such task (cargo xtask soak --list)"));
    }
    if only_list {
        tasks.iter().for_each(|task| println!("{}", task.name));
        return Ok(());
    }
    if tasks.iter().any(|task| task.name.starts_with(FUZZ)) {
        fuzz::build()?;
    }
    let heading = heading()?;
    let record = fs::read_to_string(project::root().join(RECORD)).unwrap_or_default();
    for task in tasks.iter_mut().filter(|_| !heading.is_empty()) {
        let begin = format!("{heading}{}: ", task.name);
        let lines = record.lines().filter(|line| line.starts_with(&begin));
        task.passed = lines.count();
    }
    let failed = in_turns(tasks, minutes, &heading)?;
    Failure::if_any("failed", &failed)
}

/// Runs the task that has passed least often, again and again; returns the names and seeds of failures,
/// which are not tried again.
fn in_turns(
    mut tasks: Vec<Task<'_>>,
    minutes: Option<u64>,
    heading: &str,
) -> Result<Vec<String>, Failure> {
    let start = Instant::now();
    let mut failed = Vec::new();
    loop {
        tasks.sort_by_key(|task| task.passed);
        let is_over = match (minutes, tasks.first()) {
            (_, None) => true,
            (None, Some(task)) => task.passed > 0,
            (Some(minutes), _) => start.elapsed() >= Duration::from_secs(minutes * 60),
        };
        if is_over {
            return Ok(failed);
        }
        let task = &mut tasks[0];
        let seed = (RandomState::new().hash_one(0) as u32).to_string();
        let seeds = format!("THRUFS_SEED={seed} PROPTEST_RNG_SEED={seed}");
        println!("\n=== {}: {seeds}", task.name);
        let begin = Instant::now();
        match (task.run)(&seed) {
            Ok(()) => {
                let seconds = begin.elapsed().as_secs();
                task.passed += 1;
                note(heading, &format!("{}: {seconds} s, seed {seed}", task.name))?;
            }
            Err(failure) => {
                println!("xtask: {failure}");
                failed.push(format!("{}: THRUFS_SEED={seed}", task.name));
                tasks.remove(0);
            }
        }
    }
}

fn tasks(programs: &[Program]) -> Result<Vec<Task<'_>>, Failure> {
    let mut tasks = Vec::new();
    let mut add = |name: String, run| {
        let passed = 0;
        tasks.push(Task { name, run, passed });
    };
    for program in programs {
        let name = &program.name;
        if RANDOM.contains(&name.as_str()) {
            let run = |seed: &str| program.step(&[]).envs(variables(seed)).run();
            add(name.clone(), Box::new(run));
        }
        if !name.contains(NOT_IGNORED) && program.has_ignored(NOT_TESTS)? {
            let run = |seed: &str| {
                let skipped = NOT_TESTS.iter().flat_map(|name| ["--skip", name]);
                let ignored = program.step(&["--ignored", "--nocapture"]).args(skipped);
                ignored.envs(variables(seed)).run()
            };
            add(format!("{name} --ignored"), Box::new(run));
        }
    }
    for target in fuzz::targets()? {
        let name = format!("{FUZZ}{target}");
        add(name, Box::new(move |_| fuzz::one(&target, FUZZ_SECONDS)));
    }
    for script in SCRIPTS {
        let names = [(*script).to_owned()];
        let run = move |seed: &str| real::run_with(&release::build()?, &names, &variables(seed));
        add(format!("real {script}"), Box::new(run));
    }
    Ok(tasks)
}

fn variables(seed: &str) -> [(&str, &str); 5] {
    [
        ("THRUFS_SEED", seed),
        ("PROPTEST_RNG_SEED", seed),
        ("THRUFS_HOSTILE_SECONDS", HOSTILE_SECONDS),
        ("THRUFS_FULL", "1"),
        ("THRUFS_SOAK", "1"),
    ]
}

/// The beginning of this commit's lines; empty with uncommitted changes.
fn heading() -> Result<String, Failure> {
    // What is built, without records.
    let built = ["--", ".", ":!*.md", ":!tests/results"];
    let git = |words: &[&str]| Step::new("git").args(words).args(built).text();
    let changes = git(&["status", "--porcelain"])?;
    if !changes.is_empty() {
        println!("xtask: NOT RECORDED: there are changes that no commit has:\n{changes}");
        return Ok(String::new());
    }
    let commit = git(&["log", "-1", "--format=%h"])?;
    let kernel = Step::new("uname").args(["-r"]).text()?;
    let processors = Step::new("nproc").text()?;
    Ok(format!(
        "{commit}, Linux {kernel}, {processors} processors: "
    ))
}

fn note(heading: &str, line: &str) -> Result<(), Failure> {
    println!("passed: {line}");
    if heading.is_empty() {
        return Ok(());
    }
    let path = project::root().join(RECORD);
    let file = OpenOptions::new().append(true).create(true).open(&path);
    let noted = file.and_then(|mut file| writeln!(file, "{heading}{line}"));
    noted.map_err(Failure::of(&path))
}
