use super::{MEASURED, asks, beside, html, rows, terminal, virtiofs};
use crate::results::published::Unit;
use crate::results::{Absence, Cell, Ending, FORMAT, Group, Machine, Results, Row, Sample};

fn row(name: &str, operation_bytes: u64) -> Row {
    Row {
        name: name.to_owned(),
        title: name.to_owned(),
        about: String::new(),
        group: Group::Data,
        operation_bytes,
        in_seconds: false,
        cold: false,
        engine: "loop".to_owned(),
        goal: None,
    }
}

/// A cell with these operations in the milliseconds of each round.
fn cell(row: &str, contestant: &str, lower: &str, jobs: u32, rounds: &[(u64, u64)]) -> Cell {
    let samples = rounds
        .iter()
        .zip(0..)
        .map(|((operations, milliseconds), round)| Sample {
            round,
            operations: *operations,
            nanoseconds: milliseconds * 1_000_000,
        });
    Cell {
        row: row.to_owned(),
        contestant: contestant.to_owned(),
        lower: lower.to_owned(),
        jobs,
        samples: samples.collect(),
        absence: None,
        counts: None,
        latency: None,
    }
}

fn results(cells: Vec<Cell>) -> Results {
    Results {
        format: FORMAT,
        suite: super::SUITE.to_owned(),
        command: Vec::new(),
        started: 0,
        seconds: 1.0,
        ending: Ending::Complete,
        machine: Machine::default(),
        contestants: Vec::new(),
        rows: vec![row("read-4k", 4096), row("build-c", 0)],
        cells,
        remarks: Vec::new(),
        guests: Vec::new(),
    }
}

#[test]
fn what_was_found_stands_beside_what_was_published() {
    let mut failed = cell("build-c", "dev", "tmpfs", 1, &[]);
    failed.absence = Some(Absence {
        failed: true,
        why: "no compiler".to_owned(),
    });
    let results = results(vec![
        cell("read-4k", "native", "ext4", 1, &[(1, 1)]),
        // 1000 MiB in a second, then half of it.
        cell(
            "read-4k",
            "native",
            "tmpfs",
            1,
            &[(256_000, 1000), (256_000, 2000)],
        ),
        cell(
            "read-4k",
            "dev",
            "tmpfs",
            1,
            &[(64_000, 1000), (64_000, 2000)],
        ),
        cell("read-4k", "dev", "tmpfs", 2, &[(1, 1)]),
        cell("build-c", "native", "tmpfs", 1, &[(1, 10_000)]),
        cell("build-c", "dev+pt", "tmpfs", 1, &[(1, 12_500)]),
        failed,
    ]);
    let passthrough = &beside(&results)[0];
    let read = &passthrough.lines[0];
    assert_eq!(read.unit, Unit::MibPerSecond);
    assert_eq!(read.pairs[0].here, Some(750.0));
    assert_eq!(
        (read.pairs[1].here, read.pairs[1].here_ratio),
        (Some(187.5), Some(0.25))
    );
    assert_eq!(read.pairs[1].original, Some(471.0));
    assert!((read.pairs[1].original_ratio.unwrap() - 471.0 / 1839.0).abs() < 1e-9);
    assert_eq!(read.pairs[2].here, None);
    // Less time is faster.
    let build = &passthrough.lines[4];
    assert_eq!(build.pairs[2].here, Some(12.5));
    assert!((build.pairs[2].here_ratio.unwrap() - 0.8).abs() < 1e-9);
    assert!(build.pairs[2].original_ratio.unwrap() < 1.0);
    let missing = passthrough.missing.join(" ");
    assert!(
        missing.contains("no compiler") && missing.contains("By 1 at once"),
        "{missing}"
    );
}

#[test]
fn every_figure_has_a_column_and_every_comparison_a_source() {
    for original in MEASURED.into_iter().chain([&virtiofs::ORIGINAL]) {
        assert!(!original.sources.is_empty() && !original.differences.is_empty());
        for line in original.lines {
            assert_eq!(line.values.len(), original.columns.len(), "{}", line.what);
            let mut figures = line.values.iter().filter(|value| !value.is_nan());
            assert!(figures.all(|value| *value > 0.0), "{}", line.what);
        }
    }
    // Spot checks against the messages.
    let line = |row: &str, jobs| {
        let lines = super::ring::ORIGINAL.lines.iter();
        let mut lines = lines.filter(move |line| line.row == row && line.jobs == jobs);
        lines.next().unwrap().values
    };
    assert_eq!(line("direct-read-1m", 16), [8520.0, 27864.0]);
    assert_eq!(line("create", 20), [80284.0, 119_502.0]);
}

#[test]
fn the_suite_is_asked_for_what_is_compared_and_no_more() {
    let rows = rows();
    for row in [
        "read-4k",
        "create",
        "open-close",
        "open-close-no-rseq",
        "build-c",
    ] {
        assert!(rows.iter().any(|name| name == row), "{row}");
    }
    assert!(asks("read-4k", "native", 1) && asks("read-4k", "dev+pt", 1));
    assert!(!asks("read-4k", "v2", 1) && !asks("read-4k", "native", 2));
    // What all reports compare with.
    assert!(asks("create", "ring", 8) && asks("create", "native", 8));
    assert!(asks("open-close-no-rseq", "native", 2) && asks("open-close", "ring+pt", 2));
    assert!(asks("aio64-buffered-random-write-4k-xattr", "no-v2", 1));
    assert!(!asks("no-such-row", "native", 1));
}

#[test]
fn reports_show_both_and_hold_nothing_that_is_not_escaped() {
    let results = results(vec![cell(
        "read-4k",
        "native",
        "tmpfs",
        1,
        &[(256_000, 1000)],
    )]);
    let published = beside(&results);
    let text = terminal(&published);
    assert!(
        text.contains("Alessio Balsini") && text.contains("1839"),
        "{text}"
    );
    assert!(text.contains("  here      1000"), "{text}");
    let too_long = text.lines().find(|line| line.chars().count() > 80);
    assert!(
        too_long.is_none_or(|line| line.contains("http") || line.contains('@')),
        "{too_long:?}"
    );
    let page = html(&published);
    assert!(page.contains("&lt;20210118192748.584213-1-balsini@android.com&gt;"));
    assert_eq!(page.matches("<div").count(), page.matches("</div>").count());
    assert!(page.contains("<code>dev+pt</code>"));
    assert_eq!(page.matches("<td>").count(), page.matches("</td>").count());
}
