//! How many rounds there is time for, and of which rows.
//!
//! The first round shows how long a round takes. Where three rounds are too many, the run takes longer, by up to
//! half of its time; where that does not do, rows go, the dearest first; and rows that take far more time than others go until there are five.

use crate::plan::{Plan, PlannedRow};
use std::time::{Duration, Instant};

/// Fewer rounds tell nothing, unless the command line asks for them.
const ROUNDS_MIN: u32 = 3;
/// With so many, an interval has a chance of 0.94 to hold the median.
const ROUNDS_WANTED: u32 = 5;
/// More are not worth the time.
const ROUNDS_MAX: u32 = 11;
/// Passes for latencies and counts, in rounds, where the time is not limited.
const PASSES: f64 = 2.0;
/// The share of a limited time that is kept for them, however slow the rounds are.
const PASSES_SHARE: f64 = 0.2;
/// A run may take so much longer than its time, so that rows have the fewest rounds that tell anything.
const OVERTIME: f64 = 0.5;
/// A row is far dearer than others when it takes so many times what the one in the middle does.
const DEAR: u32 = 3;
/// No more of the time may go into the first round.
const FIRST_ROUND_MAX: f64 = 0.4;
/// No row that was measured takes less.
const TICK: Duration = Duration::from_millis(1);
/// The part of a measurement's time that is not timed: processes, files, dropping caches.
const AROUND: f64 = 0.5;

/// Limits of a loop, and of one in a run without a limit of time.
const LIMIT_MIN: Duration = Duration::from_millis(20);
const LIMIT_MAX: Duration = Duration::from_secs(60);
/// How long one may take to be ready or done.
const PATIENCE_MIN: Duration = Duration::from_secs(15);
const PATIENCE_MAX: Duration = Duration::from_secs(1800);

/// What is to be done when.
pub(super) struct Schedule {
    started: Instant,
    budget: Option<Duration>,
    rounds_given: Option<u32>,
    rounds: u32,
    planned_rows: Vec<Cost>,
    limit: Duration,
}

/// A row, and what its last round has cost.
#[derive(Clone, Copy)]
struct Cost {
    planned: PlannedRow,
    time: Duration,
}

impl Cost {
    fn named(&self) -> String {
        let name = self.planned.row.name;
        let jobs = match self.planned.jobs {
            1 => String::new(),
            jobs => format!(" × {jobs}"),
        };
        if self.time.is_zero() {
            return format!("{name}{jobs}");
        }
        let seconds = self.time.as_secs_f64().ceil();
        format!("{name}{jobs} ({seconds:.0} s a round)")
    }
}

/// How much a measurement may do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Effort {
    /// After this long, loops end.
    pub(super) limit: Duration,
    /// Of the usual work.
    pub(super) share: f64,
}

impl Effort {
    /// Of so much work, in hundredths: as much, at least one.
    pub(super) fn of(self, percent: usize) -> usize {
        ((percent as f64 * self.share) as usize).max(1)
    }
}

/// What a round has cost in a row: in the first one, what is kept for the others was made.
#[derive(Clone, Copy, Default)]
pub(super) struct Spent {
    /// Everything.
    pub(super) all: Duration,
    /// Until processes were ready.
    pub(super) preparing: Duration,
}

impl Schedule {
    /// For a run that began at `started`, with so many cells.
    pub(super) fn new(
        started: Instant,
        plan: &Plan,
        planned_rows: Vec<PlannedRow>,
        cells: usize,
    ) -> Schedule {
        let budget = plan
            .seconds
            .map(|seconds| Duration::from_secs(seconds.into()));
        let rounds = plan.rounds.unwrap_or(ROUNDS_WANTED);
        let measurements = cells.max(1) as f64 * (f64::from(rounds) + PASSES);
        let limit = budget.map_or(LIMIT_MAX, |budget| {
            budget.mul_f64((1.0 - AROUND) / measurements)
        });
        Schedule {
            started,
            budget,
            rounds_given: plan.rounds,
            rounds,
            planned_rows: planned_rows
                .into_iter()
                .map(|planned| Cost {
                    planned,
                    time: Duration::ZERO,
                })
                .collect(),
            limit: limit.clamp(LIMIT_MIN, LIMIT_MAX),
        }
    }

    /// What is measured in a round.
    pub(super) fn planned_rows(&self) -> Vec<PlannedRow> {
        self.planned_rows.iter().map(|cost| cost.planned).collect()
    }

    /// Rounds that there will be, as far as that is known.
    pub(super) fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Whether there is another round. The last one must have come to its end.
    pub(super) fn has_round(&self, round: u32) -> bool {
        round < self.rounds
    }

    /// `2 of 7`.
    pub(super) fn round_of(&self, round: u32) -> String {
        let is_known = self.budget.is_none() || round > 0;
        if is_known {
            format!("{} of {}", round + 1, self.rounds)
        } else {
            (round + 1).to_string()
        }
    }

    /// What a measurement does in a round.
    pub(super) fn usual(&self) -> Effort {
        Effort {
            limit: self.limit,
            share: 1.0,
        }
    }

    /// How long a process may take to be ready, or to be done.
    pub(super) fn patience(&self) -> Duration {
        let share = self.budget.map_or(PATIENCE_MAX, |budget| budget / 8);
        share.max(PATIENCE_MIN)
    }

