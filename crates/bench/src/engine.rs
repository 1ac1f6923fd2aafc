//! The run itself: sets up the targets, measures round after round, and keeps what was found.
//! Rounds are the outermost loop, rows the next, targets the innermost, in an order that rotates: whenever it is
//! stopped, all rows have about the same number of rounds.

mod noise;
mod pace;

use crate::isolation::{self, is_root};
use crate::measurement::{Measured, measure};
use crate::outcome::Outcome;
use crate::plan::{PERCENT, Plan, PlannedRow};
use crate::progress::Progress;
use crate::results::{Cell, Ending, FORMAT, Results};
use crate::stop::Stop;
use crate::target::{MOUNTS, RunningTarget, Setup, TREES, directory};
use crate::{machine, report};
use noise::Noise;
use std::io::Write;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Fewer rounds tell nothing, unless the command line asks for them.
const ROUNDS_MIN: u32 = 3;
/// More are not worth the time.
const ROUNDS_MAX: u32 = 11;

const OF_A_USER: &str = "measured by an ordinary user, who cannot drop what the kernel has cached: in cold rows nothing \
    is cached above (each has a new mount), and everything beneath";

/// `inside PLAN`, with the parent pipe for standard input.
pub(crate) fn run(plan: &str) -> Outcome<ExitCode> {
    let plan = Plan::parse(plan)?;
    isolation::enter(&plan)?;
    let noise = Noise::watch();
    let mut run = Run::new(&plan)?;
    run.start_targets()?;
    let mut round = 0;
    while round < run.rounds(round) {
        let start = Instant::now();
        if run.measure_round(round).is_break() {
            run.results.ending = Ending::Interrupted;
            break;
        }
        run.round = Some(start.elapsed());
        round += 1;
    }
    run.finish(&noise)
}

struct Run<'a> {
    plan: &'a Plan,
    rows: Vec<PlannedRow>,
    targets: Vec<RunningTarget>,
    results: Results,
    /// The type of the file system.
    lower: String,
    stop: Stop,
    progress: Progress,
    started: Instant,
    /// How long the last whole round has taken.
    round: Option<Duration>,
}

