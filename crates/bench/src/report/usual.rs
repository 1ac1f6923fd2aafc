//! The usual table: ratios to native, then ours against each peer.

use super::{Line, Rows, corner};
use crate::row::Row;

pub(super) fn line(lower: &str, jobs: usize, row: &Row, rows: &Rows<'_>) -> Option<Line> {
    let native = rows.named("native")?;
    let mut line = Line::default();
    line.add(corner(lower, jobs), row.name);
    line.add("native", native.rate());
    for series in rows.0.iter().filter(|series| series.contestant != "native") {
        line.add(series.contestant, series.ratio_to(native));
    }
    // Round by round.
    if let Some(ours) = rows.named("thrufs") {
        for peer in rows.starting("libfuse") {
            line.add(format!("thrufs / {}", peer.contestant), ours.against(peer));
        }
    }
    Some(line)
}
