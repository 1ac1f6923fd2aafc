//! What can be said of a run in sentences, as far as its figures carry them.

use super::figure::{duration, each, times};
use super::standing_out::{opcodes, standing_out};
use super::table::{Entry, Line, Section, Verdict, is_sound, sections};
use crate::results::{Ending, Kind, Results};

/// Of the slowest rows, so many are spoken of.
const SLOWEST_MAX: usize = 3;
/// What is faster is not spoken of as slow, though it is slower than native.
const SLOW_MAX: f64 = 0.8;
/// Of a list, so many are named.
const NAMED_MAX: usize = 8;

/// The run in one sentence, for a heading.
pub(crate) fn headline(results: &Results) -> String {
    let sections = sections(results);
    let lines: Vec<&Line<'_>> = sections.iter().flat_map(|section| &section.lines).collect();
    let ours = lines.iter().filter_map(|line| line.best_of(Kind::Ours));
    let verdicts: Vec<Verdict> = ours
        .filter_map(|entry| Some(Verdict::of(&entry.ratio?)))
        .collect();
    if verdicts.is_empty() {
        return format!("{} measured here", names_of_contestants(results));
    }
    let native = count(&verdicts, |verdict| {
        matches!(verdict, Verdict::Faster | Verdict::Alike)
    });
    let (mut ahead, mut behind, mut compared) = (0, 0, 0);
    for line in &lines {
        let sides = line
            .best_of(Kind::Ours)
            .zip(line.best_of(Kind::Other))
            .and_then(|(ours, other)| super::table::ratio(ours.cell, other.cell));
        let Some(ratio) = sides else { continue };
        compared += 1;
        match Verdict::of(&ratio) {
            Verdict::Faster => ahead += 1,
            Verdict::Slower => behind += 1,
            _ => {}
        }
    }
    let noisy = count(&verdicts, |verdict| *verdict == Verdict::TooNoisy);
    let mut at_native = format!("at native speed in {native} of {}", rows(verdicts.len()));
    if noisy > 0 {
        at_native += &format!(" ({noisy} too noisy to tell)");
    }
    let behind = match behind {
        0 => "never behind".to_owned(),
        _ => format!("behind in {behind}"),
    };
    match (native, compared) {
        (_, 0) => format!("Thrufs is {at_native}"),
        (0, _) => {
            let compared = rows(compared);
            format!("Thrufs is ahead of the others in {ahead} of {compared} and {behind}")
        }
        _ => format!(
            "Thrufs is {at_native}, ahead of the others in {ahead} of {compared} and {behind}"
        ),
    }
}

fn names_of_contestants(results: &Results) -> String {
    let names = results
        .contestants
        .iter()
        .map(|contestant| contestant.name.clone());
    list(&names.collect::<Vec<_>>())
}

fn count<T>(all: &[T], is_it: impl Fn(&T) -> bool) -> usize {
    all.iter().filter(|one| is_it(one)).count()
}

/// All that there is to say, a sentence or two each.
pub(crate) fn reading(results: &Results) -> Vec<String> {
    let sections = sections(results);
    let mut said = Vec::new();
    if results.ending == Ending::Interrupted {
        said.push(
            "The run was stopped before its end: what was measured until then stands.".to_owned(),
        );
    }
    for section in &sections {
        let on = |text: String| match (sections.len(), text.split_once(' ')) {
            (2.., _) => format!("On {}, {text}", section.lower),
            (_, Some(("as", rest))) => format!("As {rest}"),
            (_, Some(("too", rest))) => format!("Too {rest}"),
            _ => text,
        };
        let of_section = fastest(section)
            .into_iter()
            .chain(native_speed(section))
            .chain(slowest(section))
            .chain(too_noisy(section))
            .chain(too_few(section));
        said.extend(of_section.map(on));
    }
    let findings = standing_out(results);
    said.extend(
        findings
            .iter()
            .map(|finding| format!("Stands out: {finding}.")),
    );
    said
}

fn fastest(section: &Section<'_>) -> Option<String> {
    let contested = section.lines.iter();
    let contested: Vec<&Line<'_>> = contested
        .filter(|line| line.entries.iter().any(|entry| entry.best))
        .collect();
    let names = super::table::each(contested.iter().flat_map(|line| {
        let best = line.entries.iter().filter(|entry| entry.best);
        best.map(|entry| entry.contestant.name.as_str())
    }));
    let wins = |name: &str| {
        count(&contested, |line| {
            line.entry(name).is_some_and(|entry| entry.best)
        })
    };
    let mut wins: Vec<(&str, usize)> = names.iter().map(|name| (*name, wins(name))).collect();
    wins.sort_by_key(|(_, wins)| std::cmp::Reverse(*wins));
    let (first, others) = wins.split_first()?;
    let others: Vec<String> = others
        .iter()
        .map(|(name, wins)| format!("{name} in {wins}"))
        .collect();
    let others = if others.is_empty() {
        String::new()
    } else {
        format!(", {}", list(&others))
    };
    Some(format!(
        "{} is the fastest of the mounts, or not to be told from it, in {} of {}{others}.",
        first.0,
        first.1,
        rows(contested.len())
    ))
}

/// The best of ours, or of all where none of ours takes part.
fn subject<'a, 'b>(line: &'b Line<'a>) -> Option<&'b Entry<'a>> {
    line.best_of(Kind::Ours)
        .or_else(|| line.best_of(Kind::Other))
        .or_else(|| line.best_of(Kind::Floor))
}

fn native_speed(section: &Section<'_>) -> Option<String> {
    let names = labels(section, |verdict| {
        matches!(verdict, Verdict::Alike | Verdict::Faster)
    });
    (!names.is_empty()).then(|| format!("as fast as without a mount: {}.", list(&names)))
}

