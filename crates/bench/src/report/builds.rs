//! The table of builds: wall time, over native's.

use super::{Line, Rows, corner};
use crate::row::Row;

/// What a reader has to know before the table.
pub(super) const LEGEND: &str = "\
build-c: the C library musl, configure and make. build-cargo: this project, cargo build. As many \
jobs as processors. thrufs-dev, thrufs-uring: thrufs mount with nothing said but the transport.
Figures are wall time, over native's: median [least to greatest] of the pairs; the goal is 1.05 at \
most, what is more is marked **over**.
";

/// The project's goal.
const TIMES_NATIVE_MAX: f64 = 1.05;

pub(super) fn line(lower: &str, row: &Row, rows: &Rows<'_>) -> Option<Line> {
    let native = rows.named("native")?;
    let mut line = Line::default();
    line.add(corner(lower, 1), row.name);
    line.add("native", native.seconds());
    for series in rows.0.iter().filter(|series| series.contestant != "native") {
        let cell = match series.times_of(native) {
            Some(times) if times.median > TIMES_NATIVE_MAX => format!("{} **over**", times.text()),
            Some(times) => times.text(),
            None => series.seconds(),
        };
        line.add(series.contestant, cell);
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::{Rows, line};
    use crate::figures::{Sample, Series};
    use crate::row;

    #[test]
    fn more_time_than_the_goal_is_marked() {
        let series = |contestant, seconds: u64| Series {
            lower: "tmpfs",
            jobs: 1,
            row: row::named("build-c").unwrap(),
            contestant,
            samples: vec![
                Sample {
                    operations: 1,
                    nanoseconds: seconds * 1_000_000_000,
                };
                5
            ],
            not_there: None,
            failed: None,
        };
        let all = [
            series("native", 100),
            series("thrufs-dev", 105),
            series("thrufs-uring", 106),
        ];
        let line = line("tmpfs", all[0].row, &Rows(all.iter().collect())).unwrap();
        assert_eq!(
            line.cells[1..],
            [
                "100.0 s",
                "1.050 [1.050 to 1.050]",
                "1.060 [1.060 to 1.060] **over**"
            ]
        );
    }
}
