//! All rows, by name, and names of several at once.

use super::{Row, data, metadata};
use crate::Outcome;
use crate::extension::extension;
use std::sync::OnceLock;

/// The rows that say most in the least time: none takes longer than some tenths of a second natively.
const QUICK: &[&str] = &[
    "random-read-4k-loop",
    "read-1m-loop",
    "random-write-4k-loop",
    "write-1m-loop",
    "mmap-random-read-4k-loop",
    "stat-warm",
    "stat-cold",
    "stat-missing",
    "find-stat-warm",
    "open-close",
    "small-file-read-cold",
    "create-write-4k",
    "rename",
    "unlink",
];

/// Names of several rows: some, all of this program, and those that another brings along.
pub(super) fn sets() -> Vec<(&'static str, Vec<&'static str>)> {
    let full = own().map(|row| row.name).collect();
    let mut sets = vec![("quick", QUICK.to_vec()), ("full", full)];
    sets.extend((extension().sets)());
    sets
}

/// Rows that the error about an unknown one names.
const LIKE_MAX: usize = 6;

impl Row {
    /// Whether the row is measured by so many processes at once when the command line does not say how many.
    pub(crate) fn is_usual_for(&self, jobs: usize) -> bool {
        jobs == 1 || self.more_jobs
    }
}

fn own() -> impl Iterator<Item = &'static Row> {
    data::ROWS.iter().chain(&metadata::ROWS)
}

fn all() -> impl Iterator<Item = &'static Row> {
    static OTHERS: OnceLock<Vec<Row>> = OnceLock::new();
    own().chain(OTHERS.get_or_init(|| (extension().rows)()))
}

/// The names of all rows.
pub(crate) fn names() -> Vec<&'static str> {
    all().map(|row| row.name).collect()
}

/// The row of that name.
///
/// # Errors
///
/// A name that is no row's, with those that are like it.
pub fn named(name: &str) -> Outcome<&'static Row> {
    all().find(|row| row.name == name).ok_or_else(|| {
        let like: Vec<&str> = names()
            .into_iter()
            .filter(|row| !name.is_empty() && row.contains(name))
            .take(LIKE_MAX)
            .collect();
        let like = if like.is_empty() {
            String::new()
        } else {
            format!("; there are {}", like.join(", "))
        };
        format!("no row {name}{like}; `thrufs bench --list` has all rows and sets")
    })
}

/// The rows of a list of names of rows and sets, parted by commas; each once, where it is named first.
///
/// # Errors
///
/// As of [`named`].
pub fn listed(names: &str) -> Outcome<Vec<&'static Row>> {
    let mut rows: Vec<&'static Row> = Vec::new();
    let sets = sets();
    let mut add = |name: &str| -> Outcome<()> {
        let row = named(name)?;
        if !rows.iter().any(|found| found.name == row.name) {
            rows.push(row);
        }
        Ok(())
    };
    for name in names.split(',') {
        match sets.iter().find(|(set, _)| *set == name) {
            Some((_, rows)) => rows.iter().try_for_each(|row| add(row))?,
            None => add(name)?,
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::{all, listed, names, sets};
    use crate::row::info::info;
    use std::collections::BTreeSet;

    #[test]
    fn a_set_expands_to_its_rows() {
        let names = |list: &str| -> Vec<&str> {
            let rows = listed(list).unwrap_or_else(|why| panic!("{why}"));
            rows.iter().map(|row| row.name).collect()
        };
        for (set, rows) in sets() {
            assert_eq!(names(set), rows);
        }
        let mixed = names("mkdir,quick,mkdir");
        assert_eq!(mixed.len(), 15);
        assert_eq!(mixed[..2], ["mkdir", "random-read-4k-loop"]);
        assert_eq!(names("full").len(), super::names().len());
        assert!(listed("mkdir,quik").is_err());
    }

    #[test]
    fn an_unknown_row_is_refused_in_one_line_with_similar_names() {
        let refused = |list: &str| listed(list).err().unwrap();
        assert_eq!(
            refused("stat-"),
            "no row stat-; there are stat-warm, stat-cold, stat-missing, find-stat-cold, find-stat-warm; `thrufs bench --list` has all rows and sets"
        );
        for list in ["none-such", "read", ""] {
            assert!(refused(list).len() < 300, "{}", refused(list));
        }
    }

    #[test]
    fn no_two_rows_have_one_name_or_one_title() {
        assert_eq!(
            names().into_iter().collect::<BTreeSet<_>>().len(),
            names().len()
        );
        let titles: BTreeSet<String> = all().map(|row| info(row).title).collect();
        assert_eq!(titles.len(), names().len());
        for row in all() {
            let info = info(row);
            assert!(info.about.ends_with('.'), "{}", row.name);
            assert_eq!(info.cold, row.name.ends_with("-cold"), "{}", row.name);
        }
    }
}