fn too_noisy(section: &Section<'_>) -> Option<String> {
    let names = labels(section, |verdict| verdict == Verdict::TooNoisy);
    (!names.is_empty()).then(|| {
        format!(
            "too noisy to tell: {}. More rounds, or a quieter machine, would.",
            list(&names)
        )
    })
}

fn too_few(section: &Section<'_>) -> Option<String> {
    let names = labels(section, |verdict| verdict == Verdict::TooFew);
    (!names.is_empty()).then(|| format!("too few rounds to tell: {}.", list(&names)))
}

/// The rows in which the best of ours has such a verdict.
fn labels(section: &Section<'_>, wanted: impl Fn(Verdict) -> bool) -> Vec<String> {
    let verdict = |line: &&Line<'_>| {
        let ratio = subject(line).and_then(|entry| entry.ratio);
        ratio.is_some_and(|ratio| wanted(Verdict::of(&ratio)))
    };
    section
        .lines
        .iter()
        .filter(verdict)
        .map(Line::label)
        .collect()
}

fn slowest(section: &Section<'_>) -> Vec<String> {
    let entries = section.lines.iter().filter_map(|line| {
        let entry = subject(line)?;
        let ratio = entry.ratio?;
        let slow = Verdict::of(&ratio) == Verdict::Slower && ratio.median < SLOW_MAX;
        slow.then_some((ratio.median, line, entry))
    });
    let mut entries: Vec<(f64, &Line<'_>, &Entry<'_>)> = entries.collect();
    entries.sort_by(|one, other| one.0.total_cmp(&other.0));
    entries
        .iter()
        .take(SLOWEST_MAX)
        .map(|(ratio, line, entry)| {
            let (label, name) = (line.label(), &entry.contestant.name);
            let why = why(line, entry);
            let ratio = times(*ratio);
            format!("{label} is slow: {ratio} of native's rate in the best mode, {name}{why}.")
        })
        .collect()
}

/// What an operation costs more than natively, and what it consists of.
fn why(line: &Line<'_>, entry: &Entry<'_>) -> String {
    let Some(native) = line.native.filter(|native| is_sound(native)) else {
        return String::new();
    };
    let time = |cell| super::table::rate(cell).map(|rate| 1e9 / rate.median);
    let Some((ours, native)) = time(entry.cell).zip(time(native)) else {
        return String::new();
    };
    let more = duration(((ours - native) * f64::from(line.jobs)).max(0.0));
    let mut text = format!(" ({more} more for each operation");
    if let Some(counts) = &entry.cell.counts {
        let mut parts = Vec::new();
        if let Some(requests) = &counts.requests {
            let number = each(requests.values().sum(), counts.operations);
            let names = opcodes(entry.cell);
            parts.push(match (number.as_str(), names.is_empty()) {
                ("0", _) => "no request".to_owned(),
                (_, true) => format!("{number} requests"),
                ("1", false) => format!("1 request: {}", names.join(", ")),
                (_, false) => format!("{number} requests: {}", names.join(", ")),
            });
        }
        if let Some(calls) = counts.system_calls {
            let calls = each(calls, counts.operations);
            parts.push(format!("{calls} system calls of the server"));
        }
        for part in parts {
            text += "; ";
            text += &part;
        }
    }
    text + ")"
}

/// So many rows.
fn rows(count: usize) -> String {
    match count {
        1 => "1 row".to_owned(),
        _ => format!("{count} rows"),
    }
}

/// `a, b and c`, and how many more.
pub(crate) fn list(names: &[String]) -> String {
    let shown = &names[..names.len().min(NAMED_MAX)];
    if shown.len() < names.len() {
        return format!(
            "{} and {} more",
            shown.join(", "),
            names.len() - shown.len()
        );
    }
    match shown {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::{headline, list, reading};
    use crate::report::sample;
    use crate::results::{Ending, Kind};

    #[test]
    fn the_headline_counts_rows() {
        assert_eq!(
            headline(&sample::usual()),
            "Thrufs is at native speed in 2 of 5 rows, ahead of the others in 4 of 4 and never behind"
        );
    }

    #[test]
    fn one_row_is_no_rows() {
        let all = [
            ("native", Kind::Native),
            ("dev", Kind::Ours),
            ("old", Kind::Other),
        ];
        let mut builder = sample::Builder::new().contestants(&all);
        for (name, time) in [("native", 1_000), ("dev", 9_000), ("old", 20_000)] {
            builder = builder.cell("create", name, &[time; 5]);
        }
        assert_eq!(
            headline(&builder.results()),
            "Thrufs is ahead of the others in 1 of 1 row and never behind"
        );
    }

    #[test]
    fn the_reading_says_what_is_fast_and_why_something_is_slow() {
        let mut results = sample::usual();
        results.ending = Ending::Interrupted;
        let text = reading(&results).join("\n");
        for part in [
            "was stopped",
            "As fast as without a mount: random-read-4k and stat-warm.",
            "create × 2 is slow: 0.13 of native's rate in the best mode, ring",
            "3 requests: CREATE, LOOKUP, RELEASE; 4.1 system calls of the server",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("Stands out"), "{text}");
    }

    #[test]
    fn of_several_file_systems_each_is_named() {
        let mut results = sample::usual();
        for mut cell in results.cells.clone() {
            "tmpfs".clone_into(&mut cell.lower);
            results.cells.push(cell);
        }
        let said = reading(&results);
        let text = said.join("\n");
        for part in [
            "On ext4, as fast as without a mount:",
            "On tmpfs, create is slow:",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<String> = (0..12).map(|number| number.to_string()).collect();
        assert_eq!(list(&names[..3]), "0, 1 and 2");
        assert_eq!(list(&names), "0, 1, 2, 3, 4, 5, 6, 7 and 4 more");
    }
}
