//! The run itself: sets up the targets, measures round after round, and keeps what was found.
//!
//! Rounds are the outermost loop, rows the next, targets the innermost, in an order that rotates:
//! whenever it is stopped, all rows have about the same number of rounds.

mod noise;
mod record;
mod schedule;
mod test_directory;

use crate::isolation::{self, Privileges};
use crate::measurement::{Amount, Measured, Question, measure};
use crate::plan::{Plan, PlannedRow};
use crate::progress::Progress;
use crate::report::{self, Screen};
use crate::results::{Absence, Ending, Results};
use crate::stop::Stop;
use crate::target::{RunningTarget, directory};
use crate::{Outcome, counting, repeat};
use noise::Noise;
use record::Record;
use rustix::process::Pid;
use schedule::{Effort, Schedule, Spent};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use test_directory::TestDirectory;

/// In the passes for counts, which are exact with few operations, of the work of a round.
const COUNTS_SHARE: usize = 10;

/// `inside PRIVILEGES PLAN`, with the parent pipe for standard input.
pub(crate) fn run_inside(arguments: &[String]) -> Outcome<ExitCode> {
    let [word, plan] = arguments else {
        return Err("inside PRIVILEGES PLAN".to_owned());
    };
    let privileges = Privileges::named(word)?;
    let plan = Plan::parse(plan)?;
    if let Err(error) = isolation::namespaces::settle(privileges) {
        return isolation::namespaces::refused(privileges, &error);
    }
    counting::outside::connect();
    let mut run = Run::new(&plan, privileges)?;
    run.measure_all()?;
    run.finish()
}

struct Run<'a> {
    plan: &'a Plan,
    privileges: Privileges,
    stop: Stop,
    test_directories: Vec<TestDirectory>,
    record: Record,
    schedule: Schedule,
    noise: Noise,
    progress: Progress,
    /// What the run that is repeated has found.
    then: Option<Results>,
    /// How long processes have taken to be ready in the row that is measured.
    preparing: Duration,
}

