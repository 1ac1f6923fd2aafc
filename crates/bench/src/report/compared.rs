//! One target against another in the same row: the best of ours against each of the others, and ours over the
//! ring against ours over `/dev/fuse`.

use super::table::{RowResult, ratio};
use crate::results::Kind;
use crate::results::statistics::Middle;

/// A comparison.
pub(crate) struct Comparison<'a> {
    /// What stands over all of its kind: `our best / old`, `ring / dev`.
    pub(crate) column: String,
    /// The target with this figure.
    pub(crate) subject: &'a str,
    /// The target that it is compared with.
    pub(crate) other: &'a str,
    /// How many times the other's rate: the median of the rounds' ratios.
    pub(crate) times: Middle,
}

/// All that can be made of a row.
pub(crate) fn comparisons<'a>(line: &RowResult<'a>) -> Vec<Comparison<'a>> {
    let mut all = Vec::new();
    if let Some(ours) = line.best_of(Kind::Ours) {
        let others = line.entries.iter();
        for other in others.filter(|entry| entry.target.kind == Kind::Other) {
            let name = &other.target.name;
            all.extend(ratio(ours.cell, other.cell).map(|times| Comparison {
                column: format!("our best / {name}"),
                subject: &ours.target.name,
                other: name,
                times,
            }));
        }
    }
    for ring in &line.entries {
        let subject = &ring.target.name;
        let dev = subject
            .strip_prefix("ring")
            .and_then(|mode| line.entry(&format!("dev{mode}")));
        if let Some((dev, times)) = dev.and_then(|dev| Some((dev, ratio(ring.cell, dev.cell)?))) {
            let other = &dev.target.name;
            let column = format!("{subject} / {other}");
            all.push(Comparison {
                column,
                subject,
                other,
                times,
            });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::comparisons;
    use crate::report::sample::Builder;
    use crate::report::table::sections;
    use crate::results::Kind;

    #[test]
    fn the_best_of_ours_is_compared_with_each_of_the_others_and_the_ring_with_dev() {
        let all = [
            ("native", Kind::Native, 1_000),
            ("dev", Kind::Ours, 3_000),
            ("ring", Kind::Ours, 2_000),
            ("old", Kind::Other, 4_000),
            ("older", Kind::Other, 1_000),
        ];
        let mut builder = Builder::new().targets(&all.map(|(name, kind, _)| (name, kind)));
        for (name, _, time) in all {
            builder = builder.cell("stat-cold", name, &[time; 3]);
        }
        let results = builder.results();
        let sections = sections(&results);
        let found = comparisons(&sections[0].lines[0]);
        let found: Vec<(&str, &str, f64)> = found
            .iter()
            .map(|one| (one.column.as_str(), one.subject, one.times.median))
            .collect();
        let wanted = [
            ("our best / old", "ring", 2.0),
            ("our best / older", "ring", 0.5),
            ("ring / dev", "ring", 1.5),
        ];
        assert_eq!(found, wanted);
    }
}
