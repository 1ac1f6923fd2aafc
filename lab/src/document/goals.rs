//! The table of the project's goals, each with the newest results that have its row.

use super::derived::{Against, Goal, Met, comparisons, has_passthrough, is_mount};
use super::list::{Aim, GOALS, Want};
use super::markdown::{NONE, plain, with_interval};
use super::memory::{Finding, Memory};
use super::shares::Shares;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use thrufs_bench::Outcome;
use thrufs_bench::report::table::{Entry, RowResult, ratio, sections};
use thrufs_bench::results::statistics::Middle;
use thrufs_bench::results::{ReadError, Results};

/// The goals are for this file system beneath.
const LOWER: &str = "tmpfs";

struct Found {
    /// The newest first.
    runs: Vec<Results>,
    shares: Vec<Shares>,
    memory: Vec<Memory>,
}

/// The figure of a mode of Thrufs.
struct Figure {
    target: String,
    text: String,
    met: Met,
}

/// The table, from all results in the directory.
pub(super) fn table(directory: &Path) -> Outcome<String> {
    let mut found = Found {
        runs: Vec::new(),
        shares: Vec::new(),
        memory: Vec::new(),
    };
    for path in files(directory)? {
        match Results::read(&path) {
            Ok(results) if is_whole(&results) => found.runs.push(results),
            Ok(_) => {}
            // The directory also has files of other forms.
            Err(ReadError::Form { .. }) => {
                found.shares.extend(Shares::read(&path));
                found.memory.extend(Memory::read(&path));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    found.runs.sort_by_key(|run| std::cmp::Reverse(run.started));
    Ok(of(&found))
}

fn of(found: &Found) -> String {
    let mut text = "| what | goal | here, median of the rounds | |\n|---|---|---|---|\n".to_owned();
    for (area, wants) in GOALS {
        text += &format!("| **{}** | | | |\n", plain(area));
        for want in *wants {
            let figures = found.figures(want);
            let here = match (&want.aim, figures.is_empty()) {
                (Aim::Elsewhere { whence, .. }, _) => (*whence).to_owned(),
                (_, true) => NONE.to_owned(),
                (_, false) => {
                    let figures = figures.iter().map(Figure::text);
                    figures.collect::<Vec<_>>().join("; ")
                }
            };
            text += &format!(
                "| {} | {} | {here} | {} |\n",
                plain(want.what),
                plain(&want.aim.goal()),
                verdict(&figures)
            );
        }
    }
    text
}

impl Figure {
    fn text(&self) -> String {
        plain(&format!("{} {}", self.target, self.text))
    }
}

fn verdict(figures: &[Figure]) -> String {
    let missed = figures.iter().filter(|figure| figure.met != Met::Yes);
    let missed: Vec<&Figure> = missed.collect();
    let within = missed.iter().all(|figure| figure.met == Met::Barely);
    let how = if within { ", within the spread" } else { "" };
    match (figures.len(), missed.len()) {
        (0, _) => "not measured".to_owned(),
        (_, 0) => "met".to_owned(),
        (all, some) if all == some => format!("**missed**{how}"),
        _ => {
            let names = missed.iter().map(|figure| figure.target.as_str());
            let names = names.collect::<Vec<_>>().join(" and ");
            format!("**missed** by {names}{how}")
        }
    }
}

impl Found {
    /// For each mode of Thrufs, from the newest run that has it.
    fn figures(&self, want: &Want) -> Vec<Figure> {
        let mut figures: Vec<Figure> = Vec::new();
        if let Aim::Share(least) = want.aim {
            let newest = self.shares.iter().rev();
            let ratios =
                newest.flat_map(|shares| want.rows.iter().filter_map(|row| shares.ratio(row)));
            let figure = |ratio: Middle| Figure::of("one queue", &ratio, Goal::AtLeast(least));
            return ratios.take(1).map(figure).collect();
        }
        if let Aim::Memory(bound) = want.aim {
            let findings = Memory::shown(&self.memory, bound).into_iter();
            return findings.map(Figure::found).collect();
        }
        for run in &self.runs {
            for section in sections(run)
                .iter()
                .filter(|section| section.lower == LOWER)
            {
                for line in section.lines.iter().filter(|line| want.is_about(line)) {
                    for entry in line.entries.iter().filter(|entry| want.is_for(entry)) {
                        let name = &entry.target.name;
                        if figures.iter().any(|figure| figure.target == *name) {
                            continue;
                        }
                        figures.extend(want.figure(line, entry));
                    }
                }
            }
        }
        figures
    }
}

impl Figure {
    fn found((target, text, is_met): Finding) -> Figure {
        let met = if is_met { Met::Yes } else { Met::No };
        Figure { target, text, met }
    }

    fn of(target: &str, middle: &Middle, goal: Goal) -> Figure {
        Figure {
            target: target.to_owned(),
            text: with_interval(middle),
            met: goal.is_met(middle),
        }
    }
}

impl Want {
    fn is_about(&self, line: &RowResult<'_>) -> bool {
        line.jobs == self.jobs && self.rows.contains(&line.row.name.as_str())
    }

    fn is_for(&self, entry: &Entry<'_>) -> bool {
        let options = &entry.target.options;
        is_mount(entry.target)
            && match self.aim {
                Aim::Passthrough(_) => has_passthrough(entry.target),
                Aim::Coherent(_) => !options.contains("cache=always"),
                _ => true,
            }
    }

    fn figure(&self, line: &RowResult<'_>, entry: &Entry<'_>) -> Option<Figure> {
        let name = &entry.target.name;
        let compared = |against: Against| {
            let all = comparisons(line);
            all.into_iter()
                .find(|one| one.against == against && one.subject == name)
        };
        match self.aim {
            Aim::Passthrough(least) | Aim::Coherent(least) => {
                Some(Figure::of(name, &entry.ratio?, Goal::AtLeast(least)))
            }
            Aim::Time(most) => {
                let times = ratio(line.native?, entry.cell)?;
                Some(Figure::of(name, &times, Goal::AtMost(most)))
            }
            Aim::Floor(most) => {
                let times = compared(Against::Floor)?.times;
                Some(Figure::of(name, &times, Goal::AtMost(most)))
            }
            Aim::Libfuse(least) => {
                let one = compared(Against::Libfuse)?;
                Some(Figure::of(name, &one.times, Goal::AtLeast(least)))
            }
            Aim::Requests { opcode, most, each } => {
                let counts = entry.cell.counts.as_ref()?;
                let requests = counts.requests.as_ref()?;
                let counted: u64 = match opcode {
                    Some(opcode) => requests.get(opcode).copied().unwrap_or_default(),
                    None => requests.values().sum(),
                };
                let operations = counts.operations.max(1);
                // Before and after the loop, the directory causes a few requests.
                let most =
                    (most * operations as f64 / f64::from(each)).max(f64::from(each.min(2) - 1));
                let few = 0.05 * operations as f64 / f64::from(each);
                let met = if counted as f64 <= most + few {
                    Met::Yes
                } else {
                    Met::No
                };
                let text = match each {
                    1 => thrufs_bench::report::figure::each(counted, operations),
                    _ => format!("{counted} in {operations}"),
                };
                let target = name.clone();
                Some(Figure { target, text, met })
            }
            Aim::Share(_) | Aim::Memory(_) | Aim::Elsewhere { .. } => None,
        }
    }
}

/// Whether all the work was done. A run with `--percent` only shows that everything runs.
fn is_whole(run: &Results) -> bool {
    let mut words = run.command.iter();
    !words.any(|word| word.starts_with("--percent"))
}

/// The files of results in a directory, of any form, sorted by name.
fn files(directory: &Path) -> Outcome<Vec<PathBuf>> {
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension() == Some(OsStr::new("json")) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::{Found, of};
    use crate::sample::Builder;
    use thrufs_bench::results::{Kind, Results};

    fn line(runs: Vec<Results>, what: &str) -> String {
        let (shares, memory) = (Vec::new(), Vec::new());
        let text = of(&Found {
            runs,
            shares,
            memory,
        });
        let mut lines = text.lines();
        let line = lines.find(|line| line.starts_with(&format!("| {what} |")));
        line.unwrap_or_else(|| panic!("{what}: {text}")).to_owned()
    }

    fn through(dev: u64, ring: u64) -> Results {
        Builder::new()
            .targets(&[
                ("native", Kind::Native),
                ("ring", Kind::Ours),
                ("dev+pt", Kind::Ours),
                ("ring+pt", Kind::Ours),
            ])
            .on("tmpfs")
            .cell("random-write-4k", "native", &[950; 5])
            .cell("random-write-4k", "ring", &[9000; 5])
            .cell("random-write-4k", "dev+pt", &[dev; 5])
            .cell("random-write-4k", "ring+pt", &[ring; 5])
            .results()
    }

    #[test]
    fn a_goal_is_met_missed_or_not_measured() {
        let what = "random write 4k";
        assert_eq!(
            line(vec![through(950, 1000)], what),
            "| random write 4k | ≥ 0.95 of native | dev+pt 1.000 [1.000 to 1.000]; ring+pt 0.950 [0.950 to 0.950] | met |"
        );
        assert!(line(vec![through(950, 1900)], what).ends_with("| **missed** by ring+pt |"));
        assert!(line(vec![through(1900, 1900)], what).ends_with("| **missed** |"));
        assert!(line(Vec::new(), what).ends_with("| – | not measured |"));
        // Goals for tmpfs are not measured on a disk.
        let mut on_disk = through(950, 950);
        on_disk
            .cells
            .iter_mut()
            .for_each(|cell| "ext4".clone_into(&mut cell.lower));
        assert!(line(vec![on_disk], what).ends_with("| not measured |"));
    }

    #[test]
    fn the_newest_run_counts() {
        let (older, newer) = (through(1900, 1900), through(950, 950));
        assert!(line(vec![newer, older], "random write 4k").ends_with("| met |"));
    }

    #[test]
    fn requests_are_counted() {
        let run = |getattrs: u64| {
            Builder::new()
                .targets(&[("native", Kind::Native), ("ring", Kind::Ours)])
                .on("tmpfs")
                .cell("create", "native", &[1000; 3])
                .cell("create", "ring", &[9000; 3])
                .counts(
                    &[("CREATE", 1000), ("RELEASE", 1000), ("GETATTR", getattrs)],
                    9000,
                )
                .results()
        };
        let what = "requests for creating a file (three synchronous)";
        assert!(line(vec![run(1000)], what).ends_with("| ring 3 | met |"));
        assert!(line(vec![run(3000)], what).ends_with("| ring 5 | **missed** |"));
    }
}
