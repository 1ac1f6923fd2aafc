//! What was measured in guests (`cargo xtask vm-bench`), beside the originals.

use super::{Original, close, virtiofs};
use crate::results::published::{Pair, Published, Unit};
use crate::results::statistics::Middle;
use crate::results::{GuestRow, GuestRun};

/// What the runs have for the comparisons that take place in a guest, each beside its original. What several
/// of them have measured counts as the last has found it.
pub(super) fn beside(runs: &[GuestRun]) -> Vec<Published> {
    let mut found = Vec::new();
    let is_published = |run: &GuestRun| {
        let mut lines = virtiofs::ORIGINAL.lines.iter();
        lines.any(|told| run.rows.iter().any(|row| row.name == told.row))
    };
    found.extend(beside_virtiofs(&those(runs, is_published)));
    let has_kernels = |run: &GuestRun| run.rows.iter().any(|row| row.kernel().is_some());
    found.extend(beside_close(&those(runs, has_kernels)));
    found
}

fn those(runs: &[GuestRun], wanted: impl Fn(&GuestRun) -> bool) -> Vec<&GuestRun> {
    runs.iter().filter(|run| wanted(run)).collect()
}

fn row<'a>(runs: &[&'a GuestRun], name: &str) -> Option<&'a GuestRow> {
    let mut rows = runs.iter().rev().flat_map(|run| &run.rows);
    rows.find(|row| row.name == name)
}

fn beside_virtiofs(runs: &[&GuestRun]) -> Option<Published> {
    let original: &Original = &virtiofs::ORIGINAL;
    if runs.is_empty() {
        return None;
    }
    let mut published = original.alone();
    for (line, told) in published.lines.iter_mut().zip(original.lines) {
        let Some(row) = row(runs, told.row) else {
            continue;
        };
        let here = original.columns.iter().map(|column| row.of(column.here));
        let here: Vec<Option<&[f64]>> = here.collect();
        for (pair, values) in line.pairs.iter_mut().zip(&here) {
            fill(pair, *values, here[0], told.unit);
        }
    }
    published.missing = settings(runs);
    Some(published)
}

/// Opening and closing, by kernel: the older one is from before the change.
fn beside_close(runs: &[&GuestRun]) -> Option<Published> {
    let (before, after) = kernels(runs.iter().copied())?;
    let mut published = close::ORIGINAL.alone();
    published.name.push_str("-guest");
    published.title.push_str(", in a guest");
    published.differences = vec![
        format!(
            "Guests under QEMU without KVM: Linux {}.{} stands for the columns before the change, {}.{} (with rseq) \
             for the one after it. Other things than the change lie between the two.",
            before.0, before.1, after.0, after.1
        ),
        "On a tmpfs of the guest; a share's figures stand in the run's own table.".to_owned(),
        "Without rseq means GLIBC_TUNABLES=glibc.pthread.rseq=0 for the process that measures."
            .to_owned(),
        "The loop is of our own, in the manner of open1.".to_owned(),
    ];
    for line in &mut published.lines {
        let values = |(major, minor): (u32, u32), word: &str| {
            let name = format!("linux-{major}.{minor}-{word}-{}", line.jobs);
            row(runs, &name)?.of("tmpfs")
        };
        let here = [
            values(before, "rseq"),
            values(before, "no-rseq"),
            values(after, "rseq"),
        ];
        for (pair, values) in line.pairs.iter_mut().zip(here) {
            fill(pair, values, here[0], line.unit);
        }
    }
    let linux = |(major, minor): (u32, u32)| Some(format!("Linux {major}.{minor}"));
    for (column, kernel) in published.columns.iter_mut().zip([before, before, after]) {
        column.here = linux(kernel);
    }
    published.missing = settings(runs);
    Some(published)
}

/// The oldest and the newest kernel in which files were opened and closed; none where there are no two.
pub(crate) fn kernels<'a>(
    runs: impl Iterator<Item = &'a GuestRun>,
) -> Option<((u32, u32), (u32, u32))> {
    let rows = runs.flat_map(|run| &run.rows);
    let mut kernels: Vec<(u32, u32)> = rows.filter_map(GuestRow::kernel).collect();
    kernels.sort_unstable();
    let (before, after) = (*kernels.first()?, *kernels.last()?);
    (before != after).then_some((before, after))
}

/// What the guests were, each sentence once.
fn settings(runs: &[&GuestRun]) -> Vec<String> {
    let mut sentences: Vec<String> = Vec::new();
    for sentence in runs.iter().map(|run| setting(run)) {
        if !sentences.contains(&sentence) {
            sentences.push(sentence);
        }
    }
    sentences
}

/// How it was measured, in a sentence.
#[must_use]
pub(crate) fn setting(run: &GuestRun) -> String {
    let word = |name: &str| run.about.get(name).filter(|word| !word.is_empty());
    let values = run.rows.iter().flat_map(|row| row.values.values());
    let rounds = values.map(Vec::len).max().unwrap_or_default();
    let plural = if rounds == 1 { "" } else { "s" };
    let mut text = format!("Measured in {rounds} round{plural}");
    let mut add = |before: &str, name: &str, behind: &str| {
        if let Some(word) = word(name) {
            text += &format!("{before}{word}{behind}");
        }
    };
    add(" of ", "seconds", " s for each figure");
    add(", with --guest ", "guest", "");
    add(", ", "lower", " beneath");
    add(", cache=", "cache", "");
    add(", more options of ours: ", "with", "");
    add(", on Linux ", "host_kernel", "");
    if let Some(commit) = word("commit") {
        text += &format!(", commit {}", commit.chars().take(12).collect::<String>());
    }
    text + "."
}

