//! Attempts to escape from `thrufs run`, by programs in it (`*.py`). Most run outside as well, without what
//! stops them, and succeed there.

mod channels;
mod drafts;
mod elsewhere;
mod exchanged;
mod git;
mod git_directories;
mod lifetimes;
mod mounts;
mod names;
mod network;
mod processes;
mod races;
mod snapshots;

use crate::ground::prelude::*;
use crate::run_ground::{self, PYTHON, RunGround, Talk, Who};
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::OsStr;

const PRELUDE: &str = include_str!("prelude.py");

/// An attempt, what comes of it in the sandbox, and outside of it. Alternatives are separated by `|`; `*` is
/// anything.
type Expected<'a> = (&'a str, &'a str, &'a str);

/// None without Python, by which the attempts make system calls that no program makes.
fn grounds<const N: usize>(all: [Who; N]) -> impl Iterator<Item = RunGround> {
    let has_python = Path::new(PYTHON).exists();
    if !has_python {
        skipped(&format!("no {PYTHON} (package python3)"));
    }
    run_ground::grounds(all).filter(move |_| has_python)
}

fn ground(who: Who) -> Option<RunGround> {
    grounds([who]).next()
}

/// What the attempts know of the place.
fn known(ground: &RunGround, is_control: bool, more: &[(&str, Value)]) -> String {
    let mut known = json!({
        "tree": ground.tree,
        "around": ground.around,
        "sibling": ground.sibling,
        "control": is_control,
    });
    for (name, value) in more {
        known[name] = value.clone();
    }
    known.to_string()
}

/// The attempts in the sandbox.
fn inside(ground: &RunGround, options: &[&str], attempts: &str, more: &[(&str, Value)]) -> Command {
    let mut command = ground.thrufs_run(options);
    command.args([PYTHON, "-c", &format!("{PRELUDE}\n{attempts}")]);
    command.arg(known(ground, false, more));
    command
}

/// The same outside, as the tree's owner.
fn outside(ground: &RunGround, attempts: &str, more: &[(&str, Value)]) -> Command {
    let mut command = ground.outside(PYTHON);
    command.args(["-c", &format!("{PRELUDE}\n{attempts}")]);
    command.arg(known(ground, true, more));
    command
}

/// The program and its arguments.
fn words(command: &Command) -> impl Iterator<Item = &OsStr> {
    [command.get_program()]
        .into_iter()
        .chain(command.get_args())
}

/// What came of each attempt.
fn outcomes(output: &Output) -> BTreeMap<String, String> {
    let said = stdout(output);
    let outcome = |line: &str| {
        let (name, outcome) = line.split_once(": ")?;
        Some((name.to_owned(), outcome.to_owned()))
    };
    said.lines().filter_map(outcome).collect()
}

/// Compares all attempts of a run, and says what differs.
fn assert_expected<'a>(
    what: &str,
    output: &Output,
    expected: &[Expected<'a>],
    of: fn(&Expected<'a>) -> &'a str,
) {
    let mut found = outcomes(output);
    let mut wrong = String::new();
    for (name, alternatives) in expected.iter().map(|it| (it.0, of(it))) {
        let outcome = found.remove(name).unwrap_or_else(|| "missing".to_owned());
        let is_expected = alternatives.split('|').any(|it| it == outcome || it == "*");
        if !is_expected {
            wrong.push_str(&format!("\n{name}: {outcome}, not {alternatives}"));
        }
    }
    let said = stderr(output);
    assert!(
        wrong.is_empty() && found.is_empty(),
        "{what}:{wrong}\n{found:?}\n{said}"
    );
}

fn assert_inside(who: Who, output: &Output, expected: &[Expected<'_>]) {
    assert_expected(&format!("{who:?}"), output, expected, |it| it.1);
}

fn assert_outside(output: &Output, expected: &[Expected<'_>]) {
    assert_expected("outside", output, expected, |it| it.2);
}
