//! The table for the terminal.

use super::figure;
use super::grid::{grid, wrapped};
use super::table::{self, Entry, Line, is_unsure, lines};
use crate::results::statistics::{Middle, rate};
use crate::results::{Cell, Ending, Results, Target};

/// In place of a figure that there cannot be.
const NONE: &str = "–";
const LEGEND: &str = "* the best mount, or not separable from it; ? too noisy, or too few rounds, to tell whether it is \
    faster or slower; – not measured; absent, failed: see below";

/// All that a run has found, in lines of that width.
pub(crate) fn terminal(results: &Results, width: usize) -> String {
    let lines = lines(results);
    let machine = &results.machine;
    let ending = match results.ending {
        Ending::Complete => "",
        Ending::Interrupted => ", stopped before its end",
    };
    let mut text = wrapped(
        &format!(
            "thrufs bench{ending}: {}, Linux {}, {} × {}, {} GiB. {}",
            figure::moment(results.started, figure::MOMENT),
            machine.kernel,
            machine.processors,
            machine.processor,
            machine.memory_bytes >> 30,
            method(&lines)
        ),
        "",
        "",
        width,
    );
    text += &format!("\n{}", ratios(results, &lines, width));
    text += &wrapped(LEGEND, "", "  ", width);
    for (title, sentences) in [
        ("Targets", key(results)),
        ("Remarks", results.remarks.clone()),
        ("Advice", advice(&lines).into_iter().collect()),
        ("Not there", absences(results)),
    ] {
        if !sentences.is_empty() {
            text += &format!("\n{title}\n");
        }
        for sentence in sentences {
            text += &wrapped(&sentence, "- ", "  ", width);
        }
    }
    text
}

