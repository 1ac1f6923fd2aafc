//! What was measured in a guest: results of `cargo xtask vm-bench --save`, beside the original.

use super::{Original, close, virtiofs};
use crate::Outcome;
use crate::results::published::{Pair, Published, Unit};
use crate::results::statistics::Middle;
use serde_json::{Map, Value};
use std::path::Path;

/// What the file has for the comparisons that take place in a guest, each beside its original.
///
/// # Errors
///
/// As a text, for a file that cannot be read or is no such file.
pub fn beside_guest(file: &Path) -> Outcome<Vec<Published>> {
    let failed = |why: String| format!("{}: {why}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
    joined(&text).map_err(failed)
}

fn joined(text: &str) -> Outcome<Vec<Published>> {
    let run = Run::read(text)?;
    let mut found = Vec::new();
    let is_published = |row: &Row| {
        let lines = virtiofs::ORIGINAL.lines.iter();
        lines.into_iter().any(|told| told.row == row.name)
    };
    if run.rows.iter().any(is_published) {
        found.push(run.beside(&virtiofs::ORIGINAL));
    }
    found.extend(run.beside_close());
    Ok(found)
}

/// A run in a guest.
struct Run {
    about: Map<String, Value>,
    rows: Vec<Row>,
}

struct Row {
    name: String,
    /// By contestant: one of each round.
    values: Vec<(String, Vec<f64>)>,
}

impl Run {
    fn read(text: &str) -> Outcome<Run> {
        let whole = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let Value::Object(mut about) = whole else {
            return Err("no results of a guest".to_owned());
        };
        let Some(Value::Array(rows)) = about.remove("rows") else {
            return Err("no rows".to_owned());
        };
        let rows = rows.iter().map(Row::read).collect::<Option<_>>();
        let rows = rows.ok_or("rows of another form")?;
        Ok(Run { about, rows })
    }

    fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    fn beside(&self, original: &Original) -> Published {
        let mut published = original.alone();
        for (line, told) in published.lines.iter_mut().zip(original.lines) {
            let Some(row) = self.row(told.row) else {
                continue;
            };
            let here = original.columns.iter().map(|column| row.of(column.here));
            let here: Vec<Option<&[f64]>> = here.collect();
            for (pair, values) in line.pairs.iter_mut().zip(&here) {
                fill(pair, *values, here[0], told.unit);
            }
        }
        published.missing = self.setting().into_iter().collect();
        published
    }

    /// Opening and closing, by kernel: the older one is from before the change.
    fn beside_close(&self) -> Option<Published> {
        let mut kernels: Vec<(u32, u32)> = self.rows.iter().filter_map(Row::kernel).collect();
        kernels.sort_unstable();
        let (before, after) = (*kernels.first()?, *kernels.last()?);
        if before == after {
            return None;
        }
        let mut published = close::ORIGINAL.alone();
        published.title.push_str(", in a guest");
        published.differences = vec![
            format!(
                "Guests under QEMU without KVM: Linux {}.{} stands for the columns before the change, {}.{} (with rseq) \
                 for the one after it.",
                before.0, before.1, after.0, after.1
            ),
            "On a tmpfs of the guest; a share's figures stand in the run's own table.".to_owned(),
        ];
        for line in &mut published.lines {
            let values = |(major, minor): (u32, u32), word: &str| {
                let name = format!("linux-{major}.{minor}-{word}-{}", line.jobs);
                self.row(&name)?.of("tmpfs")
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
        published.columns[2].here = Some(format!("Linux {}.{}", after.0, after.1));
        for column in &mut published.columns[..2] {
            column.here = Some(format!("Linux {}.{}", before.0, before.1));
        }
        published.missing = self.setting().into_iter().collect();
        Some(published)
    }

    /// What the guest was, in a sentence.
    fn setting(&self) -> Option<String> {
        let word = |name: &str| self.about.get(name)?.as_str();
        let (guest, lower) = (word("guest")?, word("lower")?);
        let cache = word("cache").map_or_else(String::new, |cache| format!(", cache={cache}"));
        Some(format!(
            "Measured with --guest {guest}, {lower} beneath{cache}."
        ))
    }
}

impl Row {
    fn read(value: &Value) -> Option<Row> {
        let fields = value.as_object()?;
        let mut row = Row {
            name: fields.get("row")?.as_str()?.to_owned(),
            values: Vec::new(),
        };
        for (name, value) in fields {
            let Value::Array(values) = value else {
                continue;
            };
            let values = values.iter().map(Value::as_f64).collect::<Option<_>>()?;
            row.values.push((name.clone(), values));
        }
        Some(row)
    }

    fn of(&self, contestant: &str) -> Option<&[f64]> {
        let found = self.values.iter().find(|(name, _)| name == contestant);
        found.map(|(_, values)| values.as_slice())
    }

    /// Of a name as `linux-6.1-rseq-2`.
    fn kernel(&self) -> Option<(u32, u32)> {
        let version = self.name.strip_prefix("linux-")?.split('-').next()?;
        let (major, minor) = version.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }
}

fn fill(pair: &mut Pair, values: Option<&[f64]>, base: Option<&[f64]>, unit: Unit) {
    let Some(values) = values else { return };
    pair.here = Middle::of(values.to_vec()).map(|middle| middle.median);
    // The nth of each were measured one after the other.
    let ratios = base.map(|base| {
        let pairs = values.iter().zip(base);
        pairs.map(|(one, other)| unit.ratio(*one, *other)).collect()
    });
    pair.here_ratio = ratios.and_then(Middle::of).map(|middle| middle.median);
}

#[cfg(test)]
mod tests {
    use super::joined;

    #[test]
    fn a_run_in_a_guest_stands_beside_its_original() {
        let text = r#"{"guest": "qemu", "lower": "tmpfs", "cache": "never", "rows": [
            {"row": "randread-psync-1", "unit": "/s", "thrufs": [300.0, 200.0, 260.0],
             "virtiofsd": [150.0, 100.0, 130.0], "9p": [100.0, 100.0, 130.0]},
            {"row": "write-mmap-1", "unit": "/s", "thrufs": [50.0]}]}"#;
        let published = &joined(text).unwrap()[0];
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
        assert!(published.missing[0].contains("--guest qemu"));
    }

    #[test]
    fn kernels_from_before_and_after_stand_in_their_columns() {
        let text = r#"{"guest": "qemu", "lower": "tmpfs", "rows": [
            {"row": "linux-6.12-rseq-1", "unit": "/s", "tmpfs": [30.0], "thrufs": [1.0]},
            {"row": "linux-6.1-no-rseq-1", "unit": "/s", "tmpfs": [22.0]},
            {"row": "linux-6.1-rseq-1", "unit": "/s", "tmpfs": [20.0]}]}"#;
        let published = joined(text).unwrap();
        assert_eq!(published.len(), 1);
        let here: Vec<_> = published[0].lines[0]
            .pairs
            .iter()
            .map(|pair| pair.here)
            .collect();
        assert_eq!(here, [Some(20.0), Some(22.0), Some(30.0)]);
        assert_eq!(published[0].lines[0].pairs[2].here_ratio, Some(1.5));
    }

    #[test]
    fn other_files_are_refused_and_other_runs_have_nothing() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"rows": [1]}"#,
            r#"{"rows": [{"row": 1}]}"#,
        ] {
            assert!(joined(text).is_err(), "{text}");
        }
        let uml = r#"{"rows": [{"row": "stat", "unit": "/s", "thrufs": [1.0]}]}"#;
        assert!(joined(uml).unwrap().is_empty());
    }
}
