//! What stands out: rows in which a target is slow beyond what its requests explain.
//!
//! Of each cell it is known how much longer an operation takes than natively, and, where it was counted,
//! how many requests it makes: what it takes for each request is about the same in all rows of a
//! target, whatever the request, unless something is wrong with one of them. Where there are no
//! counts, an operation stands in for the request. A cell stands out
//!
//! * when it takes much more than the target's other rows do, and more than any other target in this row,
//! * or when it takes very much more than any other target in this row (something may be wrong with all rows
//!   of a target).
//!
//! Nothing that a slow disk, large transfers or noise could explain counts: of the rounds' times it is the
//! lower end of the interval that is looked at, less some times native's time, less a time for each byte.

#[cfg(test)]
mod tests;

use super::figure::duration;
use super::table::{Entry, RowResult, is_sound, sections};
use crate::results::statistics::Middle;
use crate::results::{Cell, Group, Kind, Results};
use std::fmt::{self, Display, Formatter};

/// What is as many times above the target's other rows stands out.
const TIMES_USUAL: f64 = 8.0;
/// If it is also as many times above any other target in this row.
const TIMES_OTHERS: f64 = 3.0;
/// What is as many times above any other target in this row stands out by that alone.
const TIMES_OTHERS_ALONE: f64 = 20.0;
/// Other rows that must be there to tell what is usual.
const OTHER_ROWS_MIN: usize = 2;
/// Nothing that takes less stands out, and nothing is held against something that takes less:
/// waking an idle processor takes as long.
const NANOSECONDS_MIN: f64 = 10_000.0;
/// What takes less for a request is too small a matter to speak of.
const WORTH_SAYING_NANOSECONDS: f64 = 40_000.0;
/// How many times native's time the work itself may take: twice because it is done for another process,
/// once more where the disk is in another mood.
const TIMES_NATIVE: f64 = 3.0;
/// What moving a byte once more takes at most.
const NANOSECONDS_EACH_BYTE: f64 = 1.0;
/// With fewer requests for an operation, what counts is the operation: a request that reads ahead, or lists
/// many names at once, is more than others.
const REQUESTS_MIN: f64 = 0.2;

/// One that stands out.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// [`Row::name`](crate::results::RowInfo::name).
    pub row: String,
    /// [`Target::name`](crate::results::Target::name).
    pub target: String,
    /// [`Cell::lower`].
    pub lower: String,
    /// [`Cell::jobs`].
    pub jobs: u32,
    /// Whether the times are for a request; else for an operation.
    pub each_request: bool,
    /// What it takes more than natively.
    pub nanoseconds: f64,
    /// What it should take.
    pub usual_nanoseconds: f64,
    /// Where that is taken from.
    pub measure: Measure,
    /// By name, the requests of an operation, if they are known.
    pub requests: Vec<String>,
}

/// What a finding is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The median of the target's other rows.
    OtherRows,
    /// The slowest of the other targets in the row.
    OtherTargets,
}

impl Finding {
    /// How many times as long as it should.
    #[must_use]
    pub fn times(&self) -> f64 {
        self.nanoseconds / self.usual_nanoseconds
    }
}

impl Display for Finding {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let (row, target) = (&self.row, &self.target);
        let jobs = match self.jobs {
            1 => String::new(),
            jobs => format!(", {jobs} jobs"),
        };
        let unit = if self.each_request {
            "request"
        } else {
            "operation"
        };
        let usual = match self.measure {
            Measure::OtherRows => "the other rows of this target take",
            Measure::OtherTargets => "the others in this row take at most",
        };
        write!(
            formatter,
            "{row} on {target} ({}{jobs}): {} for each {unit} where {usual} {}",
            self.lower,
            duration(self.nanoseconds),
            duration(self.usual_nanoseconds),
        )?;
        if !self.requests.is_empty() {
            write!(formatter, "; its requests: {}", self.requests.join(", "))?;
        }
        Ok(())
    }
}

/// What stands out, the most conspicuous first.
#[must_use]
pub fn standing_out(results: &Results) -> Vec<Finding> {
    let mut findings = Vec::new();
    for section in sections(results) {
        let costs: Vec<Cost<'_>> = section.lines.iter().flat_map(costs).collect();
        findings.extend(costs.iter().filter_map(|cost| judge(cost, &costs)));
    }
    findings.sort_by(|one: &Finding, other| other.times().total_cmp(&one.times()));
    findings
}

/// What an operation takes more than natively.
struct Cost<'a> {
    line: (&'a str, u32),
    group: Group,
    in_seconds: bool,
    kind: Kind,
    cell: &'a Cell,
    /// For each request, or for each operation where they were not counted; for people.
    nanoseconds: f64,
    /// The same, less all that something else could explain.
    sure_nanoseconds: f64,
    counted: bool,
    each_request: bool,
}

