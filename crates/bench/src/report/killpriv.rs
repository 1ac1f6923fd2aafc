//! The table of KILLPRIV_V2 against doing without: rates as others publish them, and ratios.

use super::{Line, Rows, corner};
use crate::figures::NOT_COMPARED;
use crate::row::Row;
use crate::server;

/// What a reader has to know before the table.
pub(super) const LEGEND: &str = "\
v2: with KILLPRIV_V2; no-v2: without; +pt: the kernel uses the files beneath by itself. Our library in \
a server of the benchmark's own, over /dev/fuse, extended attributes on. Rates are medians; the ratios \
are medians of the rounds'.
";

pub(super) fn line(lower: &str, row: &Row, rows: &Rows<'_>) -> Option<Line> {
    let mut line = Line::default();
    line.add(corner(lower, 1), row.name);
    for series in &rows.0 {
        line.add(series.contestant, series.rate());
    }
    for (heading, with, without) in [
        ("v2 / no-v2", server::KILLPRIV, server::NO_KILLPRIV),
        (
            "v2+pt / no-v2+pt",
            server::KILLPRIV_THROUGH,
            server::NO_KILLPRIV_THROUGH,
        ),
    ] {
        let sides = rows.named(with).zip(rows.named(without));
        line.add(
            heading,
            sides.map_or(NOT_COMPARED.to_owned(), |(with, without)| {
                with.against(without)
            }),
        );
    }
    Some(line)
}
