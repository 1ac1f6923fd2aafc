//! The report, made from results alone.

use crate::Outcome;
use crate::results::Results;
use crate::results::statistics::{rate, ratio};
use std::fmt::Write;

/// The files of a report: names and texts.
pub(crate) fn files(results: &Results) -> Outcome<Vec<(&'static str, String)>> {
    let json = serde_json::to_string_pretty(results).map_err(|error| error.to_string())?;
    Ok(vec![
        ("results.json", json + "\n"),
        ("report.txt", terminal(results, 100)),
    ])
}

/// A table that fits a terminal.
pub(crate) fn terminal(results: &Results, _width: usize) -> String {
    let mut text = String::new();
    for row in &results.rows {
        for cell in results.cells.iter().filter(|cell| cell.row == row.name) {
            let native = results.cell(&cell.row, "native", &cell.lower, cell.jobs);
            let ratio = native.and_then(|native| ratio(cell, native));
            let shown = match (ratio, rate(cell), &cell.absence) {
                (_, Some(rate), _) if cell.contestant == "native" => {
                    format!("{:.0}/s", rate.median)
                }
                (Some(ratio), _, _) => format!(
                    "{:.3} [{:.3} to {:.3}] n={}",
                    ratio.median, ratio.least, ratio.greatest, ratio.count
                ),
                (_, _, Some(absence)) => absence.why.clone(),
                _ => "-".to_owned(),
            };
            let (row, lower, jobs, who) = (&cell.row, &cell.lower, cell.jobs, &cell.contestant);
            let _ = writeln!(text, "{row:24} {lower:6} {jobs} {who:14} {shown}");
        }
    }
    for remark in &results.remarks {
        let _ = writeln!(text, "- {remark}");
    }
    text
}