fn costs<'a>(line: &RowResult<'a>) -> Vec<Cost<'a>> {
    let cost = |entry: &Entry<'a>| {
        let cell = entry.cell;
        let native = line.native.filter(|native| is_sound(native))?;
        let times = cell.samples.iter().filter_map(|sample| {
            let beneath = native.of_round(sample)?;
            let jobs = f64::from(cell.jobs);
            Some((
                1e9 / sample.per_second() * jobs,
                1e9 / beneath.per_second() * jobs,
            ))
        });
        let (times, beneath): (Vec<f64>, Vec<f64>) = times.unzip();
        let more = |share: f64| {
            let pairs = times.iter().zip(&beneath);
            Middle::of(pairs.map(|(time, native)| time - share * native).collect())
        };
        let bytes = line.row.operation_bytes as f64;
        let allowed = bytes * NANOSECONDS_EACH_BYTE;
        let requests = requests_each(cell);
        let each_request = requests.filter(|requests| *requests >= REQUESTS_MIN);
        let share = each_request.unwrap_or(1.0);
        Some(Cost {
            line: (&line.row.name, line.jobs),
            group: line.row.group,
            in_seconds: line.row.in_seconds,
            kind: entry.target.kind,
            cell,
            nanoseconds: more(1.0)?.median.max(0.0) / share,
            sure_nanoseconds: (more(TIMES_NATIVE)?.least - allowed).max(0.0) / share,
            counted: requests.is_some(),
            each_request: each_request.is_some(),
        })
    };
    line.entries
        .iter()
        .filter(|entry| is_sound(entry.cell) && entry.target.kind != Kind::Native)
        .filter_map(cost)
        .collect()
}

fn requests_each(cell: &Cell) -> Option<f64> {
    let counts = cell.counts.as_ref()?;
    let requests: u64 = counts.requests.as_ref()?.values().sum();
    (counts.operations > 0).then(|| requests as f64 / counts.operations as f64)
}

fn judge(cost: &Cost<'_>, all: &[Cost<'_>]) -> Option<Finding> {
    if cost.sure_nanoseconds < WORTH_SAYING_NANOSECONDS {
        return None;
    }
    let above = |measure: Option<f64>, factor: f64| {
        measure.filter(|measure| cost.sure_nanoseconds >= factor * measure)
    };
    let others_too = match slowest(others(cost, all)) {
        Some(slowest) => cost.sure_nanoseconds < TIMES_OTHERS * slowest,
        None => false,
    };
    let (usual_nanoseconds, measure) = match above(usual(cost, all), TIMES_USUAL) {
        Some(usual) if !others_too => (usual, Measure::OtherRows),
        _ => {
            // What is wrong with one of ours may be wrong with all of them.
            let strangers = others(cost, all).filter(|other| other.kind != cost.kind);
            let slowest = slowest(strangers).or_else(|| slowest(others(cost, all)));
            let slowest = above(slowest, TIMES_OTHERS_ALONE)?;
            (slowest, Measure::OtherTargets)
        }
    };
    Some(Finding {
        row: cost.cell.row.clone(),
        target: cost.cell.target.clone(),
        lower: cost.cell.lower.clone(),
        jobs: cost.cell.jobs,
        each_request: cost.each_request,
        nanoseconds: cost.nanoseconds,
        usual_nanoseconds,
        measure,
        requests: opcodes(cost.cell),
    })
}

/// What the target's other rows take, of those that can be compared.
fn usual(cost: &Cost<'_>, all: &[Cost<'_>]) -> Option<f64> {
    // Uncounted, a program is no operation like others.
    let comparable =
        |cost: &Cost<'_>| cost.counted || !(cost.group == Group::Programs || cost.in_seconds);
    if !comparable(cost) {
        return None;
    }
    let other_rows = all.iter().filter(|other| {
        other.cell.target == cost.cell.target
            && other.line.0 != cost.line.0
            && other.counted == cost.counted
            && comparable(other)
    });
    let costs: Vec<f64> = other_rows.map(|other| other.nanoseconds).collect();
    let enough = costs.len() >= OTHER_ROWS_MIN;
    let middle = Middle::of(costs).filter(|_| enough)?;
    Some(middle.median.max(NANOSECONDS_MIN))
}

/// The others in this row, without those that stand out from their own rows.
fn others<'a>(cost: &'a Cost<'a>, all: &'a [Cost<'a>]) -> impl Iterator<Item = &'a Cost<'a>> {
    let stands_out = |other: &Cost<'_>| {
        usual(other, all).is_some_and(|usual| other.sure_nanoseconds >= TIMES_USUAL * usual)
    };
    all.iter().filter(move |other| {
        other.line == cost.line
            && other.cell.target != cost.cell.target
            && other.counted == cost.counted
            && !stands_out(other)
    })
}

fn slowest<'a>(costs: impl Iterator<Item = &'a Cost<'a>>) -> Option<f64> {
    costs
        .map(|cost| cost.nanoseconds.max(NANOSECONDS_MIN))
        .max_by(f64::total_cmp)
}

/// The requests of an operation, the most frequent first.
fn opcodes(cell: &Cell) -> Vec<String> {
    let requests = cell
        .counts
        .as_ref()
        .and_then(|counts| Some((counts.requests.as_ref()?, counts.operations)));
    let Some((requests, operations)) = requests else {
        return Vec::new();
    };
    let mut requests: Vec<(&String, u64)> = requests
        .iter()
        .map(|(name, count)| (name, *count))
        .filter(|(_, count)| *count as f64 >= 0.05 * operations.max(1) as f64)
        .collect();
    requests.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    requests
        .into_iter()
        .map(
            |(name, count)| match super::figure::each(count, operations) {
                each if each == "1" => name.clone(),
                each => format!("{each} {name}"),
            },
        )
        .collect()
}
