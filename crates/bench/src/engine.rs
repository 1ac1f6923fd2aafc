//! The run itself: sets up who takes part, measures round after round, and keeps what was found.
//!
//! Rounds are the outermost loop, rows the next, contestants the innermost, in an order that rotates:
//! whenever it is stopped, all rows have about the same number of rounds.

mod arena;
mod noise;
mod record;
mod schedule;

use crate::contestant::Contestant;
use crate::ground::{self, Ground};
use crate::measurement::{Amount, Measured, Question, measure};
use crate::plan::{Plan, Task};
use crate::progress::Progress;
use crate::report::{self, Screen};
use crate::results::{Absence, Ending, Results};
use crate::stop::Stop;
use crate::{Outcome, counting, repeat};
use arena::Arena;
use noise::Noise;
use record::Record;
use rustix::process::Pid;
use schedule::{Effort, Schedule, Spent};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// In the passes for counts, which are exact with few operations, of the work of a round.
const COUNTS_SHARE: usize = 10;

/// `inside GROUND PLAN`, with the leash for standard input.
pub(crate) fn run_inside(arguments: &[String]) -> Outcome<ExitCode> {
    let [word, plan] = arguments else {
        return Err("inside GROUND PLAN".to_owned());
    };
    let ground = Ground::named(word)?;
    let plan = Plan::parse(plan)?;
    if let Err(error) = ground::gate::settle(ground) {
        return ground::gate::refused(ground, &error);
    }
    counting::outside::connect();
    let mut run = Run::new(&plan, ground)?;
    run.measure_all()?;
    run.finish()
}

struct Run<'a> {
    plan: &'a Plan,
    ground: Ground,
    stop: Stop,
    arenas: Vec<Arena>,
    record: Record,
    schedule: Schedule,
    noise: Noise,
    progress: Progress,
    /// What the run that is repeated has found.
    then: Option<Results>,
    /// How long processes have taken to be ready in the row that is measured.
    preparing: Duration,
}

/// What is asked of whom.
#[derive(Clone, Copy)]
struct Turn {
    task: Task,
    arena: usize,
    who: usize,
    question: Question,
}