    /// A row was measured everywhere. False when the first round takes too long for what comes after it:
    /// then the rest of the rows is given up.
    pub(super) fn row_is_over(&mut self, planned: PlannedRow, round: u32, spent: Spent) -> bool {
        if let Some(cost) = self
            .planned_rows
            .iter_mut()
            .find(|cost| cost.planned == planned)
        {
            // What has to be prepared for every round is known after the second.
            cost.time = match round {
                0 => spent.all.saturating_sub(spent.preparing).max(TICK),
                _ => spent.all,
            };
        }
        let Some(budget) = self.budget else {
            return true;
        };
        round > 0 || self.started.elapsed() < budget.mul_f64(FIRST_ROUND_MAX)
    }

    /// Decides how it goes on. Rows that are left out from now on are added to `gone`, and named in a sentence
    /// for the report.
    pub(super) fn round_is_over(
        &mut self,
        round: u32,
        gone: &mut Vec<PlannedRow>,
    ) -> Option<String> {
        let budget = self.budget?;
        let mut names = Vec::new();
        let for_rounds = budget.mul_f64(1.0 - PASSES_SHARE);
        let left = for_rounds.saturating_sub(self.started.elapsed());
        let overtime = budget.mul_f64(OVERTIME);
        let done = round + 1;
        if round == 0 {
            names.extend(self.give_up(gone, |cost| cost.time.is_zero()));
        }
        if round <= 1 {
            let wanted = self.rounds_given.unwrap_or(ROUNDS_WANTED);
            let least = self.rounds_given.unwrap_or(ROUNDS_MIN);
            let median = self.median();
            while self.planned_rows.len() > 1 && self.fitting(left) + done < wanted {
                let dearest = self.dearest();
                let is_dear = dearest > median * DEAR;
                // Rather a little longer than without what has been measured.
                if !is_dear && self.fitting(left + overtime) + done >= least {
                    break;
                }
                names.extend(self.give_up(gone, |cost| cost.time == dearest));
            }
        }
        let fitting = self.fitting(left) + done;
        let least = self.rounds_given.unwrap_or(ROUNDS_MIN).min(ROUNDS_MIN);
        let most = self.rounds_given.unwrap_or(ROUNDS_MAX);
        self.rounds = fitting.clamp(least, most).max(done);
        if names.is_empty() {
            return None;
        }
        Some(format!(
            "left out for want of time: {}; a longer --time has them",
            names.join(", ")
        ))
    }

    /// Rounds that fit into a time.
    fn fitting(&self, left: Duration) -> u32 {
        let round = self.a_round().as_secs_f64().max(1e-3);
        let rounds = left.as_secs_f64() / round;
        rounds.clamp(0.0, 1e6) as u32
    }

    fn a_round(&self) -> Duration {
        self.planned_rows.iter().map(|cost| cost.time).sum()
    }

    fn dearest(&self) -> Duration {
        let times = self.planned_rows.iter().map(|cost| cost.time);
        times.max().unwrap_or_default()
    }

    fn median(&self) -> Duration {
        let mut times: Vec<Duration> = self.planned_rows.iter().map(|cost| cost.time).collect();
        times.sort();
        times.get(times.len() / 2).copied().unwrap_or_default()
    }

    /// Leaves rows out, but for one at least; their names, with what they cost.
    fn give_up(
        &mut self,
        gone: &mut Vec<PlannedRow>,
        which: impl Fn(&Cost) -> bool,
    ) -> Vec<String> {
        let (mut go, mut stay): (Vec<Cost>, Vec<Cost>) =
            self.planned_rows.iter().partition(|cost| which(cost));
        if stay.is_empty() && !go.is_empty() {
            stay.push(go.remove(0));
        }
        self.planned_rows = stay;
        gone.extend(go.iter().map(|cost| cost.planned));
        go.iter().map(Cost::named).collect()
    }

    /// What there is time for in one of so many measurements that are left of the passes, which usually does this
    /// share of what one in a round does, with so many targets: every one has its turn, and less to do where
    /// time is short.
    pub(super) fn effort(
        &self,
        planned: PlannedRow,
        targets: usize,
        share: f64,
        left: usize,
    ) -> Effort {
        let usual = self.usual();
        let Some(budget) = self.budget else {
            return usual;
        };
        let time = budget.saturating_sub(self.started.elapsed());
        let time = time.as_secs_f64() / left.max(1) as f64;
        let cost = self
            .planned_rows
            .iter()
            .find(|cost| cost.planned == planned);
        let cost = cost.map_or(0.0, |cost| cost.time.as_secs_f64()) / targets.max(1) as f64;
        let fitting = time / (cost * share).max(1e-9);
        // By steps: what is kept for measurements of one size is of no use for another.
        let steps = [1.0, 0.1, 0.01];
        let share = steps.into_iter().find(|&step| step <= fitting);
        let share = share.unwrap_or(steps[2]);
        if share == 1.0 {
            return usual;
        }
        let limit = Duration::from_secs_f64(time * (1.0 - AROUND));
        let limit = limit.clamp(LIMIT_MIN.min(self.limit), self.limit);
        Effort { limit, share }
    }

    /// How long it will take from now.
    pub(super) fn left(&self, round: u32) -> Option<Duration> {
        if let Some(budget) = self.budget {
            return Some(budget.saturating_sub(self.started.elapsed()));
        }
        let rounds = f64::from(self.rounds.saturating_sub(round)) + PASSES;
        (round > 0).then(|| self.a_round().mul_f64(rounds))
    }
}

#[cfg(test)]
mod tests;
