//! The results of a run while it goes on: samples, absent targets, remarks. [`results`](crate::results) has
//! their form.

use crate::machine;
use crate::measurement::Measured;
use crate::plan::{Plan, PlannedRow};
use crate::results::{Cell, Ending, FORMAT, Results};
use crate::row::info;
use crate::setup::TargetSetup;
use std::time::Instant;

/// Results that grow.
pub(super) struct Record {
    results: Results,
    start: Instant,
    /// Whether rows have the goals that the project sets itself.
    has_goals: bool,
}

impl Record {
    pub(super) fn new(plan: &Plan) -> Record {
        let results = Results {
            format: FORMAT,
            suite: plan.suite.clone(),
            command: plan.command.clone(),
            started: machine::seconds_now(),
            seconds: 0.0,
            ending: Ending::Complete,
            machine: machine::describe(),
            targets: plan.setups.iter().map(TargetSetup::described).collect(),
            rows: Vec::new(),
            cells: Vec::new(),
            remarks: Vec::new(),
        };
        Record {
            results,
            start: Instant::now(),
            has_goals: !plan.lowers.is_empty(),
        }
    }

    /// A target does not take part.
    pub(super) fn absent(&mut self, name: &str, why: &str) {
        let mut all = self.results.targets.iter_mut();
        if let Some(target) = all.find(|target| target.name == name) {
            target.absent = Some(why.to_owned());
        }
    }

    /// Why targets are absent: each reason once, after the names of the targets.
    pub(super) fn reasons(&self) -> Vec<String> {
        let mut reasons: Vec<(Vec<&str>, &str)> = Vec::new();
        for one in &self.results.targets {
            let Some(why) = one.absent.as_deref() else {
                continue;
            };
            match reasons.iter_mut().find(|(_, other)| *other == why) {
                Some((names, _)) => names.push(&one.name),
                None => reasons.push((vec![&one.name], why)),
            }
        }
        let text = |(names, why): (Vec<&str>, &str)| format!("{}: {why}", names.join(", "));
        reasons.into_iter().map(text).collect()
    }

    pub(super) fn remark(&mut self, text: String) {
        if !self.results.remarks.contains(&text) {
            self.results.remarks.push(text);
        }
    }

    pub(super) fn interrupted(&mut self) {
        self.results.ending = Ending::Interrupted;
    }

    /// Whether it is known that there will be no figure.
    pub(super) fn is_without(&self, planned: PlannedRow, target: &str, lower: &str) -> bool {
        let cell = |target| {
            self.results
                .cell(planned.row.name, target, lower, planned.jobs)
        };
        let absent = |name| cell(name).is_some_and(|cell| cell.absence.is_some());
        // Without native, nothing can be compared.
        absent(target) || absent("native")
    }

    /// What came of a measurement.
    pub(super) fn add(
        &mut self,
        planned: PlannedRow,
        target: &str,
        lower: &str,
        measured: Measured,
    ) {
        let cell = self.cell(planned, target, lower);
        match measured {
            Measured::Sample(sample) => cell.samples.push(sample),
            Measured::Latency(latency) => cell.latency = Some(latency),
            Measured::Counts(counts) => {
                let is_known = counts.requests.is_some() || counts.system_calls.is_some();
                cell.counts = is_known.then_some(counts);
            }
            Measured::Absent(absence) => cell.absence = Some(absence),
            Measured::Stopped => {}
        }
    }

    fn cell(&mut self, planned: PlannedRow, target: &str, lower: &str) -> &mut Cell {
        let PlannedRow { row, jobs } = planned;
        if !self.results.rows.iter().any(|known| known.name == row.name) {
            let mut row = info(row);
            // They are for file systems that are made for the run.
            row.goal = row.goal.filter(|_| self.has_goals);
            self.results.rows.push(row);
        }
        let cells = &mut self.results.cells;
        let is_it = |cell: &Cell| {
            (cell.row.as_str(), cell.target.as_str()) == (row.name, target)
                && (cell.lower.as_str(), cell.jobs) == (lower, jobs)
        };
        let place = cells.iter().position(is_it).unwrap_or_else(|| {
            cells.push(Cell {
                row: row.name.to_owned(),
                target: target.to_owned(),
                lower: lower.to_owned(),
                jobs,
                samples: Vec::new(),
                absence: None,
                counts: None,
                latency: None,
            });
            cells.len() - 1
        });
        &mut cells[place]
    }

    /// A row was given up: what it has is too little to stay.
    pub(super) fn forget(&mut self, planned: PlannedRow) {
        let is_it =
            |cell: &Cell| (cell.row.as_str(), cell.jobs) == (planned.row.name, planned.jobs);
        self.results.cells.retain(|cell| !is_it(cell));
        let cells = &self.results.cells;
        let rows = &mut self.results.rows;
        rows.retain(|row| cells.iter().any(|cell| cell.row == row.name));
    }

    /// What a server held in memory at the end.
    pub(super) fn resident(&mut self, name: &str, kib: Option<u64>) {
        let mut all = self.results.targets.iter_mut();
        if let Some(target) = all.find(|target| target.name == name) {
            // Over several file systems beneath, the most.
            target.resident_kib = target.resident_kib.max(kib);
        }
    }

    pub(super) fn results(&self) -> &Results {
        &self.results
    }

    /// The whole.
    pub(super) fn finished(&mut self) -> Results {
        self.results.seconds = self.start.elapsed().as_secs_f64();
        self.results.clone()
    }
}
