//! All rows, by name, and names of several at once.

use super::{Row, data, metadata, programs};
use crate::Outcome;

/// The rows that say most in the least time: none takes longer than some tenths of a second natively. Those of
/// data are loops of our own: fio takes 0.3 s to start and to end, for each measurement.
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

/// Whatever somebody has asked about, once.
const FULL: &[&str] = &[
    "read-4k",
    "random-read-4k",
    "write-4k",
    "random-write-4k",
    "read-128k",
    "write-128k",
    "read-1m",
    "write-1m",
    "write-4k-fsync",
    "random-write-4k-fsync",
    "write-1m-fsync",
    "direct-read-4k",
    "direct-random-read-4k",
    "direct-random-write-4k",
    "direct-read-1m",
    "direct-write-1m",
    "aio16-random-read-4k",
    "aio16-random-write-4k",
    "aio64-random-read-4k",
    "aio64-random-write-4k",
    "uring16-random-read-4k",
    "uring16-random-write-4k",
    "uring64-random-read-4k",
    "uring64-random-write-4k",
    "mmap-read-4k",
    "mmap-random-read-4k",
    "mmap-random-write-4k",
    "write-4k-xattr",
    "random-write-4k-xattr",
    "random-read-4k-loop",
    "random-write-4k-loop",
    "read-1m-loop",
    "write-1m-loop",
    "read-4k-cold",
    "random-read-4k-cold",
    "read-128k-cold",
    "read-1m-cold",
    "mmap-random-read-4k-cold",
    "direct-read-1m-cold",
    "random-read-4k-warm",
    "append-4k",
    "append-1m",
    "stat-warm",
    "stat-one-warm",
    "stat-cold",
    "stat-birth-cold",
    "stat-missing",
    "stat-missing-warm",
    "lookup-cold",
    "lookup-warm",
    "readlink-warm",
    "readlink-cold",
    "readdir-cold",
    "readdir-warm",
    "readdir-stat-cold",
    "readdir-stat-warm",
    "find-cold",
    "find-warm",
    "find-stat-cold",
    "find-stat-warm",
    "open-close",
    "open-close-write",
    "small-file-read-cold",
    "small-file-read-warm",
    "create",
    "create-write-4k",
    "unlink",
    "rename",
    "mkdir",
    "rmdir",
    "build-small",
    "git-status",
    "git-clone",
];

/// The table that `cargo xtask bench` has always made.
const USUAL: &[&str] = &[
    "random-read-4k-cold",
    "random-read-4k-warm",
    "random-write-4k-loop",
    "append-4k",
    "mmap-random-read-4k-cold",
    "read-128k-cold",
    "read-1m-cold",
    "direct-read-1m-cold",
    "append-1m",
    "open-close",
    "stat-one-warm",
    "stat-cold",
    "stat-birth-cold",
    "stat-missing",
    "readdir-cold",
    "small-file-read-cold",
    "create",
    "create-write-4k",
    "mkdir",
    "rename",
    "unlink",
];

/// The rows that a comparison of transports is about. The floor can do all of them.
const TRANSPORTS: &[&str] = &[
    "read-128k-cold",
    "read-1m-cold",
    "direct-read-1m-cold",
    "mmap-random-read-4k-cold",
    "random-read-4k-cold",
    "random-write-4k-loop",
    "stat-cold",
    "open-close",
    "create",
    "unlink",
    "rename",
];

/// Files that the kernel uses by itself: reads and writes, and what it costs to have them.
const PASSTHROUGH: &[&str] = &[
    "read-4k",
    "write-4k",
    "write-4k-fsync",
    "random-read-4k",
    "random-write-4k",
    "random-write-4k-fsync",
    "read-1m",
    "write-1m",
    "write-1m-fsync",
    "direct-random-read-4k",
    "direct-random-write-4k",
    "direct-read-1m",
    "direct-write-1m",
    "aio16-read-4k",
    "aio16-write-4k",
    "aio16-random-read-4k",
    "aio16-random-write-4k",
    "aio64-read-4k",
    "aio64-write-4k",
    "aio64-random-read-4k",
    "aio64-random-write-4k",
    "mmap-read-4k",
    "mmap-random-read-4k",
    "mmap-random-write-4k",
    // The lower file system's cache is empty as well.
    "random-read-4k-cold",
    "read-1m-cold",
    "mmap-random-read-4k-cold",
    // Where it costs: every file is registered before it is used.
    "open-close",
    "open-close-write",
    "small-file-read-cold",
    "create-write-4k",
];

