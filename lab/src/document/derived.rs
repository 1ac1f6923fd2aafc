//! Comparisons within a row: Thrufs over io_uring with Thrufs over `/dev/fuse`, with libfuse's best mode, and with
//! the floor and native together; and the goals that they have.

use crate::rows::REACHING;
use thrufs_bench::report::table::{Entry, RowResult, is_sound, ratio};
use thrufs_bench::results::statistics::Middle;
use thrufs_bench::results::{Group, Kind, Sample, Target};

/// Goal: the time of an operation over the floor's plus native's.
pub(super) const TIMES_FLOOR_AND_NATIVE_MAX: f64 = 1.15;
/// Goal: the rate of metadata operations over that of libfuse's best mode.
pub(super) const TIMES_LIBFUSE_MIN: f64 = 1.5;

/// Prefix of the names of libfuse's modes.
const LIBFUSE: &str = "libfuse";

/// What a figure is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Against {
    /// Native's rate, where the row has a goal.
    Native,
    /// Native's time for a whole program.
    NativeTime,
    /// The same over `/dev/fuse`.
    Dev,
    /// The rate of libfuse's best mode in this row.
    Libfuse,
    /// The time of an operation: the floor's and native's together.
    Floor,
}

impl Against {
    /// Whether the row's own goal applies.
    pub(super) fn is_with_native(self) -> bool {
        matches!(self, Against::Native | Against::NativeTime)
    }
}

/// A comparison of a mode of Thrufs.
pub(super) struct Comparison<'a> {
    pub(super) subject: &'a str,
    pub(super) against: Against,
    /// The median of the rounds' ratios.
    pub(super) times: Middle,
    pub(super) goal: Option<Goal>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    Yes,
    /// The median misses the goal, the interval includes it.
    Barely,
    No,
}

impl Goal {
    pub(super) fn is_met(self, figure: &Middle) -> Met {
        let (met, could_be) = match self {
            Goal::AtLeast(least) => (figure.median >= least, figure.greatest >= least),
            Goal::AtMost(most) => (figure.median <= most, figure.least <= most),
        };
        match (met, could_be) {
            (true, _) => Met::Yes,
            (false, true) => Met::Barely,
            (false, false) => Met::No,
        }
    }
}

impl Comparison<'_> {
    pub(super) fn met(&self) -> Option<Met> {
        Some(self.goal?.is_met(&self.times))
    }
}

/// The title of a column. libfuse's best mode may differ in each row.
pub(super) fn column_title(against: Against, subject: &str) -> String {
    match against {
        Against::Native => format!("{subject} / native"),
        Against::NativeTime => format!("time of {subject} / native"),
        Against::Dev => format!("{subject} / {}", subject.replacen("ring", "dev", 1)),
        Against::Libfuse => format!("{subject} / libfuse's best"),
        Against::Floor => format!("time of {subject} / (floor + native)"),
    }
}

/// All comparisons of a row.
pub(super) fn comparisons<'a>(line: &RowResult<'a>) -> Vec<Comparison<'a>> {
    let mut all = Vec::new();
    for ours in line.entries.iter().filter(|entry| is_mount(entry.target)) {
        all.extend(with_native(line, ours));
        all.extend(with_dev(line, ours));
        all.extend(with_libfuse(line, ours));
        all.extend(with_floor(line, ours));
    }
    all
}

pub(super) fn has_passthrough(target: &Target) -> bool {
    // The default of `thrufs mount`.
    let by_default = target.name == "thrufs" && !target.options.contains("nopassthrough");
    target.name.contains("+pt") || by_default
}

/// Whether it is `thrufs mount`, which the goals are for, and no server of the benchmark's own.
pub(super) fn is_mount(target: &Target) -> bool {
    let mode = target.name.split(':').next().unwrap_or_default();
    let modes = ["thrufs", "dev", "ring", "dev+pt", "ring+pt"];
    target.kind == Kind::Ours && modes.contains(&mode)
}

