//! Random sequences of calls on a tree and on a native twin: the same result at every step, and the
//! same tree at the end, through the tree under test and beneath it.
//!
//! `THRUFS_PROPERTY_CASES` is the number of sequences, `THRUFS_SEED` the seed of the first. A failure
//! prints the seed that repeats it as the first case.

use std::path::PathBuf;

use rustix::fs::{FileType, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use crate::compare::{differences, snapshot};
use crate::lower::{Ground, Lower};
use thrufs_testing::steps::Steps;
use thrufs_testing::{Random, Tree};

/// Without `THRUFS_PROPERTY_CASES`.
const CASES_DEFAULT: u64 = 40;

const STEPS: usize = 250;

/// Files that a sequence may hold open at a time.
const OPEN_MAX: usize = 4;

/// Few names, so that operations collide. Some are below others.
pub const PATHS: [&str; 12] = [
    "a",
    "b",
    "c",
    "d",
    "d/a",
    "d/b",
    "d/e",
    "d/e/a",
    "f",
    "f/a",
    "missing/a",
    "a/below-a-file",
];

/// Where symbolic links point: within the sequence's own directory, or nowhere.
const TARGETS: [&str; 5] = ["a", "b", "d", "nowhere", "c"];

const ATTRIBUTES: [&str; 3] = ["user.one", "user.two", "user.three"];

/// An offset or length: around pages, sometimes far.
fn size(random: &mut Random) -> u64 {
    let size = match random.below(8) {
        0 => 0,
        1 => 4096,
        2 => 4095 + random.below(3),
        3 => random.below(200_000),
        _ => random.below(9000),
    };
    size as u64
}

/// The first calls of every sequence, so that the others find something.
pub const PRELUDE: [&str; 8] = [
    "dir d",
    "dir f",
    "open a w,creat,excl 644",
    "open b w,creat,excl 644",
    "open d/a w,creat,excl 644",
    "fill a 0 5000 65",
    "open @0 a rw",
    "open @1 d/a rw,append",
];

/// One random call of [`Steps`].
pub fn call(random: &mut Random) -> String {
    let (path, other) = (random.pick(&PATHS), random.pick(&PATHS));
    let file = format!("@{}", random.below(OPEN_MAX));
    let (offset, length) = (size(random), size(random));
    let byte = b'a' + random.below(26) as u8;
    let mode = random.pick(&["644", "600", "755", "4755", "2775", "1777", "0"]);
    let attribute = random.pick(&ATTRIBUTES);
    match random.below(34) {
        0..=2 => format!("open {path} w,creat{} {mode}", random.pick(&["", ",excl"])),
        3..=5 => format!("fill {path} {offset} {length} {byte}"),
        6 => format!("fill {path} end {length} {byte}"),
        7 => format!("truncate {path} {length}"),
        8..=9 => format!("cat {path} {offset} {length}"),
        10..=11 => format!("dir {path} {mode}"),
        12 => format!("rmdir {path}"),
        13 => format!("unlink {path}"),
        14..=16 => {
            let flags = random.pick(&["0", "0", "noreplace", "exchange", "3"]);
            format!("rename2 {flags} {path} {other}")
        }
        17 => format!("link {path} {other}"),
        18 => format!("symlink {} {path}", random.pick(&TARGETS)),
        19 => format!("readlink {path}"),
        20 | 28 => {
            let flags = random.pick(&["r", "rw", "rw,append", "rw,trunc"]);
            format!("open {file} {path} {flags}")
        }
        21 => format!("chmod {path} {mode}"),
        22 => {
            let time = format!("{}.{offset}", random.below(2_000_000_000));
            format!("times {path} {time} {time}")
        }
        23 => {
            let value = "v".repeat(random.below(200));
            format!("setxattr {path} {attribute} {value}")
        }
        24 => format!("rmxattr {path} {attribute}"),
        25 => format!("getxattr {path} {attribute}"),
        26 => format!("list {path}"),
        27 => format!("state {path}"),
        29 => format!("close {file}"),
        30 => format!("fill {file} {offset} {length} {byte}"),
        31 => format!("cat {file} {offset} {length}"),
        32 => match random.below(3) {
            0 => format!("truncate {file} {length}"),
            1 => format!("allocate {file} {offset} {length}"),
            _ => format!("fsync {file}"),
        },
        _ => format!("state {file}"),
    }
}

/// What a caller sees of one call.
type Outcome = Result<Vec<u8>, Errno>;

/// The same time of access and of modification.
pub fn timestamps(tv_sec: i64, tv_nsec: i64) -> Timestamps {
    let time = Timespec { tv_sec, tv_nsec };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}

/// One sequence in a directory of its own in both trees. The error tells the step.
fn run_case(tree: &dyn Tree, native: &Ground, seed: u64) -> Result<usize, String> {
    let name = format!("case-{seed}");
    let mut random = Random(seed);
    let [above, twin] = [tree.root(), native.root()].map(|root| root.join(&name));
    let beneath = tree.beneath().join(&name);
    let [mut through, mut natively] = [&above, &twin].map(|root: &PathBuf| {
        std::fs::create_dir(root).unwrap();
        Steps::new(root.clone(), root.clone())
    });
    let mut history = Vec::new();
    let mut successes = 0;
    for step in 0..STEPS {
        let call = match PRELUDE.get(step) {
            Some(call) => (*call).to_owned(),
            None => call(&mut random),
        };
        let words: Vec<&str> = call.split_whitespace().collect();
        let (expected, found) = (natively.call(&words), through.call(&words));
        successes += usize::from(expected.is_ok());
        history.push(format!("{step:4} {call}: {}", brief(&expected)));
        if expected != found {
            return Err(format!(
                "step {step}, {call}: the mount gives {}, the native tree {}\n{}",
                brief(&found),
                brief(&expected),
                history.join("\n")
            ));
        }
    }
    through.close_all();
    natively.close_all();
    let text = |error: std::io::Error| format!("{error}\n{}", history.join("\n"));
    let (expected, found) = (
        snapshot(&twin).map_err(text)?,
        snapshot(&above).map_err(text)?,
    );
    // What a writeback cache still holds goes to the tree beneath.
    for (path, node) in &found {
        if FileType::from_raw_mode(node.mode).is_file() {
            let file = rustix::fs::open(above.join(path), OFlags::RDONLY, Mode::empty());
            rustix::fs::fsync(file.unwrap()).unwrap();
        }
    }
    let beneath = snapshot(&beneath).map_err(text)?;
    let native = ("the native tree", &expected);
    let mut lines = differences(("the mount", &found), native);
    lines.extend(differences(("beneath", &beneath), native));
    if !lines.is_empty() {
        return Err(format!("{}\n{}", lines.join("\n"), history.join("\n")));
    }
    Ok(successes)
}

fn brief(outcome: &Outcome) -> String {
    match outcome {
        Ok(data) if data.len() > 60 => {
            let sum = data.iter().fold(0_u64, |sum, &byte| {
                sum.wrapping_mul(31).wrapping_add(u64::from(byte) + 1)
            });
            format!(
                "{} bytes, sum {sum:x}, \"{}\"...",
                data.len(),
                data[..40].escape_ascii()
            )
        }
        Ok(data) => format!("\"{}\"", data.escape_ascii()),
        Err(errno) => errno.to_string(),
    }
}

/// Runs the sequences on `tree`; panics at the first difference, with the steps that led to it. `what`
/// names the setting and `test` the test.
#[track_caller]
pub fn run_cases(tree: &dyn Tree, what: &str, test: &str) {
    let cases = thrufs_test_report::number("THRUFS_PROPERTY_CASES", CASES_DEFAULT);
    let mut seed = thrufs_test_report::seed();
    let native = Ground::prepare(Lower::Default).expect("a temporary directory");
    let mut successes = 0;
    for _ in 0..cases {
        match run_case(tree, &native, seed) {
            Ok(count) => successes += count,
            Err(report) => panic!(
                "{what}: {report}\nrepeat with THRUFS_SEED={seed} \
                 THRUFS_PROPERTY_CASES=1 and the test {test}"
            ),
        }
        seed = Random(seed).number() >> 16;
    }
    // A generator that only makes errors would test nothing.
    let steps = cases as usize * STEPS;
    assert!(
        successes * 4 > steps,
        "only {successes} of {steps} operations succeeded"
    );
}