/// A measurement that is due.
#[derive(Clone, Copy)]
struct Turn {
    planned: PlannedRow,
    test_directory: usize,
    target_index: usize,
    question: Question,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, privileges: Privileges) -> Outcome<Run<'a>> {
        let started = Instant::now();
        let noise = Noise::watch();
        let planned_rows = plan.planned_rows()?;
        let then = plan.repeats.as_deref().map(repeat::read).transpose()?;
        let mut record = Record::new(plan);
        let mut progress = Progress::new();
        let jobs = planned_rows
            .iter()
            .map(|planned| planned.jobs)
            .max()
            .unwrap_or(1);
        let test_directories =
            test_directory::set_up(plan, privileges, jobs, &mut record, &mut progress)?;
        for remark in plan.missing_rows() {
            record.remark(remark);
        }
        for remark in privileges.remarks(&plan.directory) {
            record.remark(remark);
        }
        let cells = planned_rows.len()
            * test_directories
                .iter()
                .map(|test_directory| test_directory.targets.len())
                .sum::<usize>();
        Ok(Run {
            plan,
            privileges,
            stop: Stop::new(),
            schedule: Schedule::new(started, plan, planned_rows, cells),
            test_directories,
            record,
            noise,
            progress,
            then,
            preparing: Duration::ZERO,
        })
    }

    /// Rounds, then a pass for latencies and one for counts.
    fn measure_all(&mut self) -> Outcome<()> {
        let mut round = 0;
        while self.schedule.has_round(round) {
            if self.round(round)?.is_break() {
                self.is_stopped();
                return Ok(());
            }
            let mut gone = Vec::new();
            let remark = self.schedule.round_is_over(round, &mut gone);
            for planned in gone {
                self.record.forget(planned);
            }
            if let Some(remark) = remark {
                self.progress.line(&remark);
                self.record.remark(remark);
            }
            round += 1;
            let results = self.record.results();
            self.progress.table(round, self.schedule.rounds(), &|| {
                report::so_far(results, Screen::standard_error())
            });
        }
        if self.passes()?.is_break() {
            self.is_stopped();
        }
        Ok(())
    }

    fn is_stopped(&mut self) {
        self.record.interrupted();
        self.progress.leave_table();
    }

    fn round(&mut self, round: u32) -> Outcome<ControlFlow<()>> {
        for planned in self.schedule.planned_rows().to_vec() {
            let start = Instant::now();
            self.preparing = Duration::ZERO;
            for test_directory in 0..self.test_directories.len() {
                let count = self.test_directories[test_directory].targets.len();
                for turn in 0..count {
                    // The first target bears what the row before has left to be written back: each target is
                    // first once.
                    let target_index = (turn + round as usize) % count;
                    let turn = Turn {
                        planned,
                        test_directory,
                        target_index,
                        question: Question::Rate,
                    };
                    let effort = self.schedule.usual();
                    if self.one(turn, round, effort)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
            let spent = Spent {
                all: start.elapsed(),
                preparing: self.preparing,
            };
            if !self.schedule.row_is_over(planned, round, spent) {
                break;
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Counts and latencies of every cell, with as much to do as there is time left for.
    fn passes(&mut self) -> Outcome<ControlFlow<()>> {
        let mut turns: Vec<Turn> = Vec::new();
        for question in [Question::Counts, Question::Latency] {
            turns.extend(self.turns(question));
        }
        let mut left = turns.len();
        let mut is_shorter = false;
        for turn in turns {
            let targets = self
                .test_directories
                .iter()
                .map(|test_directory| test_directory.targets.len());
            let share = match turn.question {
                Question::Counts => 1.0 / COUNTS_SHARE as f64,
                _ => 1.0,
            };
            let effort = self
                .schedule
                .effort(turn.planned, targets.sum(), share, left);
            is_shorter |= effort.share < 1.0;
            left -= 1;
            if self.one(turn, 0, effort)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        if is_shorter {
            self.record.remark(
                "time was short: some counts and latencies are of fewer operations than usual"
                    .to_owned(),
            );
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The measurements of a pass, besides rates.
    fn turns(&self, question: Question) -> Vec<Turn> {
        let mut turns = Vec::new();
        for planned in self.schedule.planned_rows() {
            for (test_directory, TestDirectory { targets, .. }) in
                self.test_directories.iter().enumerate()
            {
                for (target_index, target) in targets.iter().enumerate() {
                    let is_worth_it = match question {
                        Question::Counts => !target.is_native(),
                        Question::Latency => planned.row.times_each(),
                        Question::Rate => true,
                    };
                    let is_asked = is_worth_it && self.plan.asks(planned, target.setup());
                    let turn = Turn {
                        planned,
                        test_directory,
                        target_index,
                        question,
                    };
                    turns.extend(is_asked.then_some(turn));
                }
            }
        }
        turns
    }

    /// One measurement.
    fn one(&mut self, turn: Turn, round: u32, effort: Effort) -> Outcome<ControlFlow<()>> {
        let Turn {
            planned,
            test_directory,
            target_index,
            question,
        } = turn;
        let TestDirectory { lower, targets } = &mut self.test_directories[test_directory];
        let target = &mut targets[target_index];
        let name = target.name().to_owned();
        if self.stop.is_wanted() {
            return Ok(ControlFlow::Break(()));
        }
        if !self.plan.asks(planned, target.setup()) || self.record.is_without(planned, &name, lower)
        {
            return Ok(ControlFlow::Continue(()));
        }
        let what = match question {
            Question::Rate => format!("round {}", self.schedule.round_of(round)),
            Question::Latency => "latencies".to_owned(),
            Question::Counts => "counting".to_owned(),
        };
        let row = planned.row.name;
        let jobs = match planned.jobs {
            1 => String::new(),
            jobs => format!(" × {jobs}"),
        };
        let text = format!("{what} · {row}{jobs} · {name} on {lower}");
        self.progress.say(&text, self.schedule.left(round));
        let amount = Amount {
            question,
            jobs: planned.jobs,
            round,
            percent: effort.of(match question {
                Question::Counts => self.plan.percent / COUNTS_SHARE,
                _ => self.plan.percent,
            }),
            limit: effort.limit,
            patience: self.schedule.patience(),
        };
        let measured = measure(
            planned.row,
            target,
            amount,
            self.privileges,
            &self.stop,
            &mut self.preparing,
        );
        let measured = measured.unwrap_or_else(|error| {
            Measured::Absent(Absence {
                failed: true,
                why: error.to_string(),
            })
        });
        if let Measured::Absent(absence) = &measured
            && absence.failed
            && question == Question::Rate
        {
            self.progress.line(&format!(
                "FAILED: {row} on {name}, {lower} below: {}",
                absence.why
            ));
        }
        match measured {
            Measured::Stopped => return Ok(ControlFlow::Break(())),
            // What is asked besides may be without an answer.
            Measured::Absent(absence) if question == Question::Counts => {
                let why = absence.why;
                self.record
                    .remark(format!("requests and system calls were not counted: {why}"));
            }
            Measured::Absent(_) if question == Question::Latency => {}
            other => self.record.add(planned, &name, lower, other),
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Takes everything down, writes the report and shows the table.
    fn finish(mut self) -> Outcome<ExitCode> {
        let targets = self
            .test_directories
            .iter()
            .flat_map(|test_directory| &test_directory.targets);
        let servers: Vec<Pid> = targets.flat_map(RunningTarget::servers).collect();
        for remark in self.noise.remarks(self.record.results(), &servers) {
            self.record.remark(remark);
        }
        for test_directory in self.test_directories.drain(..) {
            for target in test_directory.targets {
                self.record.resident(target.name(), target.resident_kib());
                if self.record.results().ending == Ending::Complete
                    && let Err(why) = target.unmount()
                {
                    self.record.remark(format!("taking a mount down: {why}"));
                }
            }
        }
        self.progress.clear();
        if self.stop.is_abandoned() {
            return Ok(ExitCode::FAILURE);
        }
        let results = self.record.finished();
        if results.cells.iter().all(|cell| cell.samples.is_empty()) {
            self.progress.line("nothing was measured");
            return Ok(ExitCode::FAILURE);
        }
        write(&results, self.plan)?;
        let failed = |cell: &&crate::results::Cell| {
            cell.absence.as_ref().is_some_and(|absence| absence.failed)
        };
        let failed = results.cells.iter().filter(failed).count();
        self.progress
            .result(&|| report::terminal(&results, Screen::standard_output()));
        if let Some(then) = &self.then {
            let difference = || report::repeated(then, &results, Screen::standard_output());
            self.progress.result(&difference);
        }
        self.progress
            .line(&format!("report: {}", self.plan.out.display()));
        if failed > 0 {
            self.progress.line(&format!(
                "{failed} cells of the table have failed: see above"
            ));
            return Ok(ExitCode::FAILURE);
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes the report to a folder that gets its name when everything is in it.
fn write(results: &Results, plan: &Plan) -> Outcome<()> {
    let unfinished = directory(plan.unfinished_out())?;
    for (name, text) in report::files(results)? {
        let path = unfinished.join(name);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let flags = rustix::fs::RenameFlags::NOREPLACE;
    let cwd = rustix::fs::CWD;
    rustix::fs::renameat_with(cwd, &unfinished, cwd, &plan.out, flags)
        .map_err(|error| format!("{}: {error}", plan.out.display()))
}
