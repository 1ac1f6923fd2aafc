//! Tests that need time or luck: random seeds, hostile clients, fuzzing, stress, CPU hotplug.
//!
//! They come in a drawn order, so that short runs do not have the same ones each time. A failure's seed belongs into a
//! test of another tier.

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::fuzz;
use crate::programs::{self, Program};
use crate::real;
use crate::release;
use crate::tools::Tier;
use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

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

/// A task, which takes a seed.
struct Task<'a> {
    name: String,
    run: Run<'a>,
}

/// Runs the tasks whose names have one of the words of `arguments`, or all: each once, or as often as
/// `--minutes` allow. `--list` only names them.
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
    let minutes = minutes.map(|minutes: u64| Duration::from_secs(minutes * 60));
    tasks.sort_by_cached_key(|_| draw());
    Failure::if_any("failed", &in_turns(tasks.into(), minutes))
}

/// Runs the tasks, each once or one after the other for so long; returns the names and seeds of failures, which are not
/// tried again.
fn in_turns(mut tasks: VecDeque<Task<'_>>, limit: Option<Duration>) -> Vec<String> {
    let start = Instant::now();
    let mut failed = Vec::new();
    while limit.is_none_or(|limit| start.elapsed() < limit) {
        let Some(task) = tasks.pop_front() else {
            break;
        };
        let seed = draw().to_string();
        let seeds = format!("THRUFS_SEED={seed} PROPTEST_RNG_SEED={seed}");
        println!("\n=== {}: {seeds}", task.name);
        match (task.run)(&seed) {
            Ok(()) => {
                println!("passed: {}", task.name);
                tasks.extend(limit.is_some().then_some(task));
            }
            Err(failure) => {
                println!("xtask: {failure}");
                failed.push(format!("{}: THRUFS_SEED={seed}", task.name));
            }
        }
    }
    failed
}

fn draw() -> u32 {
    RandomState::new().hash_one(0) as u32
}

fn tasks(programs: &[Program]) -> Result<Vec<Task<'_>>, Failure> {
    let mut tasks = Vec::new();
    let mut add = |name: String, run| tasks.push(Task { name, run });
    for program in programs {
        let name = &program.name;
        if RANDOM.contains(&name.as_str()) {
            let run = |seed: &str| program.step(&[]).envs(variables(seed)).run();
            add(name.clone(), Box::new(run));
        }
        let ignored = NOT_TESTS.iter().flat_map(|name| ["--skip", name]);
        let ignored: Vec<&str> = ["--ignored"].into_iter().chain(ignored).collect();
        if !name.contains(NOT_IGNORED) && !program.tests(&ignored)?.is_empty() {
            let run = move |seed: &str| {
                let step = program.step(&ignored).args(["--nocapture"]);
                step.envs(variables(seed)).run()
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