impl<'a> Run<'a> {
    /// Chooses how much a measurement does, and says what a reader has to know of the place.
    fn new(plan: &'a Plan) -> Outcome<Run<'a>> {
        let (place, shown) = (plan.place(), plan.directory.display());
        let lower = isolation::kind(&place).unwrap_or_else(|| "unknown".to_owned());
        let mut progress = Progress::new();
        let mut remarks = Vec::new();
        progress.say("trying how fast the directory is", None);
        let pace = || pace::of(&place).map_err(|error| format!("{shown}: {error}"));
        let percent = plan.percent.map_or_else(pace, Ok)?;
        if plan.percent.is_none() && percent < PERCENT {
            remarks.push(format!(
                "{shown} is slow: a measurement has {percent} % of 8,000 files and 256 MiB (--percent)"
            ));
            progress.line(&remarks[0]);
        }
        if !is_root() {
            remarks.push(OF_A_USER.to_owned());
        }
        if lower.starts_with("fuse") {
            remarks.push(format!(
                "{shown} is on {lower} itself: native is what that server can do"
            ));
        }
        Ok(Run {
            plan,
            rows: plan.planned_rows()?,
            targets: Vec::new(),
            results: Results {
                format: FORMAT,
                command: plan.command.clone(),
                started: machine::seconds_now(),
                seconds: 0.0,
                percent,
                ending: Ending::Complete,
                machine: machine::describe(),
                targets: plan.setups.iter().map(Setup::described).collect(),
                cells: Vec::new(),
                remarks,
            },
            lower,
            stop: Stop::new(),
            progress,
            started: Instant::now(),
            round: None,
        })
    }

    /// One that cannot start is recorded, with the reason.
    fn start_targets(&mut self) -> Outcome<()> {
        directory(self.plan.place().join(TREES))?;
        directory(self.plan.place().join(MOUNTS))?;
        for (at, setup) in self.plan.setups.iter().enumerate() {
            self.progress
                .say(&format!("starting {}", setup.name()), None);
            match RunningTarget::start(setup, self.plan) {
                Ok(target) => self.targets.push(target),
                Err(why) if *setup == Setup::Native => return Err(why),
                Err(why) => self.results.targets[at].absent = Some(why),
            }
        }
        for line in report::absent_targets(&self.results) {
            self.progress.line(&format!("not measured: {line}"));
        }
        match self.targets.len() {
            1 => Err("no target to compare with: see above".to_owned()),
            _ => Ok(()),
        }
    }

    /// How many rounds there will be, as it looks after so many of them: as many as there is time for.
    fn rounds(&self, done: u32) -> u32 {
        let time = Duration::from_secs(self.plan.seconds.into());
        let left = time.saturating_sub(self.started.elapsed()).as_secs_f64();
        let fitting = self.round.map_or(0.0, |round| left / round.as_secs_f64());
        let fitting = (done + fitting.min(1e6) as u32).clamp(ROUNDS_MIN, ROUNDS_MAX);
        self.plan.rounds.unwrap_or(fitting)
    }

    fn measure_round(&mut self, round: u32) -> ControlFlow<()> {
        let (rounds, count) = (self.rounds(round), self.targets.len());
        for (number, planned) in self.rows.clone().into_iter().enumerate() {
            let share = number as f64 / self.rows.len() as f64;
            // Of the first round, nobody knows how long it takes.
            let rounds_left = f64::from(rounds - round) - share;
            let left = self.round.map(|one| one.mul_f64(rounds_left));
            for turn in 0..count {
                // The first target bears what the row before has left to be written back: each target is
                // first once.
                let at = (turn + round as usize) % count;
                let (label, name) = (planned.label(), self.targets[at].name());
                let text = format!("round {} of {rounds} · {label} · {name}", round + 1);
                self.progress.say(&text, left);
                self.measure(planned, at, round)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn measure(&mut self, planned: PlannedRow, at: usize, round: u32) -> ControlFlow<()> {
        let target = &mut self.targets[at];
        let name = target.name();
        let is_absent = |name| {
            let cell = self.results.cell(planned.row.name, name, planned.jobs);
            cell.is_some_and(|cell| cell.absence.is_some())
        };
        // Without native, nothing can be compared.
        if is_absent(&name) || is_absent("native") {
            return ControlFlow::Continue(());
        }
        let measured = measure(planned, target, round, self.results.percent, &self.stop);
        match measured.unwrap_or_else(|error| Measured::failed(&error.to_string())) {
            Measured::Stopped => return ControlFlow::Break(()),
            Measured::Sample(sample) => self.cell(planned, name).samples.push(sample),
            Measured::Absent(absence) => {
                if absence.failed {
                    let (label, why) = (planned.label(), &absence.why);
                    self.progress
                        .line(&format!("FAILED: {label} on {name}: {why}"));
                }
                self.cell(planned, name).absence = Some(absence);
            }
        }
        ControlFlow::Continue(())
    }

    fn cell(&mut self, PlannedRow { row, jobs }: PlannedRow, target: String) -> &mut Cell {
        let results = &mut self.results;
        let is_it =
            |cell: &Cell| (&*cell.row, &cell.target, cell.jobs) == (row.name, &target, jobs);
        let place = results.cells.iter().position(is_it);
        let place = place.unwrap_or_else(|| {
            results.cells.push(Cell {
                row: row.name.to_owned(),
                target,
                lower: self.lower.clone(),
                jobs,
                samples: Vec::new(),
                absence: None,
            });
            results.cells.len() - 1
        });
        &mut results.cells[place]
    }

    /// Takes everything down, writes the report and shows the table.
    fn finish(mut self, noise: &Noise) -> Outcome<ExitCode> {
        for target in self.targets.drain(..) {
            let name = target.name();
            if self.results.ending == Ending::Complete
                && let Err(why) = target.unmount()
            {
                self.results
                    .remarks
                    .push(format!("taking {name} down: {why}"));
            }
        }
        let remarks = noise.remarks(Noise::watch());
        self.results.remarks.extend(remarks);
        self.progress.clear();
        if self.stop.is_abandoned() {
            return Ok(ExitCode::FAILURE);
        }
        self.results.seconds = self.started.elapsed().as_secs_f64();
        let results = &self.results;
        if results.cells.iter().all(|cell| cell.samples.is_empty()) {
            return Err("nothing was measured".to_owned());
        }
        let then = self.plan.compare.as_deref().map(Results::read);
        let then = then.transpose()?;
        let shown = |width| {
            let compared = |then| report::compared(then, results, width);
            report::terminal(results, width) + &then.as_ref().map_or(String::new(), compared)
        };
        write(self.plan, results, &shown(report::WIDTH_ELSEWHERE))?;
        // A reader that has enough (`| head`) is no failure.
        let _ = writeln!(std::io::stdout(), "{}", shown(report::width()));
        let end = format!("report: {}\nremoving the files", self.plan.out.display());
        self.progress.line(&end);
        let failed = |cell: &Cell| cell.absence.as_ref().is_some_and(|absence| absence.failed);
        match results.cells.iter().any(failed) {
            true => Err("some cells of the table have failed: see above".to_owned()),
            false => Ok(ExitCode::SUCCESS),
        }
    }
}

/// Writes the report to a folder that gets its name when everything is in it.
fn write(plan: &Plan, results: &Results, shown: &str) -> Outcome<()> {
    let unfinished = directory(plan.unfinished_out())?;
    let json = serde_json::to_string_pretty(results).map_err(|error| error.to_string())?;
    for (name, text) in [("results.json", &*json), ("report.txt", shown)] {
        let path = unfinished.join(name);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let (cwd, flags) = (rustix::fs::CWD, rustix::fs::RenameFlags::NOREPLACE);
    rustix::fs::renameat_with(cwd, &unfinished, cwd, &plan.out, flags)
        .map_err(|error| format!("{}: {error}", plan.out.display()))
}