fn with_native<'a>(line: &RowResult<'a>, ours: &Entry<'a>) -> Option<Comparison<'a>> {
    let goal = line.row.goal?;
    let native = line.native?;
    // Goals of data are for passthrough.
    if line.row.group == Group::Data && !has_passthrough(ours.target) {
        return None;
    }
    let (against, times, goal) = if line.row.in_seconds {
        // A share of the rate, as a multiple of the time: 1.05, not 1.0500001.
        let most = (1000.0 / goal).round() / 1000.0;
        let times = ratio(native, ours.cell)?;
        (Against::NativeTime, times, Goal::AtMost(most))
    } else {
        (Against::Native, ours.ratio?, Goal::AtLeast(goal))
    };
    Some(Comparison {
        subject: &ours.target.name,
        against,
        times,
        goal: Some(goal),
    })
}

fn with_dev<'a>(line: &RowResult<'a>, ours: &Entry<'a>) -> Option<Comparison<'a>> {
    let mode = ours.target.name.strip_prefix("ring")?;
    let dev = line.entry(&format!("dev{mode}"))?;
    Some(Comparison {
        subject: &ours.target.name,
        against: Against::Dev,
        times: ratio(ours.cell, dev.cell)?,
        goal: None,
    })
}

fn with_libfuse<'a>(line: &RowResult<'a>, ours: &Entry<'a>) -> Option<Comparison<'a>> {
    let like = |entry: &&Entry<'a>| {
        let name = &entry.target.name;
        // Rows of data compare passthrough with passthrough only.
        entry.target.kind == Kind::Other
            && name.starts_with(LIBFUSE)
            && (line.row.group != Group::Data
                || has_passthrough(entry.target) == has_passthrough(ours.target))
    };
    let best = line
        .entries
        .iter()
        .filter(like)
        .filter_map(|entry| Some((entry.ratio?.median, entry)))
        .max_by(|(one, _), (other, _)| one.total_cmp(other))?
        .1;
    Some(Comparison {
        subject: &ours.target.name,
        against: Against::Libfuse,
        times: ratio(ours.cell, best.cell)?,
        goal: reaches_server(line, ours).then_some(Goal::AtLeast(TIMES_LIBFUSE_MIN)),
    })
}

fn with_floor<'a>(line: &RowResult<'a>, ours: &Entry<'a>) -> Option<Comparison<'a>> {
    if !reaches_server(line, ours) {
        return None;
    }
    let over_ring = ours.target.name.starts_with("ring");
    let floors = if over_ring {
        ["floor-uring", "floor-dev"]
    } else {
        ["floor-dev", "floor-uring"]
    };
    let floor = floors.iter().find_map(|name| line.entry(name))?;
    let native = line.native?;
    if ![ours.cell, floor.cell, native].into_iter().all(is_sound) {
        return None;
    }
    let times = ours.cell.samples.iter().filter_map(|sample| {
        let least = time(floor.cell.of_round(sample)?) + time(native.of_round(sample)?);
        Some(time(sample) / least)
    });
    Some(Comparison {
        subject: &ours.target.name,
        against: Against::Floor,
        times: Middle::of(times.collect())?,
        goal: Some(Goal::AtMost(TIMES_FLOOR_AND_NATIVE_MAX)),
    })
}

/// Whether every operation has to reach the server: so it was counted, or it is one of [`REACHING`].
pub(super) fn reaches_server(line: &RowResult<'_>, ours: &Entry<'_>) -> bool {
    let counts = ours.cell.counts.as_ref();
    let counted = counts.and_then(|counts| Some((counts.requests.as_ref()?, counts.operations)));
    let is_listed = REACHING.contains(&line.row.name.as_str());
    match counted {
        // What comes before the loop and after it is counted too, or not: hence less than 1.
        Some((requests, operations)) => {
            let requests = requests.values().sum::<u64>() as f64;
            (is_listed || line.row.group == Group::Metadata)
                && requests >= 0.95 * operations.max(1) as f64
        }
        None => is_listed,
    }
}

/// Nanoseconds of one operation, were each after the other.
fn time(sample: &Sample) -> f64 {
    1e9 / sample.per_second()
}

#[cfg(test)]
mod tests {
    use super::{Against, Comparison, Goal, Met, comparisons};
    use crate::sample::Builder;
    use thrufs_bench::report::table::sections;
    use thrufs_bench::results::statistics::Middle;
    use thrufs_bench::results::{Kind, Results};

    const ALL: &[(&str, Kind)] = &[
        ("native", Kind::Native),
        ("dev", Kind::Ours),
        ("ring", Kind::Ours),
        ("ring+pt", Kind::Ours),
        ("libfuse", Kind::Other),
        ("libfuse-uring", Kind::Other),
        ("libfuse+pt", Kind::Other),
        ("floor-dev", Kind::Floor),
        ("floor-uring", Kind::Floor),
    ];