/// Whether to go on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    GoOn,
    Stop,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, ground: Ground) -> Outcome<Run<'a>> {
        let started = Instant::now();
        let noise = Noise::watch();
        let tasks = plan.tasks()?;
        let then = plan.repeats.as_deref().map(repeat::read).transpose()?;
        let mut record = Record::new(plan);
        let mut progress = Progress::new();
        let jobs = tasks.iter().map(|task| task.jobs).max().unwrap_or(1);
        let arenas = arena::set_up(plan, ground, jobs, &mut record, &mut progress)?;
        for remark in plan.missing_rows() {
            record.remark(remark);
        }
        for remark in ground.remarks(&plan.directory) {
            record.remark(remark);
        }
        let cells = tasks.len()
            * arenas
                .iter()
                .map(|arena| arena.contestants.len())
                .sum::<usize>();
        Ok(Run {
            plan,
            ground,
            stop: Stop::new(),
            schedule: Schedule::new(started, plan, tasks, cells),
            arenas,
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
            if self.round(round)? == Then::Stop {
                self.is_stopped();
                return Ok(());
            }
            let mut gone = Vec::new();
            let remark = self.schedule.round_is_over(round, &mut gone);
            for task in gone {
                self.record.forget(task);
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
        if self.passes()? == Then::Stop {
            self.is_stopped();
        }
        Ok(())
    }

    fn is_stopped(&mut self) {
        self.record.interrupted();
        self.progress.leave_table();
    }

    fn round(&mut self, round: u32) -> Outcome<Then> {
        for task in self.schedule.tasks().to_vec() {
            let start = Instant::now();
            self.preparing = Duration::ZERO;
            for arena in 0..self.arenas.len() {
                let count = self.arenas[arena].contestants.len();
                for turn in 0..count {
                    // Whoever goes first has what the row before has left to be cleaned up, and so on:
                    // every place is everybody's once.
                    let who = (turn + round as usize) % count;
                    let turn = Turn {
                        task,
                        arena,
                        who,
                        question: Question::Rate,
                    };
                    let effort = self.schedule.usual();
                    if self.one(turn, round, effort)? == Then::Stop {
                        return Ok(Then::Stop);
                    }
                }
            }
            let spent = Spent {
                all: start.elapsed(),
                preparing: self.preparing,
            };
            if !self.schedule.task_is_over(task, round, spent) {
                break;
            }
        }
        Ok(Then::GoOn)
    }

    /// Counts and latencies of every cell, with as much to do as there is time left for.
    fn passes(&mut self) -> Outcome<Then> {
        let mut turns: Vec<Turn> = Vec::new();
        for question in [Question::Counts, Question::Latency] {
            turns.extend(self.turns(question));
        }
        let mut left = turns.len();
        let mut is_shorter = false;
        for turn in turns {
            let contestants = self.arenas.iter().map(|arena| arena.contestants.len());
            let share = match turn.question {
                Question::Counts => 1.0 / COUNTS_SHARE as f64,
                _ => 1.0,
            };
            let effort = self
                .schedule
                .effort(turn.task, contestants.sum(), share, left);
            is_shorter |= effort.share < 1.0;
            left -= 1;
            if self.one(turn, 0, effort)? == Then::Stop {
                return Ok(Then::Stop);
            }
        }
        if is_shorter {
            self.record.remark(
                "time was short: some counts and latencies are of fewer operations than usual"
                    .to_owned(),
            );
        }
        Ok(Then::GoOn)
    }

    /// What is asked of whom, besides rates.
    fn turns(&self, question: Question) -> Vec<Turn> {
        let mut turns = Vec::new();
        for task in self.schedule.tasks() {
            for (arena, Arena { contestants, .. }) in self.arenas.iter().enumerate() {
                for (who, contestant) in contestants.iter().enumerate() {
                    let is_worth_it = match question {
                        Question::Counts => !contestant.is_native(),
                        Question::Latency => task.row.times_each(),
                        Question::Rate => true,
                    };
                    let is_asked = is_worth_it && self.plan.asks(task, contestant.entrant());
                    let turn = Turn {
                        task,
                        arena,
                        who,
                        question,
                    };
                    turns.extend(is_asked.then_some(turn));
                }
            }
        }
        turns
    }

    /// One measurement.
    fn one(&mut self, turn: Turn, round: u32, effort: Effort) -> Outcome<Then> {
        let Turn {
            task,
            arena,
            who,
            question,
        } = turn;
        let Arena { lower, contestants } = &mut self.arenas[arena];
        let contestant = &mut contestants[who];
        let name = contestant.name().to_owned();
        if self.stop.is_wanted() {
            return Ok(Then::Stop);
        }
        if !self.plan.asks(task, contestant.entrant()) || self.record.is_without(task, &name, lower)
        {
            return Ok(Then::GoOn);
        }
        let what = match question {
            Question::Rate => format!("round {}", self.schedule.round_of(round)),
            Question::Latency => "latencies".to_owned(),
            Question::Counts => "counting".to_owned(),
        };
        let row = task.row.name;
        let jobs = match task.jobs {
            1 => String::new(),
            jobs => format!(" × {jobs}"),
        };
        let text = format!("{what} · {row}{jobs} · {name} on {lower}");
        self.progress.say(&text, self.schedule.left(round));
        let amount = Amount {
            question,
            jobs: task.jobs,
            round,
            percent: effort.of(match question {
                Question::Counts => self.plan.percent / COUNTS_SHARE,
                _ => self.plan.percent,
            }),
            limit: effort.limit,
            patience: self.schedule.patience(),
        };
        let measured = measure(
            task.row,
            contestant,
            amount,
            self.ground,
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
            Measured::Stopped => return Ok(Then::Stop),
            // What is asked besides may be without an answer.
            Measured::Absent(absence) if question == Question::Counts => {
                let why = absence.why;
                self.record
                    .remark(format!("requests and system calls were not counted: {why}"));
            }
            Measured::Absent(_) if question == Question::Latency => {}
            other => self.record.add(task, &name, lower, other),
        }
        Ok(Then::GoOn)
    }

    /// Takes everything down, writes the report and shows the table.
    fn finish(mut self) -> Outcome<ExitCode> {
        let contestants = self.arenas.iter().flat_map(|arena| &arena.contestants);
        let servers: Vec<Pid> = contestants.flat_map(Contestant::servers).collect();
        for remark in self.noise.remarks(self.record.results(), &servers) {
            self.record.remark(remark);
        }
        for arena in self.arenas.drain(..) {
            for contestant in arena.contestants {
                self.record
                    .resident(contestant.name(), contestant.resident_kib());
                if self.record.results().ending == Ending::Complete
                    && let Err(why) = contestant.unmount()
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

fn directory(path: impl AsRef<Path>) -> Outcome<PathBuf> {
    let path = path.as_ref();
    std::fs::create_dir(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path.to_owned())
}

/// For people: `1 min 20 s`.
pub(crate) fn spoken(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds / 60 {
        0 => format!("{seconds} s"),
        minutes => format!("{minutes} min {} s", seconds % 60),
    }
}
