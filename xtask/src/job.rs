//! Commands that run several at a time. The output of each is shown when it has ended.

use crate::failure::Failure;
use crate::step::Step;
use std::process::ExitStatus;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

/// Time limit of a command, in seconds; the longest should take a quarter of it. A command over the limit
/// is ended with all its children, fails, and the others run.
pub(crate) const SECONDS_MAX: u32 = 900;

/// What each test of a program adds to its limit: on a busy machine, a program of many would reach one that all
/// of them share.
pub(crate) const SECONDS_PER_TEST: u32 = 15;

/// A command with its name in reports.
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) step: Step,
    /// Whether it runs while no other does.
    pub(crate) is_alone: bool,
}

pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) status: ExitStatus,
    pub(crate) output: String,
}

/// Runs them all, whatever becomes of each, `at_once` at a time, in order; reports each as it ends.
pub(crate) fn all(jobs: Vec<Job>, at_once: usize) -> Result<Vec<Outcome>, Failure> {
    let (alone, together): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| job.is_alone);
    let ended = Mutex::new(Vec::new());
    for (jobs, at_once) in [(together, at_once), (alone, 1)] {
        let waiting = Mutex::new(jobs.into_iter());
        let work = || {
            loop {
                let next = waiting.lock().expect("no thread panics with it").next();
                let Some(job) = next else { return };
                let start = Instant::now();
                let outcome = job.step.record().map(|(status, output)| Outcome {
                    name: job.name,
                    status,
                    output,
                });
                let mut ended = ended.lock().expect("no thread panics with it");
                if let Ok(outcome) = &outcome {
                    outcome.tell(start);
                }
                ended.push(outcome);
            }
        };
        thread::scope(|scope| (0..at_once).for_each(|_| drop(scope.spawn(work))));
    }
    let ended = ended.into_inner().expect("no thread panics with it");
    ended.into_iter().collect()
}

impl Outcome {
    fn tell(&self, start: Instant) {
        let Outcome { name, output, .. } = self;
        let (seconds, verdict) = (start.elapsed().as_secs_f64(), self.verdict());
        println!("\n--- {name}\n{output}[{seconds:.1} s] {name}: {verdict}");
    }

    fn verdict(&self) -> String {
        match self.status.code() {
            Some(0) => "ok".to_owned(),
            // `timeout` exits so after it has killed.
            Some(124 | 137) => "FAILED: not over within its time limit".to_owned(),
            _ => format!("FAILED: {}", self.status),
        }
    }

    /// libtest's messages on failing tests; without any, the end of the output.
    pub(crate) fn failures(&self) -> String {
        const MAX: usize = 200;
        let lines: Vec<&str> = self.output.lines().collect();
        let lines = match lines.iter().position(|line| *line == "failures:") {
            Some(first) => &lines[first..lines.len().min(first + MAX)],
            None => &lines[lines.len().saturating_sub(40)..],
        };
        lines.join("\n")
    }
}

/// Repeats the failures at the end, and fails if there are any.
pub(crate) fn report<'a>(
    kind: &str,
    failed: impl Iterator<Item = &'a Outcome>,
) -> Result<(), Failure> {
    let mut names = Vec::new();
    for outcome in failed {
        let (name, failures) = (&outcome.name, outcome.failures());
        println!("\nxtask: what failed in {name}, once more:\n{failures}");
        println!("{name}: {}", outcome.verdict());
        names.push(name.as_str());
    }
    Failure::if_any(&format!("{kind} failed"), &names)
}