    fn with<T>(
        results: &Results,
        subject: &str,
        against: Against,
        read: impl Fn(&Comparison<'_>) -> T,
    ) -> Option<T> {
        let sections = sections(results);
        let all = comparisons(&sections[0].lines[0]);
        let mut all = all.iter();
        all.find(|one| one.subject == subject && one.against == against)
            .map(read)
    }

    fn row(name: &str, times: &[(&str, u64)]) -> Results {
        let builder = Builder::new().targets(ALL).on("tmpfs");
        let cells = times.iter().fold(builder, |builder, (target, time)| {
            builder.cell(name, target, &[*time; 5])
        });
        cells.results()
    }

    fn median(one: &Comparison<'_>) -> (f64, Option<Met>) {
        (one.times.median, one.met())
    }

    #[test]
    fn ours_is_compared_with_the_better_peer_and_the_floor() {
        let results = row(
            "create",
            &[
                ("native", 2_000),
                ("dev", 20_000),
                ("ring", 10_000),
                ("libfuse", 9_000),
                ("libfuse-uring", 30_000),
                ("floor-dev", 6_000),
            ],
        );
        let of = |subject, against| with(&results, subject, against, median);
        assert_eq!(of("ring", Against::Dev), Some((2.0, None)));
        assert_eq!(of("ring", Against::Libfuse), Some((0.9, Some(Met::No))));
        assert_eq!(of("ring", Against::Floor), Some((1.25, Some(Met::No))));
        assert_eq!(of("dev", Against::Dev), None);
        // A floor over the same transport is the one that counts.
        let results = row(
            "create",
            &[
                ("native", 2_000),
                ("ring", 10_000),
                ("floor-dev", 6_000),
                ("floor-uring", 8_000),
            ],
        );
        let of = |subject, against| with(&results, subject, against, median);
        assert_eq!(of("ring", Against::Floor), Some((1.0, Some(Met::Yes))));
        assert_eq!(of("ring", Against::Libfuse), None);
    }

    #[test]
    fn data_are_compared_like_with_like() {
        let results = row(
            "random-write-4k",
            &[
                ("native", 900),
                ("ring", 9_000),
                ("ring+pt", 1_000),
                ("libfuse", 18_000),
                ("libfuse+pt", 10_000),
            ],
        );
        let of = |subject, against| with(&results, subject, against, median);
        assert_eq!(of("ring", Against::Libfuse), Some((2.0, None)));
        assert_eq!(of("ring+pt", Against::Libfuse), Some((10.0, None)));
        assert_eq!(of("ring", Against::Floor), None);
    }

    #[test]
    fn goals_of_data_apply_to_passthrough_only() {
        let mut results = row(
            "random-write-4k",
            &[("native", 920), ("ring", 2_000), ("ring+pt", 1_000)],
        );
        results.rows[0].goal = Some(0.95);
        let of = |subject| with(&results, subject, Against::Native, median);
        assert_eq!(of("ring+pt"), Some((0.92, Some(Met::No))));
        assert_eq!(of("ring"), None);
    }

    #[test]
    fn a_build_is_held_against_the_time_of_native() {
        let mut results = row("build-c", &[("native", 100), ("ring", 106), ("dev", 105)]);
        results.rows[0].goal = Some(1.0 / 1.05);
        let of = |subject| with(&results, subject, Against::NativeTime, median);
        assert_eq!(of("ring"), Some((1.06, Some(Met::No))));
        assert_eq!(of("dev"), Some((1.05, Some(Met::Yes))));
    }

    #[test]
    fn a_goal_within_the_spread_is_barely_missed() {
        let met = |goal: Goal, values: &[f64]| goal.is_met(&Middle::of(values.to_vec()).unwrap());
        let goal = Goal::AtLeast(0.95);
        assert_eq!(met(goal, &[0.96, 0.90, 0.95]), Met::Yes);
        assert_eq!(met(goal, &[0.96, 0.90, 0.94]), Met::Barely);
        assert_eq!(met(goal, &[0.94, 0.90, 0.93]), Met::No);
        let goal = Goal::AtMost(1.15);
        assert_eq!(met(goal, &[1.10, 1.20, 1.30]), Met::Barely);
    }
}
