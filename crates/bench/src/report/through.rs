//! The table of a comparison of passthrough: ratios to native, held against the row's goal, and
//! against libfuse's passthrough.

use super::{Line, Rows, corner};
use crate::figures::{NOT_COMPARED, Series};
use crate::row::Row;

/// What a reader has to know before the table.
pub(super) const LEGEND: &str = "\
+pt: the kernel uses the files beneath by itself; thrufs-dev: nopassthrough. goal: the least share of native's rate; what is \
below it, in the median, is marked **under**.
dev+pt / libfuse+pt, uring+pt / libfuse+pt: medians of the rounds' ratios.
fio rows: buffered ones with the data in the cache beneath and not in that above; contestants that \
cache above read each file once, the others several times over.
";

/// Those of ours that have goals to reach.
const OURS: [(&str, &str); 2] = [
    ("thrufs-dev+pt", "dev+pt / libfuse+pt"),
    ("thrufs-uring+pt", "uring+pt / libfuse+pt"),
];

pub(super) fn line(lower: &str, jobs: usize, row: &Row, rows: &Rows<'_>) -> Option<Line> {
    let native = rows.named("native")?;
    let mut line = Line::default();
    line.add(corner(lower, jobs), row.name);
    line.add("native", native.rate());
    let goal = row.goal.map(|goal| format!("{goal:.2}"));
    line.add("goal", goal.unwrap_or(NOT_COMPARED.to_owned()));
    for series in rows.0.iter().filter(|series| series.contestant != "native") {
        let verdict = verdict(series, native);
        line.add(
            series.contestant,
            format!("{}{verdict}", series.ratio_to(native)),
        );
    }
    for (ours, heading) in OURS {
        let sides = rows.named(ours).zip(rows.named("libfuse+pt"));
        line.add(
            heading,
            sides.map_or(NOT_COMPARED.to_owned(), |(ours, peer)| ours.against(peer)),
        );
    }
    Some(line)
}

fn verdict(series: &Series, native: &Series) -> &'static str {
    let has_goal = OURS.iter().any(|(name, _)| *name == series.contestant);
    match (series.row.goal, series.median_ratio_to(native)) {
        (Some(goal), Some(ratio)) if has_goal && ratio < goal => " **under**",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::{Rows, line};
    use crate::figures::{Sample, Series};
    use crate::row;

    fn series(row: &str, name: &'static str, time: u64, failed: bool) -> Series {
        let sample = |nanoseconds| Sample {
            operations: 1,
            nanoseconds,
        };
        Series {
            lower: "tmpfs",
            jobs: 1,
            row: row::named(row).unwrap(),
            contestant: name,
            samples: vec![sample(time); 3],
            not_there: None,
            failed: failed.then(|| "no reason".to_owned()),
        }
    }

    fn cells(row: &str, failed: bool) -> Vec<String> {
        let all = [
            series(row, "native", 920, false),
            series(row, "thrufs-dev+pt", 1000, failed),
            series(row, "thrufs-dev", 2000, false),
            series(row, "libfuse+pt", 1000, false),
        ];
        let rows = Rows(all.iter().collect());
        line("tmpfs", 1, all[0].row, &rows).unwrap().cells[2..].to_vec()
    }

    #[test]
    fn ours_is_held_against_the_goal_of_the_row() {
        let seen = cells("read-4k", false);
        assert_eq!(seen[0], "0.95");
        assert_eq!(seen[1], "0.920 [0.920 to 0.920] **under**");
        // Who hands nothing to the kernel has no goal.
        assert_eq!(seen[2], "0.460 [0.460 to 0.460]");
        assert_eq!(seen[4..], ["1.00", "–"]);
        let seen = cells("aio16-read-4k", false);
        assert_eq!(seen[..2], ["0.90", "0.920 [0.920 to 0.920]"]);
        assert_eq!(cells("open-close", false)[0], "–");
    }

    #[test]
    fn what_failed_once_has_no_figure() {
        let seen = cells("read-4k", true);
        assert_eq!(seen[1], "**failed**");
        assert_eq!(seen[4], "–");
    }
}