/// What the project's goals and its table of peers are about, but for builds. Which contestants say something in a
/// row: see the suite of that name.
const GOALS: &[&str] = &[
    "read-4k",
    "read-4k-cold",
    // First, for the requests: of files that have attributes it says more than the next.
    "write-4k-xattr",
    "write-4k",
    "random-read-4k",
    "random-read-4k-cold",
    "random-write-4k",
    "read-1m",
    "read-1m-cold",
    "write-1m",
    "mmap-read-4k",
    "mmap-random-read-4k",
    "mmap-random-write-4k",
    "direct-random-read-4k",
    "direct-random-write-4k",
    "direct-read-1m",
    "direct-write-1m",
    "aio16-random-read-4k",
    "aio64-random-read-4k",
    "aio16-random-write-4k",
    "aio64-random-write-4k",
    "stat-warm",
    "lookup-warm",
    "readlink-warm",
    "find-warm",
    "find-stat-warm",
    "small-file-read-warm",
    "git-status",
    "stat-cold",
    "stat-missing",
    "open-close",
    "lookup-cold",
    "readlink-cold",
    "small-file-read-cold",
    "create",
    "create-write-4k",
    "rename",
    "unlink",
    "mkdir",
    "rmdir",
    "find-cold",
    "find-stat-cold",
];

/// Names of several rows.
pub(crate) const SETS: &[(&str, &[&str])] = &[
    ("quick", QUICK),
    ("full", FULL),
    ("usual", USUAL),
    ("transports", TRANSPORTS),
    ("passthrough", PASSTHROUGH),
    ("builds", &["build-small", "build-cargo"]),
    ("goals", GOALS),
];

/// Rows that are measured by several processes as well when nobody says how many.
const WITH_MORE_JOBS: &[&str] = &["open-close", "open-close-write"];

/// Rows that are named to whoever asks for one that there is not.
const LIKE_MAX: usize = 6;

/// What stands behind the name of a row of which there is another by fio.
const LOOP: &str = "-loop";

impl Row {
    /// Whether the row is measured by so many processes at once when nobody has said how many.
    pub(crate) fn is_usual_for(&self, jobs: usize) -> bool {
        jobs == 1 || WITH_MORE_JOBS.contains(&self.name)
    }

    /// The row in which fio does what this one does by a loop of our own, if there is one: where both are
    /// measured, the ratio of the two says how far they agree.
    pub(crate) fn by_fio(&self) -> Option<&'static Row> {
        named(self.name.strip_suffix(LOOP)?).ok()
    }
}

fn all() -> impl Iterator<Item = &'static Row> {
    let tables = data::ROWS.into_iter().chain(metadata::ROWS);
    tables.flatten().chain(&programs::ROWS)
}

/// The names of all rows.
pub(crate) fn names() -> Vec<&'static str> {
    all().map(|row| row.name).collect()
}

/// The row of that name.
pub(crate) fn named(name: &str) -> Outcome<&'static Row> {
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
pub(crate) fn listed(names: &str) -> Outcome<Vec<&'static Row>> {
    let mut rows: Vec<&'static Row> = Vec::new();
    let mut add = |name: &str| -> Outcome<()> {
        let row = named(name)?;
        if !rows.iter().any(|found| found.name == row.name) {
            rows.push(row);
        }
        Ok(())
    };
    for name in names.split(',') {
        match SETS.iter().find(|(set, _)| *set == name) {
            Some((_, members)) => members.iter().try_for_each(|member| add(member))?,
            None => add(name)?,
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::{SETS, all, listed, named, names};
    use crate::row::info::info;
    use std::collections::BTreeSet;

    #[test]
    fn a_set_stands_for_its_rows() {
        let names = |list: &str| -> Vec<&str> {
            let rows = listed(list).unwrap_or_else(|why| panic!("{why}"));
            rows.iter().map(|row| row.name).collect()
        };
        for (set, members) in SETS {
            assert_eq!(names(set), *members);
        }
        let mixed = names("mkdir,transports,mkdir");
        assert_eq!(mixed.len(), 12);
        assert_eq!(mixed[..2], ["mkdir", "read-128k-cold"]);
        assert!(listed("mkdir,transport").is_err());
    }

    #[test]
    fn who_asks_for_a_row_that_there_is_not_is_told_in_a_line() {
        let refused = |list: &str| listed(list).err().unwrap();
        assert_eq!(
            refused("readlink"),
            "no row readlink; there are readlink-warm, readlink-cold; `thrufs bench --list` has all rows and sets"
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

    #[test]
    fn the_floor_can_do_all_of_the_transports() {
        for row in listed("transports").unwrap() {
            assert_eq!(row.floor_cannot(), None, "{}", row.name);
        }
        assert!(named("find-cold").unwrap().floor_cannot().is_some());
        assert!(named("random-write-4k").unwrap().floor_cannot().is_some());
    }
}
