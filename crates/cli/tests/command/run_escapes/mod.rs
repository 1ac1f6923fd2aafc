//! Attempts to escape from `thrufs run`, by programs in it (`*.py`). Most run outside as well, without what
//! stops them, and succeed there.

mod channels;
mod elsewhere;
mod exchanged;
mod git;
mod lifetimes;
mod mounts;
mod names;
mod processes;
mod races;
mod snapshots;

use crate::ground::{self, skipped, stdout};
use crate::run_ground::{PYTHON, RunGround, Who};
use rustix::process::Pid;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

const PRELUDE: &str = include_str!("prelude.py");

/// An attempt, what comes of it in the sandbox, and outside of it. Alternatives are separated by `|`; `*` is
/// anything.
type Expected<'a> = (&'a str, &'a str, &'a str);

/// Whether Python is there, to make system calls that no program makes.
fn has_python() -> bool {
    let has = std::path::Path::new(PYTHON).exists();
    if !has {
        skipped(&format!("no {PYTHON} (package python3)"));
    }
    has
}

fn ground(who: Who) -> Option<RunGround> {
    RunGround::new(who).filter(|_| has_python())
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

/// Adds Python, the attempts, and what they know.
fn python<'a>(command: &'a mut Command, attempts: &str, known: &str) -> &'a mut Command {
    command.args([PYTHON, "-c", &format!("{PRELUDE}\n{attempts}"), known])
}

/// The same outside, as the tree's owner.
fn control(ground: &RunGround, attempts: &str, known: &str) -> Command {
    let mut command = ground.outside(PYTHON);
    command.args(["-c", &format!("{PRELUDE}\n{attempts}"), known]);
    command
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
    expected: impl Iterator<Item = (&'a str, &'a str)>,
) {
    let mut found = outcomes(output);
    let mut wrong = String::new();
    for (name, alternatives) in expected {
        let outcome = found.remove(name).unwrap_or_else(|| "missing".to_owned());
        let is_expected = alternatives.split('|').any(|it| it == outcome || it == "*");
        if !is_expected {
            wrong.push_str(&format!("\n{name}: {outcome}, not {alternatives}"));
        }
    }
    let said = ground::stderr(output);
    assert!(
        wrong.is_empty() && found.is_empty(),
        "{what}:{wrong}\n{found:?}\n{said}"
    );
}

fn assert_inside(who: Who, output: &Output, expected: &[Expected<'_>]) {
    let inside = expected.iter().map(|(name, inside, _)| (*name, *inside));
    assert_expected(&format!("{who:?}"), output, inside);
}

fn assert_outside(output: &Output, expected: &[Expected<'_>]) {
    let outside = expected.iter().map(|(name, _, outside)| (*name, *outside));
    assert_expected("outside", output, outside);
}

/// A command whose output is read while it runs, killed on drop.
struct Talk {
    child: Child,
    out: BufReader<ChildStdout>,
    said: String,
}

impl Talk {
    fn start(command: &mut Command) -> Talk {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.stderr(Stdio::piped()).spawn().unwrap();
        Talk {
            out: BufReader::new(child.stdout.take().unwrap()),
            said: String::new(),
            child,
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Reads until this line, which is no part of the output.
    fn wait_for(&mut self, expected: &str) {
        loop {
            let mut line = String::new();
            if self.out.read_line(&mut line).unwrap() == 0 {
                let mut errors = String::new();
                let stderr = self.child.stderr.as_mut().unwrap();
                stderr.read_to_string(&mut errors).unwrap();
                panic!("ended before {expected}: {} {errors}", self.said);
            }
            if line.trim_end() == expected {
                return;
            }
            self.said.push_str(&line);
        }
    }

    /// Sends a line, unless the command has ended.
    fn say(&mut self, line: &str) {
        let _ = writeln!(self.child.stdin.as_ref().unwrap(), "{line}");
    }

    fn end(mut self) -> Output {
        self.child.stdin.take();
        self.out.read_to_string(&mut self.said).unwrap();
        let mut stderr = Vec::new();
        let errors = self.child.stderr.as_mut().unwrap();
        errors.read_to_end(&mut stderr).unwrap();
        Output {
            status: self.child.wait().unwrap(),
            stdout: std::mem::take(&mut self.said).into_bytes(),
            stderr,
        }
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