fn fill(pair: &mut Pair, values: Option<&[f64]>, base: Option<&[f64]>, unit: Unit) {
    let Some(values) = values else { return };
    pair.here = Middle::of(values.to_vec()).map(|middle| middle.median);
    // The nth of each were measured one after the other.
    let ratios = base.map(|base| {
        let pairs = values.iter().zip(base);
        pairs.map(|(one, other)| unit.ratio(*one, *other)).collect()
    });
    pair.ratio_is(ratios.and_then(Middle::of));
}

#[cfg(test)]
mod tests {
    use super::beside;
    use crate::results::GuestRun;
    use crate::results::published::Published;

    fn joined(texts: &[&str]) -> Vec<Published> {
        let runs = texts.iter().map(|text| GuestRun::parse(text).unwrap());
        beside(&runs.collect::<Vec<_>>())
    }

    #[test]
    fn a_run_in_a_guest_stands_beside_its_original() {
        let text = r#"{"guest": "qemu", "lower": "tmpfs", "cache": "never", "rows": [
            {"row": "randread-psync-1", "unit": "/s", "thrufs": [300.0, 200.0, 260.0],
             "virtiofsd": [150.0, 100.0, 130.0], "9p": [100.0, 100.0, 130.0]},
            {"row": "write-mmap-1", "unit": "/s", "thrufs": [50.0]}]}"#;
        let published = &joined(&[text])[0];
        let line = |what: &str| {
            let mut lines = published.lines.iter();
            lines
                .find(|line| line.what == what && line.jobs == 1)
                .unwrap()
        };
        let random = line("random read, psync");
        assert_eq!(random.pairs[1].original, Some(26200.0));
        assert_eq!(random.pairs[1].here, Some(260.0));
        assert_eq!(random.pairs[1].here_ratio, Some(2.0));
        assert_eq!(random.pairs[1].here_interval, Some([2.0, 3.0]));
        assert_eq!(random.pairs[3].original, Some(165_600.0));
        assert_eq!(random.pairs[3].here, None);
        let mapped = line("write, mmap");
        assert_eq!(
            (mapped.pairs[0].original, mapped.pairs[0].here),
            (None, None)
        );
        assert_eq!(
            (mapped.pairs[1].here, mapped.pairs[1].here_ratio),
            (Some(50.0), None)
        );
        assert!(published.missing[0].contains("3 rounds, with --guest qemu"));
        assert_eq!(published.columns[3].absent, "not served");
    }

    #[test]
    fn several_runs_make_one_table_and_the_last_of_them_counts() {
        let run = |row: &str, value: &str, cache: &str| {
            format!(
                r#"{{"guest": "qemu", "lower": "tmpfs", "cache": "{cache}", "rows": [
                {{"row": "{row}", "unit": "/s", "thrufs": [{value}]}}]}}"#
            )
        };
        let texts = [
            run("read-psync-1", "1.0", "never"),
            run("write-psync-1", "2.0", "never"),
            run("read-psync-1", "3.0", "auto"),
        ];
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let published = &joined(&texts);
        assert_eq!(published.len(), 1);
        let here = |what: &str| {
            let mut lines = published[0].lines.iter();
            let line = lines.find(|line| line.what == what && line.jobs == 1);
            line.unwrap().pairs[1].here
        };
        assert_eq!(here("read, psync"), Some(3.0));
        assert_eq!(here("write, psync"), Some(2.0));
        // One sentence for the two that were alike.
        assert_eq!(published[0].missing.len(), 2, "{:?}", published[0].missing);
    }

    #[test]
    fn kernels_from_before_and_after_stand_in_their_columns() {
        let text = r#"{"guest": "qemu", "lower": "tmpfs", "rows": [
            {"row": "linux-6.12-rseq-1", "unit": "/s", "tmpfs": [30.0], "thrufs": [1.0]},
            {"row": "linux-6.1-no-rseq-1", "unit": "/s", "tmpfs": [22.0]},
            {"row": "linux-6.1-rseq-1", "unit": "/s", "tmpfs": [20.0]}]}"#;
        let published = joined(&[text]);
        assert_eq!(published.len(), 1);
        let here: Vec<_> = published[0].lines[0]
            .pairs
            .iter()
            .map(|pair| pair.here)
            .collect();
        assert_eq!(here, [Some(20.0), Some(22.0), Some(30.0)]);
        assert_eq!(published[0].lines[0].pairs[2].here_ratio, Some(1.5));
        let columns = published[0].columns.iter();
        let columns: Vec<_> = columns.map(|column| column.here.as_deref()).collect();
        assert_eq!(columns[1..], [Some("Linux 6.1"), Some("Linux 6.12")]);
        assert_eq!(published[0].name, "close-guest");
    }

    #[test]
    fn other_runs_have_nothing() {
        let uml = r#"{"rows": [{"row": "stat", "unit": "/s", "thrufs": [1.0]}]}"#;
        assert!(joined(&[uml]).is_empty());
        assert!(joined(&[]).is_empty());
    }
}
