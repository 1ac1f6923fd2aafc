//! Rows about names and attributes, by loops of our own; and those that write new files, which have no place among
//! [`data`](super::data), where a file is there and stays.

mod attributes;
mod entries;
mod lists;
mod opens;

use super::{Ground, Loop, Row, Work};
use crate::results::Group;
use crate::workload::{self, stats};

/// Of native's rate, for what needs no request once it is cached above.
const GOAL_CACHED: f64 = 0.90;

/// Names that are looked at in a row. No more, because some servers keep a descriptor for each.
const NAMES: usize = 8000;
/// Small files of 4 KiB in one directory.
const SMALL_FILES: Ground = Ground::Kept("tree-small");
/// What `find` walks through.
const TREE: Ground = Ground::Kept("tree-walk");
const LINKS: Ground = Ground::Kept("tree-links");
const CHAINS: Ground = Ground::Kept("tree-chains");
/// A file for opening and asking.
const ONE_FILE: Ground = Ground::Kept("tree-one");

const LOOP: Loop = Loop {
    title: "",
    about: "",
    group: Group::Metadata,
    operations: NAMES,
    inodes: 1,
    ground: Ground::New,
    make: workload::nothing,
    warm: None,
    run: |_, _| Ok(()),
};

/// Looks at one file over and over.
const OF_ONE_FILE: Loop = Loop {
    ground: ONE_FILE,
    make: workload::one_file,
    inodes: 0,
    ..LOOP
};
/// Looks at many files.
const OF_SMALL_FILES: Loop = Loop {
    ground: SMALL_FILES,
    make: workload::small_files,
    ..LOOP
};
/// Walks through a tree.
const OF_TREE: Loop = Loop {
    ground: TREE,
    make: workload::lists::make_tree,
    ..LOOP
};
const OF_LINKS: Loop = Loop {
    ground: LINKS,
    make: stats::make_links,
    ..LOOP
};

const fn warm(name: &'static str, work: Loop) -> Row {
    Row {
        goal: Some(GOAL_CACHED),
        ..row(name, work)
    }
}

const fn cold(name: &'static str, work: Loop) -> Row {
    Row {
        cold: true,
        ..row(name, work)
    }
}

const fn row(name: &'static str, work: Loop) -> Row {
    Row {
        name,
        bytes: 0,
        cold: false,
        goal: None,
        work: Work::Loop(work),
    }
}

const fn append(name: &'static str, bytes: usize, work: Loop) -> Row {
    Row {
        bytes: bytes as u64,
        ..row(name, work)
    }
}

pub(super) static ROWS: [&[Row]; 4] = [
    &attributes::ROWS,
    &lists::ROWS,
    &opens::ROWS,
    &entries::ROWS,
];