/// How the figures are to be read.
fn method(lines: &[Line<'_>]) -> String {
    let ratios = lines
        .iter()
        .flat_map(|line| line.entries.iter().filter_map(|entry| entry.ratio));
    let Some(most) = ratios.max_by_key(|ratio| ratio.count) else {
        return "Nothing was compared.".to_owned();
    };
    let (rounds, sure) = match most.count {
        1 => (
            "One round".to_owned(),
            "which tells no two apart".to_owned(),
        ),
        count => (
            format!("{count} interleaved rounds"),
            format!(
                "the median, ± half the interval in which the true one lies with a chance of {:.0} %",
                most.confidence * 100.0
            ),
        ),
    };
    format!(
        "{rounds}. The column native is the directory's own rate; every other figure is a share of it, of the \
         same round (1 is as fast, 0.5 takes twice as long): {sure}."
    )
}

fn ratios(results: &Results, lines: &[Line<'_>], width: usize) -> String {
    let there = there(results);
    let mut rows = vec![vec![format!("on {}", results.lower())]];
    rows[0].extend(there.map(|target| target.name.clone()));
    let mut group = None;
    for line in lines {
        if group != Some(line.row.group) {
            group = Some(line.row.group);
            rows.push(vec![line.row.group.to_owned()]);
        }
        let native = match line.native.and_then(rate) {
            Some(rate) => figure::rate(line.row, rate.median),
            None => line.native.map_or(NONE, absent).to_owned(),
        };
        let mut cells = vec![format!("  {}", line.label()), native];
        cells.extend(rows[0][2..].iter().map(|name| ratio(line.entry(name))));
        rows.push(cells);
    }
    grid(&rows, width)
}

fn ratio(entry: Option<&Entry<'_>>) -> String {
    let Some(entry) = entry else {
        return NONE.to_owned();
    };
    let Some(ratio) = &entry.ratio else {
        return absent(entry.cell).to_owned();
    };
    let best = if entry.best { "*" } else { "" };
    let mark = if is_unsure(ratio) { "?" } else { "" };
    format!("{best}{mark}{}", with_bar(ratio))
}

/// `0.94 ±3 %`; or `0.32 [0.04 to 14]`, where half the interval is more than the figure.
pub(super) fn with_bar(ratio: &Middle) -> String {
    let times = figure::times;
    let median = times(ratio.median);
    match ratio.spread() {
        _ if ratio.count == 1 => median,
        ..=1.0 => format!("{median} ±{:.0} %", ratio.spread() * 100.0),
        _ => format!(
            "{median} [{} to {}]",
            times(ratio.least),
            times(ratio.greatest)
        ),
    }
}

fn absent(cell: &Cell) -> &'static str {
    match &cell.absence {
        Some(absence) if absence.failed => "failed",
        Some(_) => "absent",
        None => NONE,
    }
}

/// Where mounts with `opens=local`, which is not the default, are ahead of all others, as far as the rounds tell.
fn advice(lines: &[Line<'_>]) -> Option<String> {
    let is_won = |line: &&Line<'_>| {
        let mut best = line.entries.iter().filter(|entry| entry.best).peekable();
        best.peek().is_some() && best.all(|entry| entry.target.options.contains("opens=local"))
    };
    let won: Vec<_> = lines.iter().filter(is_won).map(Line::label).collect();
    let cost = "it takes passthrough and shared locks away (docs/mounting.md)";
    (!won.is_empty()).then(|| format!("opens=local is ahead in {}; {cost}", won.join(", ")))
}

/// What the names of targets mean.
fn key(results: &Results) -> Vec<String> {
    let key = |target: &Target| format!("{}: {}", target.name, target.options);
    there(results).map(key).collect()
}

/// The targets that take part.
fn there(results: &Results) -> impl Iterator<Item = &Target> {
    let targets = results.targets.iter();
    targets.filter(|target| target.absent.is_none())
}

/// Why targets are not there: each reason once, after the names of those that have it.
pub(crate) fn absent_targets(results: &Results) -> Vec<String> {
    let mut reasons: Vec<(Vec<&str>, &str)> = Vec::new();
    let all = results.targets.iter();
    for (name, why) in all.filter_map(|one| Some((&*one.name, one.absent.as_deref()?))) {
        match reasons.iter_mut().find(|(_, other)| *other == why) {
            Some((names, _)) => names.push(name),
            None => reasons.push((vec![name], why)),
        }
    }
    let text = |(names, why): (Vec<&str>, &str)| format!("{}: {why}", names.join(", "));
    reasons.into_iter().map(text).collect()
}

/// Why what is not there is not there: targets first, then cells.
fn absences(results: &Results) -> Vec<String> {
    let mut all = absent_targets(results);
    all.extend(results.cells.iter().filter_map(|cell| {
        let absence = cell.absence.as_ref()?;
        let failed = if absence.failed { "failed: " } else { "" };
        let row = table::label(&cell.row, cell.jobs);
        Some(format!("{row} on {}: {failed}{}", cell.target, absence.why))
    }));
    all
}

#[cfg(test)]
mod tests {
    use super::terminal;
    use crate::report::sample::{run, usual};

    #[test]
    fn opens_by_the_kernel_are_advised_where_they_won() {
        let told = |opens: &[u64]| {
            let (native, ring) = (&[1000; 5][..], &[2000; 5][..]);
            let cells = [("native", native), ("ring", ring), ("opens", opens)];
            let mut results = run(&cells.map(|(name, times)| ("open-close", name, times)));
            results.targets[2].options = "thrufs mount -o opens=local".to_owned();
            terminal(&results, 200)
        };
        assert!(told(&[1200; 5]).contains("ahead in open-close;"));
        for other in [&[2000; 5][..], &[3000; 5], &[1200; 2]] {
            assert!(!told(other).contains("Advice"), "{other:?}");
        }
    }

    #[test]
    fn figures_stand_where_they_belong() {
        let text = terminal(&usual(), 200);
        let line = |start: &str| -> Vec<&str> {
            let mut lines = text.lines().map(str::trim_start);
            let line = lines.find(|line| line.starts_with(start)).unwrap();
            let cells = line.split("  ").map(str::trim);
            cells.filter(|cell| !cell.is_empty()).collect()
        };
        assert_eq!(line("on ext4"), ["on ext4", "native", "dev", "ring", "old"]);
        let read = [
            "random-read-4k-loop",
            "4.10 GB/s",
            "0.10 ±0 %",
            "*0.50 ±0 %",
            "0.25 ±0 %",
        ];
        assert_eq!(line("random-read-4k-loop"), read);
        assert_eq!(line("create × 2")[1], "500 k/s");
        assert_eq!(line("create ")[4], "failed");
        for part in [
            "create on old: failed: no space",
            "ring+pt: not for users",
            "a remark",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        for width in [60, 80, 132] {
            let text = terminal(&usual(), width);
            assert!(
                text.lines().all(|line| line.chars().count() <= width),
                "{text}"
            );
        }
    }
}
