//! Tables and raw figures.

use super::arguments::{Bench, Target};
use super::sample::{Sample, Series};
use crate::tool::Connection;
use std::io::{self, Write};

/// Operations of at least so many bytes are reported in bytes per second.
const BYTES_SHOWN_FROM: u64 = 64 << 10;

/// Median, minimum and maximum.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Middle {
    median: f64,
    least: f64,
    greatest: f64,
}

fn middle(mut values: Vec<f64>) -> Middle {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    let median = match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[half],
        _ => f64::midpoint(values[half - 1], values[half]),
    };
    Middle {
        median,
        least: values.first().copied().unwrap_or(f64::NAN),
        greatest: values.last().copied().unwrap_or(f64::NAN),
    }
}

fn rate_of(samples: &[Sample]) -> Middle {
    middle(samples.iter().map(|sample| sample.per_second()).collect())
}

/// The ratio to the rate of `base`, round by round.
fn ratio_of(samples: &[Sample], base: &[Sample]) -> Middle {
    let pairs = samples.iter().zip(base);
    middle(
        pairs
            .map(|(one, base)| one.per_second() / base.per_second())
            .collect(),
    )
}

fn rate_text(rate: Middle, bytes: u64) -> String {
    let spread = (rate.greatest - rate.least) / rate.median * 100.0;
    if bytes >= BYTES_SHOWN_FROM {
        let megabytes = rate.median * bytes as f64 / 1e6;
        format!("{megabytes:.0} MB/s ±{:.0}%", spread / 2.0)
    } else {
        format!("{:.1} k/s ±{:.0}%", rate.median / 1e3, spread / 2.0)
    }
}

fn ratio_text(ratio: Middle) -> String {
    format!(
        "{:.2} ({:.2} to {:.2})",
        ratio.median, ratio.least, ratio.greatest
    )
}

/// The rates of each target, and the ratio of the first to each other.
pub(crate) fn table(
    targets: &[Target],
    series: &[Series],
    bench: &Bench,
    out: &mut dyn Write,
) -> io::Result<()> {
    let first = &targets[0].name;
    let mut lines = vec![vec!["row".to_owned()]];
    lines[0].extend(targets.iter().map(|one| one.name.clone()));
    lines[0].extend(
        targets[1..]
            .iter()
            .map(|other| format!("{first} / {}", other.name)),
    );
    for of_row in series.chunks(targets.len()) {
        let row = of_row[0].row;
        let mut line = vec![row.name.to_owned()];
        let rates = of_row.iter().map(|one| rate_of(&one.samples));
        line.extend(rates.map(|rate| rate_text(rate, row.bytes())));
        let others = of_row[1..].iter();
        line.extend(others.map(|other| ratio_text(ratio_of(&of_row[0].samples, &other.samples))));
        lines.push(line);
    }
    let width = |column: usize| {
        let cells = lines.iter().map(|line| line[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
    for (number, line) in lines.iter().enumerate() {
        let cells: Vec<String> = line
            .iter()
            .zip(&widths)
            .map(|(cell, &width)| format!("{cell:<width$}"))
            .collect();
        writeln!(out, "| {} |", cells.join(" | "))?;
        if number == 0 {
            let rules: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
            writeln!(out, "| {} |", rules.join(" | "))?;
        }
    }
    writeln!(
        out,
        "\n{} rounds, interleaved, {} ms each; median, half the spread; ratios: median of the rounds, least and greatest.",
        bench.rounds,
        bench.sample.as_millis()
    )
}

pub(crate) fn json(
    targets: &[Target],
    series: &[Series],
    bench: &Bench,
    connection: &Connection,
) -> String {
    let series: Vec<_> = series
        .iter()
        .map(|one| {
            let samples: Vec<[u64; 2]> = one
                .samples
                .iter()
                .map(|sample| [sample.operations, sample.nanoseconds])
                .collect();
            serde_json::json!({
                "row": one.row.name,
                "depth": one.row.depth,
                "bytes": one.row.bytes(),
                "contestant": targets[one.target].name,
                "operations_and_nanoseconds": samples,
            })
        })
        .collect();
    let whole = serde_json::json!({
        "rounds": bench.rounds,
        "sample_ms": bench.sample.as_millis() as u64,
        "file_bytes": bench.file_bytes,
        "entries": bench.entries,
        "request_queues_max": connection.request_queues,
        "queue_size": connection.queue_size,
        "indirect": connection.indirect,
        "contestants": targets.iter().map(|one| &one.name).collect::<Vec<_>>(),
        "series": series,
    });
    format!("{whole:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(rates: &[u64]) -> Vec<Sample> {
        rates
            .iter()
            .map(|&operations| Sample {
                operations,
                nanoseconds: 1_000_000_000,
            })
            .collect()
    }

    #[test]
    fn medians_and_ratios() {
        let (ours, theirs) = (samples(&[20, 40, 30]), samples(&[10, 10, 30]));
        assert_eq!(rate_of(&ours).median, 30.0);
        let ratio = ratio_of(&ours, &theirs);
        assert_eq!((ratio.least, ratio.median, ratio.greatest), (1.0, 2.0, 4.0));
        assert_eq!(middle(vec![1.0, 2.0]).median, 1.5);
    }

    #[test]
    fn large_transfers_are_reported_in_bytes() {
        let rate = rate_of(&samples(&[1000, 1000, 1000]));
        assert_eq!(rate_text(rate, 1 << 20), "1049 MB/s ±0%");
        assert_eq!(rate_text(rate, 4096), "1.0 k/s ±0%");
    }
}
